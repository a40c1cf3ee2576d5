#include "recorder/value_check.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/any.h>
#include <ATen/ops/eq.h>

#include <limits>

#include "common/policy.h"
#include "ops/alias.h"
#include "ops/direct.h"
#include "recorder/recorder.h"

namespace ae {
namespace {

using at::Tensor;

template <class T>
Bounds scan(const T* data, int64_t count) {
  T low = data[0], high = data[0];
  for (int64_t i = 1; i < count; ++i) {
    low = std::min(low, data[i]);
    high = std::max(high, data[i]);
  }
  return {static_cast<int64_t>(low), static_cast<int64_t>(high)};
}

const NeuronStorage* storage_of(const Tensor& t) {
  return on_neuron(t) && t.has_storage() ? as_neuron(t.storage()) : nullptr;
}

const NeuronStorage* pending_storage(const Tensor& t, const Region& region) {
  const auto* storage = storage_of(t);
  return storage && region.touches(*storage) ? storage : nullptr;
}

// Before the memory is read.
void finish(const Tensor& t) {
  const auto* storage = storage_of(t);
  if (storage != nullptr && storage->written_in_flight > 0) {
    wait_for_device();
  }
}

// The bounds of an index tensor's values, if they can be known now. `wait`: for what is in flight.
std::optional<Bounds> bounds_of(const Tensor& t, const Region& region, int64_t most, bool wait) {
  if (t.numel() == 0) {
    return Bounds{};
  }
  const auto* known = storage_of(t);
  if (known != nullptr && known->written_in_flight > 0 && !(region.touches(*known) && region.slots[known->slot].written)) {
    if (known->low <= known->high && known->type == t.scalar_type()) {
      return Bounds{known->low, known->high};
    }
    if (!wait) {
      return std::nullopt;
    }
    wait_for_device();
  }
  if (const auto* storage = pending_storage(t, region)) {
    const auto& slot = region.slots[storage->slot];
    if (slot.low <= slot.high && slot.type == t.scalar_type()) {
      return Bounds{slot.low, slot.high};
    }
    if (!slot.written) {
      // Only read so far: what the memory holds is what the op will see.
      if (storage->data() == nullptr) {
        return std::nullopt;
      }
    } else {
      return std::nullopt;
    }
  }
  if (t.numel() > most) {
    return std::nullopt;
  }
  Tensor values = cpu_alias(t);
  if (values.is_contiguous()) {
    if (values.scalar_type() == at::kLong) {
      return scan(values.const_data_ptr<int64_t>(), values.numel());
    }
    if (values.scalar_type() == at::kInt) {
      return scan(values.const_data_ptr<int32_t>(), values.numel());
    }
  }
  if (!at::isIntegralType(values.scalar_type(), false)) {
    return std::nullopt;
  }
  BelowEverything below;
  auto [low, high] = at::aminmax(values);
  return Bounds{low.item<int64_t>(), high.item<int64_t>()};
}

std::optional<Bounds> bounds_of(const Tensor& t, const Region& region) {
  return bounds_of(t, region, policy(Policy::MaxCheckedElements), true);
}

Verdict within(const std::optional<Bounds>& bounds, int64_t low, int64_t high) {
  if (!bounds) {
    return Verdict::Unknown;
  }
  if (bounds->low > bounds->high) {
    return Verdict::Good;
  }
  return bounds->low >= low && bounds->high < high ? Verdict::Good : Verdict::Bad;
}

Verdict index_in_range(const OpTraits& traits, const c10::IValue* args, const Region& region) {
  const auto& index = args[traits.check_argument];
  if (!index.isTensor() || !index.toTensor().defined()) {
    return Verdict::Bad; // let the op say what is wrong
  }
  const Tensor& self = args[0].toTensor();
  int64_t size;
  const auto& second = args[1];
  if (traits.name.rfind("aten::embedding_dense_backward", 0) == 0) {
    size = args[2].toInt();
  } else if (traits.check_argument == 1) {
    size = self.numel();
  } else {
    if (!second.isInt()) {
      return Verdict::Bad;
    }
    int64_t dim = second.toInt();
    int64_t rank = std::max<int64_t>(self.dim(), 1);
    if (dim < -rank || dim >= rank) {
      return Verdict::Bad;
    }
    size = self.dim() == 0 ? 1 : self.size(dim);
  }
  return within(bounds_of(index.toTensor(), region), 0, size);
}

Verdict index_lists(const OpTraits& traits, const c10::IValue* args, const Region& region) {
  const Tensor& self = args[0].toTensor();
  int64_t dim = 0;
  for (const c10::IValue& element : args[traits.check_argument].toListRef()) {
    if (!element.isTensor() || !element.toTensor().defined()) {
      ++dim;
      continue;
    }
    const Tensor& index = element.toTensor();
    if (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte) {
      return Verdict::DynamicShape;
    }
    if (dim >= self.dim()) {
      return Verdict::Bad;
    }
    int64_t size = self.size(dim);
    auto verdict = within(bounds_of(index, region), -size, size);
    if (verdict != Verdict::Good) {
      return verdict;
    }
    ++dim;
  }
  return Verdict::Good;
}

Verdict target_in_range(const OpTraits& traits, const c10::IValue* args, const Region& region) {
  bool backward = traits.check_argument == 2;
  const Tensor& input = args[(backward ? 1 : 0)].toTensor();
  const Tensor& target = args[traits.check_argument].toTensor();
  int64_t ignore = args[traits.check_argument + 3].isInt() ? args[traits.check_argument + 3].toInt() : -100;
  if (input.dim() == 0) {
    return Verdict::Bad;
  }
  int64_t classes = input.size(input.dim() == 1 ? 0 : 1);
  auto bounds = bounds_of(target, region);
  auto verdict = within(bounds, 0, classes);
  if (verdict != Verdict::Bad || pending_storage(target, region) != nullptr) {
    return verdict == Verdict::Bad ? Verdict::Unknown : verdict;
  }
  // Outside values may all be ignore_index.
  finish(target);
  Tensor values = cpu_alias(target);
  if (!at::isIntegralType(values.scalar_type(), false)) {
    return Verdict::Bad;
  }
  BelowEverything below;
  auto fine = values.ge(0).logical_and_(values.lt(classes)).logical_or_(values.eq(ignore));
  return fine.all().item<bool>() ? Verdict::Good : Verdict::Bad;
}

// A zero among the divisors, where division is integer division. True division of integers is done in floats.
Verdict integer_divisor(const OpTraits& traits, const c10::IValue* args, const Region& region) {
  if (traits.name.find("div") != std::string::npos && traits.name.find("floor_divide") == std::string::npos) {
    bool rounded = false;
    for (size_t i = 2; i < traits.args.size(); ++i) {
      rounded |= args[i].isString();
    }
    if (!rounded) {
      return Verdict::Good;
    }
  }
  const auto& left = args[0];
  const auto& right = args[1];
  if (left.isList()) {
    return Verdict::Unknown;
  }
  if (left.isTensor() ? !at::isIntegralType(left.toTensor().scalar_type(), true) : !left.isInt() && !left.isBool()) {
    return Verdict::Good;
  }
  if (right.isInt() || right.isBool()) {
    return right.isInt() && right.toInt() == 0 ? Verdict::Bad : Verdict::Good;
  }
  if (!right.isTensor() || !at::isIntegralType(right.toTensor().scalar_type(), true)) {
    return Verdict::Good;
  }
  const Tensor& divisor = right.toTensor();
  finish(divisor);
  if (divisor.numel() == 0) {
    return Verdict::Good;
  }
  if (const auto* storage = pending_storage(divisor, region)) {
    if (region.slots[storage->slot].written || storage->data() == nullptr) {
      return Verdict::Unknown;
    }
  }
  if (divisor.numel() > policy(Policy::MaxCheckedElements)) {
    return Verdict::Unknown;
  }
  Tensor values = cpu_alias(divisor);
  BelowEverything below;
  return values.eq(0).any().item<bool>() ? Verdict::Bad : Verdict::Good;
}

} // namespace

std::optional<Bounds> known_bounds(const c10::IValue& tensors, const Region& region) {
  constexpr int64_t most = 1 << 16; // beyond this the look would cost more than the launch that it saves
  if (tensors.isTensor()) {
    return bounds_of(tensors.toTensor(), region, most, false);
  }
  Bounds all{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  for (const c10::IValue& element : tensors.toListRef()) {
    auto some = bounds_of(element.toTensor(), region, most, false);
    if (!some) {
      return std::nullopt;
    }
    if (some->low <= some->high) {
      all.low = std::min(all.low, some->low);
      all.high = std::max(all.high, some->high);
    }
  }
  return all;
}

Verdict check_values(const OpTraits& traits, const c10::IValue* args, const Region& region) {
  switch (*traits.check) {
    case Rule::IndexInRange:
      return index_in_range(traits, args, region);
    case Rule::IndexLists:
      return index_lists(traits, args, region);
    case Rule::TargetInRange:
      return target_in_range(traits, args, region);
    default:
      return integer_divisor(traits, args, region);
  }
}

} // namespace ae
