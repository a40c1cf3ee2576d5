#include "ops/traits.h"

#include <ATen/core/enum_tag.h>

#include <deque>
#include <mutex>
#include <unordered_map>

namespace ae {

const std::vector<Exception>& op_exceptions() {
  static const std::vector<Exception>* table = new std::vector<Exception>{
#define X(op, rule, argument, why) {op, Rule::rule, argument, why},
#include "tables/op_exceptions.def"
#undef X
  };
  return *table;
}

const char* rule_name(Rule rule) {
  static constexpr const char* names[] = {
      "side_effect",     "dynamic_shape",        "fails_on_values",  "index_in_range",   "index_lists",
      "target_in_range", "integer_divisor",      "undeclared_write", "numbers_are_key",  "whole",
      "host_operands",   "bounded_by_start_end", "bounded_by_dim",   "bounded_by_input", "no_out"};
  static_assert(std::size(names) == static_cast<size_t>(Rule::NoOut) + 1);
  return names[static_cast<size_t>(rule)];
}

namespace {

bool covers(const char* row, const c10::OperatorName& name) {
  std::string_view text(row);
  auto dot = text.find('.');
  if (dot == std::string_view::npos) {
    return text == name.name;
  }
  return text.substr(0, dot) == name.name && text.substr(dot + 1) == name.overload_name;
}

bool has_tag(const c10::OperatorHandle& op, at::Tag tag) {
  for (auto t : op.getTags()) {
    if (t == tag) {
      return true;
    }
  }
  return false;
}

bool runs_on_cpu(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

bool is_view(const c10::FunctionSchema& schema) {
  for (const auto& ret : schema.returns()) {
    if (ret.alias_info() && !ret.alias_info()->isWrite()) {
      return true;
    }
  }
  return false;
}

bool excepted(const c10::OperatorName& name, Rule rule) {
  for (const auto& row : op_exceptions()) {
    if (row.rule == rule && covers(row.op, name)) {
      return true;
    }
  }
  return false;
}

// The overload of `op` whose arguments are op's followed by the tensors to write op's results into.
std::optional<c10::OperatorHandle> find_out(const c10::OperatorHandle& op) {
  static const auto* overloads = [] {
    auto* map = new std::unordered_map<std::string, std::vector<c10::OperatorName>>;
    for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
      (*map)[name.name].push_back(name);
    }
    return map;
  }();
  const auto& schema = op.schema();
  if (schema.returns().empty()) {
    return std::nullopt;
  }
  for (const auto& ret : schema.returns()) {
    if (ret.alias_info() || ret.type()->kind() != c10::TypeKind::TensorType) {
      return std::nullopt;
    }
  }
  auto found = overloads->find(schema.name());
  if (found == overloads->end()) {
    return std::nullopt;
  }
  for (const auto& name : found->second) {
    auto candidate = c10::Dispatcher::singleton().findSchema(name);
    if (!candidate || !runs_on_cpu(*candidate)) {
      continue;
    }
    // Factories name device, dtype and so on, which their out overloads take from the output.
    size_t inputs = 0;
    const auto& other = candidate->schema();
    std::vector<const c10::Argument*> wanted;
    for (const auto& arg : schema.arguments()) {
      wanted.push_back(&arg);
    }
    size_t outs = 0;
    for (const auto& arg : other.arguments()) {
      outs += arg.is_out();
    }
    if (outs != schema.returns().size() || other.arguments().size() != wanted.size() + outs) {
      continue;
    }
    bool same = true;
    for (; inputs < wanted.size() && same; ++inputs) {
      const auto& arg = other.arguments()[inputs];
      same = !arg.is_out() && arg.name() == wanted[inputs]->name() && *arg.type() == *wanted[inputs]->type();
    }
    if (same) {
      return candidate;
    }
  }
  return std::nullopt;
}

ArgTraits argument_traits(const c10::Argument& arg) {
  ArgTraits t;
  t.written = arg.alias_info() && arg.alias_info()->isWrite();
  c10::TypePtr type = arg.type();
  if (auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      t.kind = ArgKind::Tensor;
      break;
    case c10::TypeKind::NumberType:
      t.kind = ArgKind::Scalar;
      break;
    case c10::TypeKind::FloatType:
      t.kind = ArgKind::Float;
      break;
    case c10::TypeKind::GeneratorType:
      t.kind = ArgKind::Generator;
      break;
    case c10::TypeKind::DeviceObjType:
      t.kind = ArgKind::Device;
      break;
    case c10::TypeKind::ListType: {
      c10::TypePtr element = type->expectRef<c10::ListType>().getElementType();
      if (auto optional = element->cast<c10::OptionalType>()) {
        element = optional->getElementType();
      }
      if (element->kind() == c10::TypeKind::TensorType) {
        t.kind = ArgKind::TensorList;
      } else if (element->kind() == c10::TypeKind::NumberType) {
        t.kind = ArgKind::ScalarList;
      }
      break;
    }
    default:
      break;
  }
  return t;
}

} // namespace

OpTraits::OpTraits(const c10::OperatorHandle& handle) : op(handle) {
  const auto& schema = op.schema();
  const auto& op_name = op.operator_name();
  name = c10::toString(op_name);
  hash = std::hash<std::string>{}(name) * 0x9E3779B97F4A7C15ull | 1;
  aten = op_name.getNamespace() == "aten";

  bool pointwise = has_tag(op, at::Tag::pointwise);
  const std::string& base = op_name.name;
  bool numbers_float = pointwise || base.rfind("aten::_foreach_", 0) == 0 || base.rfind("aten::_fused_", 0) == 0 ||
                       base.rfind("aten::add", 0) == 0 || base.rfind("aten::fill", 0) == 0 ||
                       base.rfind("aten::masked_fill", 0) == 0 || base.rfind("aten::baddbmm", 0) == 0 ||
                       base.rfind("aten::lerp", 0) == 0 || base.rfind("aten::clamp", 0) == 0 ||
                       base.rfind("aten::index_fill", 0) == 0 || base.rfind("aten::native_batch_norm", 0) == 0 ||
                       base.rfind("aten::_native_batch_norm", 0) == 0;
  numbers_are_key = excepted(op_name, Rule::NumbersAreKey);
  for (const auto& arg : schema.arguments()) {
    auto t = argument_traits(arg);
    t.parameter = numbers_float && !numbers_are_key &&
                  (t.kind == ArgKind::Scalar || t.kind == ArgKind::ScalarList || t.kind == ArgKind::Float);
    random_argument |= t.kind == ArgKind::Generator;
    args.push_back(t);
  }
  random = random_argument || has_tag(op, at::Tag::nondeterministic_seeded);

  for (const auto& ret : schema.returns()) {
    ReturnTraits t;
    bool list = ret.type()->kind() == c10::TypeKind::ListType;
    bool tensor = ret.type()->kind() == c10::TypeKind::TensorType ||
                  (list && ret.type()->expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::TensorType);
    if (!tensor) {
      t.kind = ReturnKind::Value;
    } else if (ret.alias_info()) {
      t.kind = ReturnKind::Value;
      for (size_t i = 0; i < args.size(); ++i) {
        const auto* info = schema.arguments()[i].alias_info();
        if (info && !info->beforeSets().empty() && info->beforeSets() == ret.alias_info()->beforeSets()) {
          t = {ReturnKind::Argument, static_cast<uint8_t>(i)};
          break;
        }
      }
    } else if (list) {
      t.kind = ReturnKind::FreshList;
    }
    if (t.kind == ReturnKind::Value && !direct) {
      direct = DirectReason::ReturnsValue;
    }
    returns.push_back(t);
  }

  for (const auto& row : op_exceptions()) {
    if (!covers(row.op, op_name)) {
      continue;
    }
    switch (row.rule) {
      case Rule::SideEffect:
        direct = DirectReason::SideEffect;
        break;
      case Rule::DynamicShape:
        direct = DirectReason::DynamicShape;
        break;
      case Rule::FailsOnValues:
        // "aten::bernoulli" with argument 0: only the overload that takes its probabilities from the tensor.
        if (row.argument < 0 || args.size() <= 2) {
          direct = DirectReason::UncheckedIndex;
        }
        break;
      case Rule::IndexInRange:
      case Rule::IndexLists:
      case Rule::TargetInRange:
        check = row.rule;
        check_argument = static_cast<uint8_t>(row.argument);
        break;
      case Rule::IntegerDivisor:
        if (args.size() > 1) {
          check = row.rule;
          check_argument = static_cast<uint8_t>(row.argument);
        }
        break;
      case Rule::UndeclaredWrite:
        args.at(row.argument).written = true;
        break;
      case Rule::HostOperands:
        host_operands = true;
        break;
      case Rule::BoundedByStartEnd:
      case Rule::BoundedByDim:
      case Rule::BoundedByInput:
        bounds = row.rule;
        bounds_argument = static_cast<uint8_t>(row.argument);
        break;
      case Rule::NumbersAreKey:
      case Rule::Whole:
      case Rule::NoOut:
        break;
    }
  }
  if (has_tag(op, at::Tag::dynamic_output_shape) && check != Rule::IndexLists) { // there only masks are dynamic
    direct = DirectReason::DynamicShape;
  } else if (has_tag(op, at::Tag::data_dependent_output) && !direct) {
    direct = DirectReason::ReturnsValue;
  }
  if (!aten) {
    direct = DirectReason::NoKernel;
  } else if (schema.returns().empty() && !direct) {
    bool any = false;
    for (const auto& arg : args) {
      any |= arg.written;
    }
    if (!any) {
      direct = DirectReason::SideEffect;
    }
  }
  for (const auto& arg : args) {
    writes |= arg.written;
  }
  pure = !writes && !random;
  bumps_versions = writes && base.rfind("aten::_foreach_", 0) == 0;
  // Structured ops only: there both overloads are one kernel. Others may differ (native_batch_norm.out leaves results
  // unwritten for some strides).
  if (!direct && !excepted(op_name, Rule::NoOut) &&
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional)) {
    out = find_out(op);
  }
}

c10::TypePtr OpTraits::list_element(size_t argument) const {
  auto type = op.schema().arguments()[argument].type();
  if (auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  return type->expectRef<c10::ListType>().getElementType();
}

bool OpTraits::optional_tensor(size_t argument) const {
  auto type = op.schema().arguments()[argument].type();
  if (type->kind() == c10::TypeKind::ListType) {
    type = list_element(argument);
  }
  return type->kind() == c10::TypeKind::OptionalType;
}

bool OpTraits::float_list(size_t argument) const {
  return list_element(argument)->kind() == c10::TypeKind::FloatType;
}

bool recorder_takes(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  if (name.getNamespace() != "aten" || !op.hasSchema()) {
    return false;
  }
  using c10::DispatchKey;
  if (is_view(op.schema())) {
    return false;
  }
  // Some composites have a kernel of their own on the CPU beside (silu_backward): then that is what the CPU runs.
  if (runs_on_cpu(op)) {
    return true;
  }
  if (op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)) {
    return false;
  }
  if (excepted(name, Rule::Whole)) {
    return true;
  }
  if (!op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd)) {
    return false;
  }
  if (name.name.rfind("aten::_foreach_", 0) == 0) {
    return true;
  }
  // Factories such as arange: their composition resizes an empty tensor; the recorder knows the size.
  static const char* const factories[] = {"aten::arange", "aten::linspace", "aten::logspace",
                                          "aten::range",  "aten::eye",      "aten::randperm"};
  for (const char* factory : factories) {
    if (name.name == factory && !op.schema().arguments().empty() && !op.schema().arguments().back().is_out()) {
      return true;
    }
  }
  return false;
}

namespace {
std::mutex traits_mutex;
std::deque<OpTraits>& traits_store() {
  static auto* store = new std::deque<OpTraits>;
  return *store;
}
} // namespace

const OpTraits& traits_of(const c10::OperatorHandle& op) {
  static auto* index = new std::unordered_map<c10::OperatorName, const OpTraits*>;
  std::lock_guard<std::mutex> lock(traits_mutex);
  auto& slot = (*index)[op.operator_name()];
  if (slot == nullptr) {
    slot = &traits_store().emplace_back(op);
  }
  return *slot;
}

void lock_traits() {
  traits_mutex.lock();
}

void unlock_traits() {
  traits_mutex.unlock();
}

std::vector<const OpTraits*> all_traits() {
  std::lock_guard<std::mutex> lock(traits_mutex);
  std::vector<const OpTraits*> all;
  for (const auto& t : traits_store()) {
    all.push_back(&t);
  }
  return all;
}

} // namespace ae
