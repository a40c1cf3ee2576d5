#include "plan/pointwise.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/Version.h>
#include <ATen/cpu/Utils.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/result_type.h>
#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace ae {
namespace {

using codegen::Argument;
using codegen::Type;

// "aten::_foreach_add_.Scalar" -> "add", over lists.
std::string base_name(const std::string& name, bool& over_lists) {
  std::string base = name.substr(0, name.find('.'));
  base = base.substr(base.rfind(':') + 1);
  constexpr std::string_view prefix = "_foreach_";
  over_lists = base.rfind(prefix, 0) == 0;
  if (over_lists) {
    base.erase(0, prefix.size());
  }
  if (base.size() > 1 && base.back() == '_' && base[base.size() - 2] != '_') {
    base.pop_back();
  }
  return base;
}

c10::ScalarType leaf_type(const Leaf& leaf) {
  if (leaf.kind == LeafKind::Number || leaf.kind == LeafKind::Numbers) {
    constexpr c10::ScalarType types[] = {c10::kDouble, c10::kLong, c10::kBool, c10::kComplexDouble};
    return types[leaf.tag];
  }
  return static_cast<c10::ScalarType>(leaf.dtype);
}

void combine(c10::ScalarType& into, c10::ScalarType type) {
  into = into == c10::ScalarType::Undefined ? type : c10::promoteTypes(into, type);
}

// ATen's promotion (at::native::update_result_type_state), from records instead of tensors.
void promote(at::native::ResultTypeState& state, const Leaf& leaf) {
  auto type = leaf_type(leaf);
  bool wrapped = leaf.kind != LeafKind::Tensor && (leaf.kind != LeafKind::HostNumber || leaf.flags & kWrapped);
  if (wrapped && c10::isFloatingType(type)) {
    type = c10::get_default_dtype_as_scalartype();
  }
  combine(leaf.kind == LeafKind::Tensor && leaf.dim > 0 ? state.dimResult : wrapped ? state.wrappedResult : state.zeroResult, type);
}

class Reader {
 public:
  Reader(const Node& node, const Numbers& numbers) : node_(node), numbers_(numbers) {}

  std::vector<PointOp> read() {
    bool over_lists = false;
    std::string base = base_name(node_.traits->name, over_lists);
    const auto* lowering = codegen::find_lowering(base);
    if (lowering == nullptr || node_.traits->random) {
      return {};
    }
    size_t count = 1;
    if (over_lists) {
      count = 0;
      for (const auto& leaf : node_.leaves) {
        if (leaf.kind == LeafKind::List) {
          count = static_cast<size_t>(leaf.value);
          break;
        }
      }
    }
    std::vector<PointOp> ops;
    for (size_t k = 0; k < count; ++k) {
      PointOp op;
      op.lowering = lowering;
      if (!read_one(op, over_lists, k, count)) {
        return {};
      }
      ops.push_back(std::move(op));
    }
    return ops;
  }

 private:
  bool read_one(PointOp& op, bool over_lists, size_t k, size_t count) {
    const OpTraits& traits = *node_.traits;
    const auto& schema = traits.op.schema().arguments();
    const Leaf* destination = nullptr;
    bool given_out = false;
    bool keyed = false; // has numbers that belong to the key
    bool fills = op.lowering->op == "copy" || op.lowering->op == "fill" || op.lowering->op == "zero";
    at::native::ResultTypeState state;
    c10::ScalarType first = c10::ScalarType::Undefined;
    std::vector<const Leaf*> tensors; // by input; nullptr: a number
    size_t next = 0;
    for (size_t i = 0; i < traits.args.size(); ++i) {
      const Leaf* leaf = &node_.leaves[next++];
      const bool list = leaf->kind == LeafKind::List;
      if (list) {
        if (!over_lists || static_cast<size_t>(leaf->value) != count) {
          return false;
        }
        next += static_cast<size_t>(leaf->value);
        leaf += 1 + k;
      } else if (over_lists && leaf->kind == LeafKind::Tensor && leaf->dim > 0) {
        return false; // a tensor of numbers, one an element
      }
      if (traits.args[i].written) {
        if (destination != nullptr || leaf->kind != LeafKind::Tensor) {
          return false;
        }
        destination = leaf;
        if (schema[i].is_out()) {
          given_out = true;
          continue;
        }
        if (fills) {
          op.arguments.emplace_back();
          continue;
        }
      }
      Argument argument;
      switch (leaf->kind) {
        case LeafKind::Tensor:
          if (leaf->flags & (kConj | kNeg)) {
            return false;
          }
          [[fallthrough]];
        case LeafKind::HostNumber:
        case LeafKind::Number:
        case LeafKind::Numbers: {
          auto type = codegen_type(leaf_type(*leaf));
          if (!type || (leaf->kind == LeafKind::Numbers && static_cast<size_t>(leaf->value) != count)) {
            return false;
          }
          const uint32_t parameter = leaf->at + (leaf->kind == LeafKind::Numbers ? static_cast<uint32_t>(k) : 0);
          if (leaf->kind != LeafKind::Tensor) {
            bool fixed = op.lowering->fixed >> op.arguments.size() & 1;
            if ((fixed || op.lowering->unit >> op.arguments.size() & 1) && specialise(op, parameter, *type, fixed, argument)) {
              promote(state, *leaf);
              break;
            }
            if (fixed) {
              return false;
            }
            argument.number = 1;
          }
          argument.kind = Argument::Kind::Value;
          argument.value = static_cast<uint16_t>(op.inputs.size());
          PointInput input;
          input.type = *type;
          input.parameter = parameter;
          op.inputs.push_back(std::move(input));
          tensors.push_back(leaf->kind == LeafKind::Tensor ? leaf : nullptr);
          promote(state, *leaf);
          if (first == c10::ScalarType::Undefined) {
            first = leaf_type(*leaf);
          }
          break;
        }
        case LeafKind::None:
          break;
        case LeafKind::Int:
          argument.kind = Argument::Kind::Int;
          argument.number = leaf->value;
          promote_key(state, traits.args[i], op, leaf->tag ? c10::kBool : c10::kLong);
          break;
        case LeafKind::Attribute:
          if (!read_attribute(node_.attributes[i], argument)) {
            return false;
          }
          keyed = keyed || node_.attributes[i].isScalar();
          if (node_.attributes[i].isDouble()) {
            promote_key(state, traits.args[i], op, c10::get_default_dtype_as_scalartype());
          }
          break;
        default:
          return false;
      }
      op.arguments.push_back(std::move(argument));
    }

    // ATen's mul_(Scalar), which lists in place take, has the number first: there it is rounded to a half type.
    if (over_lists && destination != nullptr && op.lowering->op == "mul" && op.arguments.size() == 2 && op.arguments[1].number) {
      std::swap(op.arguments[0], op.arguments[1]);
    }

    // Where the results go.
    c10::ScalarType type;
    c10::IntArrayRef shape;
    if (destination != nullptr) {
      if (!node_.outputs.empty() || destination->flags & (kConj | kNeg)) {
        return false;
      }
      type = leaf_type(*destination);
      shape = sizes(*destination);
      op.output = access(*destination, shape);
    } else {
      if (node_.outputs.size() != count || !node_.outputs[k].defined) {
        return false;
      }
      const Output& output = node_.outputs[k];
      type = c10::typeMetaToScalarType(output.dtype);
      shape = output.sizes;
      op.output = make_access(output.slot, type, output.offset, output.sizes, output.strides, shape);
    }
    op.numel = op.output.numel();
    auto result = codegen_type(type);
    if (!result || op.numel == 0) {
      return false;
    }
    if (!apart(op.output)) {
      return false;
    }
    op.type = *result;

    auto common = at::native::result_type(state);
    switch (op.lowering->promotion) {
      case codegen::Promotion::Common:
        break;
      case codegen::Promotion::FloatOfInt:
        common = c10::isIntegralType(common, true) ? c10::get_default_dtype_as_scalartype() : common;
        break;
      case codegen::Promotion::First:
        common = first;
        break;
      case codegen::Promotion::Result:
        common = type;
        break;
    }
    auto compute = codegen_type(common);
    if (!compute) {
      return false;
    }
    op.compute = *compute;
    // out= of another type than the op returns: ATen rounds to that type first, or takes another kernel.
    if (given_out && op.type != op.compute && op.type != Type::Bool) {
      return false;
    }

    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (keyed && op.inputs[i].type < Type::F16) {
        return false; // such a number may change the type, which `state` does not know
      }
      if (tensors[i] == nullptr) {
        continue;
      }
      const Leaf& leaf = *tensors[i];
      if (!fits(leaf, shape)) {
        return false;
      }
      // Where it computes in a half type, ATen may take a tensor of one element as a number of its own, wider type.
      bool half = op.compute == Type::BF16 || op.compute == Type::F16;
      // With a rounding mode the quotient by such a number is not rounded before.
      if (half && leaf_numel(leaf) == 1 && (op.inputs[i].type != op.compute || has_text(op))) {
        return false;
      }
      // Integers that the half type cannot hold are rounded to it first.
      if (half && c10::isIntegralType(leaf_type(leaf), false)) {
        return false;
      }
      op.inputs[i].access = access(leaf, shape);
      if (!(*op.inputs[i].access == op.output) && may_overlap(*op.inputs[i].access, op.output)) {
        return false; // what it reads changes while it writes
      }
    }

    codegen::Value value;
    value.lowering = op.lowering;
    value.compute = op.compute;
    value.type = op.type;
    value.arguments = op.arguments;
    if (!codegen::admitted(value, codegen_target())) {
      return false;
    }
    if ((scaled(op) || op.lowering->op == "tanh_backward") && any_repeated(op)) {
      return false;
    }
    if (op.lowering->onednn != nullptr && !as_onednn(op, op.lowering->onednn(value), tensors)) {
      return false;
    }
    op.cut = op.lowering->cut != nullptr ? op.lowering->cut(value, codegen_target()) : 0;
    return op.cut == 0 || (at_one_cut(op) && (op.lowering->op != "gelu" || gelu_shares(op)));
  }

  // Whether ATen hands the op to oneDNN, by the argument that decides; -1: it never does.
  bool as_onednn(const PointOp& op, int argument, const std::vector<const Leaf*>& tensors) const {
    if (argument < 0) {
      return true;
    }
    if (!at::globalContext().userEnabledMkldnn() || op.numel < 2 || op.type != op.compute) {
      return false;
    }
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (tensors[i] == nullptr || op.inputs[i].type != op.compute || leaf_numel(*tensors[i]) != op.numel) {
        return false;
      }
    }
    return op.inputs[op.arguments[static_cast<size_t>(argument)].value].access->dense();
  }

  // ATen's gelu gives every thread a share of what is longer than this. Whether those shares end where the loop's do, or
  // neither has a tail.
  static bool gelu_shares(const PointOp& op) {
    constexpr int64_t longest = 0x4000;
    const int64_t threads = at::get_num_threads();
    if (op.numel <= longest || threads == 1) {
      return true;
    }
    const auto share = [&](int64_t count) { return (op.numel + count - 1) / count; };
    const int64_t grain = at::internal::GRAIN_SIZE;
    const int64_t its = share(threads);
    const int64_t ours = share(std::min(threads, (op.numel + grain - 1) / grain));
    const int64_t cut = op.cut;
    return its == ours || (op.numel % cut == 0 && its % cut == 0 && ours % cut == 0);
  }

  // Whether it is plain that no two elements share a byte: elsewhere the order within the op matters.
  static bool apart(const Access& access) {
    auto dims = access.dims;
    std::sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.stride < b.stride; });
    int64_t extent = access.item;
    for (const auto& dim : dims) {
      if (dim.stride < extent) {
        return false;
      }
      extent += (dim.size - 1) * dim.stride;
    }
    return true;
  }

  // Where an operand is one element for a whole row, ATen's compiler moves its product out of the loop (of the scalar tail)
  // and does not contract it there.
  static bool scaled(const PointOp& op) {
    for (size_t i = 0; i < op.arguments.size(); ++i) {
      if (op.lowering->unit >> i & 1 && op.arguments[i].kind == Argument::Kind::Value) {
        return op.compute >= Type::F16;
      }
    }
    return false;
  }
  static bool any_repeated(const PointOp& op) {
    for (const auto& input : op.inputs) {
      for (const auto& dim : input.access ? input.access->dims : decltype(op.output.dims){}) {
        if (dim.stride == 0) {
          return true;
        }
      }
    }
    return false;
  }

  // Whether ATen's loop over this op is one row of contiguous elements, or rows that the cut divides: then where its
  // vector body ends does not depend on other ops.
  static bool at_one_cut(const PointOp& op) {
    int64_t inner = op.output.dims.empty() ? 1 : op.output.dims.back().size;
    bool rows = op.output.dims.size() > 1;
    if (!op.output.dims.empty() && op.output.dims.back().stride != op.output.item) {
      return false;
    }
    for (const auto& input : op.inputs) {
      if (input.access) {
        const auto& dims = input.access->dims;
        if (input.type != op.compute || (!dims.empty() && dims.back().stride != input.access->item)) {
          return false;
        }
        int64_t own = dims.empty() ? 1 : dims.back().size;
        rows |= own != inner;
        inner = std::min(inner, own);
      }
    }
    return op.type == op.compute && (!rows || inner % op.cut == 0);
  }

  // A number that the loop is made for, with a guard: an alpha of 1, an exponent.
  bool specialise(PointOp& op, uint32_t parameter, Type type, bool fixed, Argument& argument) const {
    if (numbers_.values == nullptr ||
        std::find(numbers_.varying.begin(), numbers_.varying.end(), parameter) != numbers_.varying.end()) {
      return false;
    }
    const Parameter& bytes = (*numbers_.values)[parameter];
    double number;
    if (type == Type::F64) {
      std::memcpy(&number, bytes.bytes.data(), sizeof number);
    } else if (type == Type::I64 || type == Type::Bool) {
      int64_t integer = 0;
      std::memcpy(&integer, bytes.bytes.data(), type == Type::I64 ? sizeof integer : 1);
      number = static_cast<double>(integer);
    } else {
      return false;
    }
    if (!fixed && number != 1) {
      return false;
    }
    op.guards.push_back({parameter, bytes});
    if (!fixed) {
      return true; // left out
    }
    if (number == std::floor(number) && std::abs(number) < 1e9) {
      argument.kind = Argument::Kind::Int;
      argument.number = static_cast<int64_t>(number);
    } else {
      std::ostringstream text;
      text << number;
      argument.kind = Argument::Kind::Text;
      argument.text = text.str();
    }
    return true;
  }

  // A number that belongs to the key takes part in the promotion (0.5 beside integers, 2 beside bools); a factor does not.
  static void promote_key(at::native::ResultTypeState& state, const ArgTraits& argument, const PointOp& op, c10::ScalarType own) {
    if (argument.kind == ArgKind::Scalar && !(op.lowering->unit >> op.arguments.size() & 1)) {
      combine(state.wrappedResult, own);
    }
  }

  static bool has_text(const PointOp& op) {
    return std::any_of(op.arguments.begin(), op.arguments.end(), [](const Argument& a) { return a.kind == Argument::Kind::Text; });
  }

  static bool read_attribute(const c10::IValue& iv, Argument& argument) {
    if (iv.isNone()) {
      return true;
    }
    if (iv.isString()) {
      argument.kind = Argument::Kind::Text;
      argument.text = iv.toStringRef();
      return true;
    }
    if (iv.isBool() || iv.isInt()) {
      argument.kind = Argument::Kind::Int;
      argument.number = iv.isBool() ? static_cast<int64_t>(iv.toBool()) : iv.toInt();
      return true;
    }
    if (iv.isDouble()) {
      const double number = iv.toDouble();
      std::ostringstream text;
      text << std::hexfloat << number;
      argument.kind = Argument::Kind::Text;
      argument.text = text.str();
      std::memcpy(&argument.number, &number, sizeof number);
      return true;
    }
    return false;
  }

  c10::IntArrayRef sizes(const Leaf& leaf) const {
    return {node_.words.data() + leaf.at, leaf.dim};
  }
  int64_t leaf_numel(const Leaf& leaf) const {
    int64_t n = 1;
    for (int64_t size : sizes(leaf)) {
      n *= size;
    }
    return n;
  }
  bool fits(const Leaf& leaf, c10::IntArrayRef shape) const {
    auto own = sizes(leaf);
    if (own.size() > shape.size()) {
      return false;
    }
    for (size_t i = 0; i < own.size(); ++i) {
      int64_t wanted = shape[shape.size() - own.size() + i];
      if (own[i] != wanted && own[i] != 1) {
        return false;
      }
    }
    return true;
  }
  Access access(const Leaf& leaf, c10::IntArrayRef shape) const {
    return make_access(leaf.slot, leaf_type(leaf), leaf.value, sizes(leaf), {node_.words.data() + leaf.at + leaf.dim, leaf.dim},
                       shape);
  }

  const Node& node_;
  const Numbers& numbers_;
};

// The instructions that oneDNN takes; none where it was told not to take all that there are.
codegen::Target::Onednn onednn_level() {
  using Onednn = codegen::Target::Onednn;
  if (!at::hasMKLDNN() || std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr || std::getenv("DNNL_MAX_CPU_ISA") != nullptr) {
    return Onednn::None;
  }
  const auto found = at::cpu::get_cpu_capabilities();
  const auto has = [&](std::initializer_list<const char*> names) {
    return std::all_of(names.begin(), names.end(), [&](const char* name) {
      auto entry = found.find(name);
      return entry != found.end() && entry->second.isBool() && entry->second.toBool();
    });
  };
  if (!has({"avx2", "fma3"})) {
    return Onednn::None;
  }
  if (!has({"avx512_f", "avx512_bw", "avx512_vl", "avx512_dq"})) {
    return Onednn::Avx2;
  }
  if (!has({"avx512_vnni", "avx512_bf16"})) {
    return Onednn::Avx512;
  }
  return has({"avx512_fp16"}) ? Onednn::Avx512Fp16 : Onednn::Avx512Bf16;
}

} // namespace

const codegen::Target& codegen_target() {
  static const codegen::Target target = [] {
    codegen::Target t;
#if defined(__x86_64__)
    std::string level = at::get_cpu_capability();
    t.level = level == "AVX512" ? codegen::Target::Level::Avx512
              : level == "AVX2" ? codegen::Target::Level::Avx2
                                : codegen::Target::Level::Generic;
#else
    t.level = codegen::Target::Level::Other;
#endif
    t.mkl = at::hasMKL();
    t.onednn = onednn_level();
    return t;
  }();
  return target;
}

std::optional<Type> codegen_type(c10::ScalarType type) {
  switch (type) {
    case c10::kBool:
      return Type::Bool;
    case c10::kByte:
      return Type::U8;
    case c10::kChar:
      return Type::I8;
    case c10::kShort:
      return Type::I16;
    case c10::kInt:
      return Type::I32;
    case c10::kLong:
      return Type::I64;
    case c10::kHalf:
      return Type::F16;
    case c10::kBFloat16:
      return Type::BF16;
    case c10::kFloat:
      return Type::F32;
    case c10::kDouble:
      return Type::F64;
    default:
      return std::nullopt;
  }
}

std::vector<PointOp> pointwise_ops(const Node& node, const Numbers& numbers) {
  return Reader(node, numbers).read();
}

} // namespace ae
