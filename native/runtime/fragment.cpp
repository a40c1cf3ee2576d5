#include "runtime/fragment.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <cstring>

#include "common/policy.h"
#include "device/device.h"
#include "device/runtime.h"
#include "ops/alias.h"
#include "ops/direct.h"
#include "recorder/spec.h"
#include "runtime/arena.h"

namespace ae {
namespace {

constexpr uint32_t kDefaultGenerator = ~0u;

bool bit(const std::vector<uint64_t>& bits, size_t i) {
  return bits[i >> 6] >> (i & 63) & 1;
}

} // namespace

Fragment::Fragment(const Node* end) {
  std::vector<const Node*> path(end->depth);
  for (const Node* n = end; n->depth > 0; n = n->parent) {
    path[n->depth - 1] = n;
  }

  for (uint32_t at = 0; at < path.size(); ++at) {
    const Node& node = *path[at];
    const OpTraits& traits = *node.traits;
    auto use = [&](uint32_t slot, SlotKind kind, size_t bytes) {
      if (slot >= slots_.size()) {
        slots_.resize(slot + 1);
        slots_[slot] = {kind, bytes, at, at};
      }
      slots_[slot].last = at;
    };
    for (const auto& leaf : node.leaves) {
      if (leaf.kind == LeafKind::Tensor) {
        use(leaf.slot, leaf.flags & kFresh ? SlotKind::Made : SlotKind::Input, static_cast<size_t>(leaf.bytes));
      }
    }
    for (const auto& output : node.outputs) {
      if (output.defined) {
        use(output.slot, traits.out ? SlotKind::Made : SlotKind::Returned, output.nbytes);
      }
    }
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    storages_.push_back(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), slots_[i].bytes,
                                                              c10::DataPtr(nullptr, c10::Device(c10::kCPU)), nullptr, false));
  }

  for (uint32_t at = 0; at < path.size(); ++at) {
    const Node& node = *path[at];
    const OpTraits& traits = *node.traits;
    Step step{&node, traits.out ? *traits.out : traits.op,    nullptr, {}, {}, {}, {}, {},
              {},    traits.random && !traits.random_argument};
    size_t next = 0;
    // One view given twice is one tensor, as where it came from: kernels compare identities.
    std::vector<std::pair<const Leaf*, at::Tensor>> views;
    auto operand = [&](const Leaf& leaf) {
      for (const auto& [other, tensor] : views) {
        if (views.size() <= 8 && other->slot == leaf.slot && other->dim == leaf.dim && other->value == leaf.value &&
            other->dtype == leaf.dtype && (other->flags & (kConj | kNeg)) == (leaf.flags & (kConj | kNeg)) &&
            std::equal(node.words.begin() + leaf.at, node.words.begin() + leaf.at + 2 * leaf.dim, node.words.begin() + other->at)) {
          return tensor;
        }
      }
      views.emplace_back(&leaf, this->operand(leaf, node));
      return views.back().second;
    };
    for (size_t i = 0; i < traits.args.size(); ++i) {
      const Leaf& leaf = node.leaves[next++];
      switch (leaf.kind) {
        case LeafKind::Tensor:
          step.arguments.emplace_back(operand(leaf));
          break;
        case LeafKind::HostNumber:
          step.arguments.emplace_back(host_number(leaf));
          break;
        case LeafKind::None:
          step.arguments.emplace_back(
              traits.args[i].kind == ArgKind::Tensor && !traits.optional_tensor(i) ? c10::IValue(at::Tensor()) : c10::IValue());
          break;
        case LeafKind::Number:
          step.patches.push_back({static_cast<uint16_t>(i), leaf.tag, false, leaf.at, 1});
          step.arguments.emplace_back();
          break;
        case LeafKind::Numbers:
          step.patches.push_back({static_cast<uint16_t>(i), leaf.tag, true, leaf.at, static_cast<uint32_t>(leaf.value)});
          step.arguments.emplace_back();
          break;
        case LeafKind::Int:
          step.arguments.emplace_back(leaf.tag ? c10::IValue(leaf.value != 0) : c10::IValue(leaf.value));
          break;
        case LeafKind::Attribute:
          step.arguments.push_back(node.attributes[i]);
          break;
        case LeafKind::Generator:
          step.generators.emplace_back(static_cast<uint16_t>(i), leaf.value ? leaf.at : kDefaultGenerator);
          step.arguments.emplace_back();
          break;
        case LeafKind::List: {
          c10::impl::GenericList list(traits.list_element(i));
          list.reserve(static_cast<size_t>(leaf.value));
          for (int64_t k = 0; k < leaf.value; ++k) {
            const Leaf& element = node.leaves[next++];
            if (element.kind == LeafKind::Tensor) {
              list.push_back(operand(element));
            } else if (element.kind == LeafKind::HostNumber) {
              list.push_back(host_number(element));
            } else {
              list.push_back(traits.optional_tensor(i) ? c10::IValue() : c10::IValue(at::Tensor()));
            }
          }
          step.arguments.emplace_back(std::move(list));
          break;
        }
      }
    }
    for (const auto& output : node.outputs) {
      if (traits.out) {
        auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(storages_[output.slot]), kCpuKeys, output.dtype);
        impl->set_sizes_and_strides(output.sizes, output.strides, output.offset);
        step.arguments.emplace_back(at::Tensor(std::move(impl)));
      } else {
        step.returned.push_back({output.slot, &output});
      }
    }
    if (step.returned.empty()) {
      step.replay = find_replay(step.callee);
    }
    steps_.push_back(std::move(step));
  }
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].kind == SlotKind::Returned) {
      steps_[slots_[slot].last].last_uses.push_back(slot);
    } else if (slots_[slot].kind == SlotKind::Made) {
      steps_[slots_[slot].first].begins.push_back(slot);
    }
  }
  mask_.resize((slots_.size() + 63) / 64);
  held_.resize(slots_.size());
}

at::Tensor Fragment::host_number(const Leaf& leaf) {
  auto number =
      at::detail::empty_cpu({}, static_cast<at::ScalarType>(leaf.dtype), std::nullopt, std::nullopt, std::nullopt, std::nullopt);
  if (leaf.flags & kWrapped) {
    number.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  host_numbers_.emplace_back(leaf.at, number.mutable_data_ptr());
  host_sizes_.push_back(static_cast<uint8_t>(number.element_size()));
  return number;
}

at::Tensor Fragment::operand(const Leaf& leaf, const Node& node) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(storages_[leaf.slot]), kCpuKeys,
                                                   c10::scalarTypeToTypeMeta(static_cast<at::ScalarType>(leaf.dtype)));
  const int64_t* words = node.words.data() + leaf.at;
  impl->set_sizes_and_strides({words, leaf.dim}, {words + leaf.dim, leaf.dim}, leaf.value);
  if (leaf.flags & kConj) {
    impl->_set_conj(true);
  }
  if (leaf.flags & kNeg) {
    impl->_set_neg(true);
  }
  if (leaf.flags & kWrapped) {
    impl->set_wrapped_number(true);
  }
  return at::Tensor(std::move(impl));
}

const Variant& Fragment::variant(const Region& region) {
  std::fill(mask_.begin(), mask_.end(), 0);
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].kind != SlotKind::Input && region.slots[i].storage.use_count() > 1) {
      mask_[i >> 6] |= uint64_t(1) << (i & 63);
    }
  }
  for (auto& v : variants_) {
    if (v->live == mask_) {
      v->used = region.epoch;
      return *v;
    }
  }
  auto made = std::make_unique<Variant>();
  made->live = mask_;
  made->used = region.epoch;
  made->arena_offset.assign(slots_.size(), -1);

  // Backwards: a pure op whose results neither live on nor feed a step that runs is left out.
  made->skipped.assign(steps_.size(), false);
  std::vector<bool> needed(slots_.size(), false);
  for (size_t i = 0; i < slots_.size(); ++i) {
    needed[i] = slots_[i].kind == SlotKind::Input || bit(mask_, i);
  }
  for (size_t at = steps_.size(); at-- > 0;) {
    const Node& node = *steps_[at].node;
    if (node.traits->pure) {
      bool wanted = false;
      for (const auto& output : node.outputs) {
        wanted |= output.defined && needed[output.slot];
      }
      if (!wanted) {
        made->skipped[at] = true;
        continue;
      }
    }
    for (const auto& leaf : node.leaves) {
      if (leaf.kind == LeafKind::Tensor) {
        needed[leaf.slot] = true;
      }
    }
  }
  std::vector<ArenaRequest> requests;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].kind == SlotKind::Made && !bit(mask_, i)) {
      requests.push_back({i, slots_[i].bytes, slots_[i].first, slots_[i].last});
    }
  }
  made->arena_bytes = lay_out(requests, made->arena_offset);

  if (variants_.size() >= static_cast<size_t>(policy(Policy::MaxVariants))) {
    auto oldest = std::min_element(variants_.begin(), variants_.end(), [](auto& a, auto& b) { return a->used < b->used; });
    variants_.erase(oldest);
  }
  variants_.push_back(std::move(made));
  return *variants_.back();
}

void Fragment::take_result(const Returned& returned, const at::Tensor& result, std::vector<at::Tensor>& held) {
  const Output& output = *returned.output;
  if (!output.defined) {
    return;
  }
  TORCH_CHECK(result.defined() && result.sizes() == output.sizes && result.dtype() == output.dtype, "returned a tensor of shape ",
              result.defined() ? result.sizes() : c10::IntArrayRef{}, " where ", c10::IntArrayRef(output.sizes),
              " was expected from earlier calls with the same arguments");
  at::Tensor fitting = result;
  if (C10_UNLIKELY(result.strides() != output.strides || result.storage_offset() != output.offset ||
                   result.storage().nbytes() < output.nbytes)) {
    auto block = allocate_block(output.nbytes);
    block.unsafe_set_device(c10::Device(c10::kCPU));
    auto storage =
        c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), output.nbytes, std::move(block), nullptr, false);
    auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(storage)), kCpuKeys, output.dtype);
    impl->set_sizes_and_strides(output.sizes, output.strides, output.offset);
    fitting = at::Tensor(std::move(impl));
    fitting.copy_(result);
  }
  void* data = const_cast<void*>(fitting.storage().data());
  storages_[returned.slot]->set_data_ptr_noswap(c10::DataPtr(data, c10::Device(c10::kCPU)));
  held[returned.slot] = std::move(fitting);
}

void Fragment::run(Step& step, Region& region, std::vector<at::Tensor>& held) {
  for (const auto& patch : step.patches) {
    auto& argument = step.arguments[patch.argument];
    if (!patch.list) {
      argument = number_value(patch.tag, region.parameters[patch.parameter]);
    } else if (step.node->traits->float_list(patch.argument)) {
      c10::List<double> list;
      for (uint32_t i = 0; i < patch.count; ++i) {
        list.push_back(number_value(patch.tag, region.parameters[patch.parameter + i]).toDouble());
      }
      argument = std::move(list);
    } else {
      c10::List<c10::Scalar> list;
      list.reserve(patch.count);
      for (uint32_t i = 0; i < patch.count; ++i) {
        list.push_back(number_value(patch.tag, region.parameters[patch.parameter + i]).toScalar());
      }
      argument = c10::IValue(std::move(list));
    }
  }
  for (const auto& [argument, index] : step.generators) {
    step.arguments[argument] = cpu_generator_of(index == kDefaultGenerator ? at::Generator() : region.generators[index]);
  }
  if (C10_LIKELY(step.replay != nullptr)) {
    return step.replay(step.arguments.data());
  }
  stack_.clear();
  stack_.insert(stack_.end(), step.arguments.begin(), step.arguments.end());
  if (C10_UNLIKELY(step.swap_generator)) {
    DefaultGeneratorSwap swap;
    step.callee.redispatchBoxed(kCpuKeys, &stack_);
  } else {
    step.callee.redispatchBoxed(kCpuKeys, &stack_);
  }
  if (!step.returned.empty()) {
    size_t next = 0;
    for (auto& iv : stack_) {
      if (next == step.returned.size()) {
        break;
      }
      if (iv.isTensor()) {
        take_result(step.returned[next++], iv.toTensor(), held);
      } else if (iv.isTensorList()) {
        for (const c10::IValue& element : iv.toListRef()) {
          take_result(step.returned[next++], element.toTensor(), held);
        }
      }
      iv = c10::IValue();
    }
    // The stack's references are gone: memory of results that outlive the launch moves to their storages.
    for (const auto& returned : step.returned) {
      if (returned.output->defined && bit(mask_, returned.slot)) {
        auto& target = *region.slots[returned.slot].storage;
        auto nbytes = target.nbytes();
        c10::Storage storage = held[returned.slot].storage();
        held[returned.slot].reset();
        adopt_memory(storage, target);
        target.set_nbytes(nbytes);
      }
    }
  }
}

// Pointers of what is there before the first step, and numbers.
void Fragment::set_up(const Variant& variant, std::byte* arena, Region& region) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    auto& cpu = *storages_[i];
    if (slots_[i].kind == SlotKind::Input) {
      auto& storage = *region.slots[i].storage;
      if (C10_UNLIKELY(storage.data() == nullptr)) {
        materialize(storage);
      }
      cpu.set_nbytes(storage.nbytes());
      cpu.set_data_ptr_noswap(c10::DataPtr(const_cast<void*>(storage.data()), c10::Device(c10::kCPU)));
    } else if (variant.arena_offset[i] >= 0) {
      cpu.set_data_ptr_noswap(c10::DataPtr(arena + variant.arena_offset[i], c10::Device(c10::kCPU)));
    }
  }
  for (size_t i = 0; i < host_numbers_.size(); ++i) {
    std::memcpy(host_numbers_[i].second, region.parameters[host_numbers_[i].first].bytes.data(), host_sizes_[i]);
  }
}

// Memory for storages that outlive the launch is allocated when the first op writes them, so that running out of it
// harms nothing that came before.
void Fragment::begin(const Step& step, const Variant& variant, Region& region) {
  for (uint32_t slot : step.begins) {
    if (variant.arena_offset[slot] < 0) {
      auto& storage = *region.slots[slot].storage;
      if (storage.data() == nullptr) {
        materialize(storage);
      }
      storages_[slot]->set_data_ptr_noswap(c10::DataPtr(const_cast<void*>(storage.data()), c10::Device(c10::kCPU)));
    }
  }
}

bool Fragment::tainted(const Step& step) const {
  for (const auto& leaf : step.node->leaves) {
    if (leaf.kind == LeafKind::Tensor && tainted_[leaf.slot]) {
      return true;
    }
  }
  return false;
}

void Fragment::taint(const Step& step, Region& region, const std::shared_ptr<const Fault>& fault) {
  tainted_.resize(slots_.size());
  auto mark = [&](uint32_t slot) {
    tainted_[slot] = true;
    region.slots[slot].storage->fault = fault;
  };
  for (const auto& leaf : step.node->leaves) {
    if (leaf.kind == LeafKind::Tensor && leaf.flags & kWritten) {
      mark(leaf.slot);
    }
  }
  for (const auto& output : step.node->outputs) {
    if (output.defined) {
      mark(output.slot);
    }
  }
}

std::shared_ptr<const Fault> Fragment::launch(Region& region) {
  NoFlushScope no_flush;
  std::shared_ptr<const Fault> fault;
  c10::DataPtr arena;
  const Variant* chosen = nullptr;
  try {
    chosen = &variant(region);
    arena = borrow_arena(chosen->arena_bytes);
    set_up(*chosen, static_cast<std::byte*>(arena.get()), region);
  } catch (const std::exception& error) {
    fault = std::make_shared<const Fault>("launch", error);
    for (const auto& step : steps_) {
      taint(step, region, fault);
    }
    tainted_.clear();
    return fault;
  }
  {
    BelowEverything below;
    for (size_t at = 0; at < steps_.size(); ++at) {
      auto& step = steps_[at];
      if (chosen->skipped[at]) {
        continue;
      }
      if (C10_UNLIKELY(!tainted_.empty() && tainted(step))) {
        taint(step, region, fault);
        continue;
      }
      try {
        begin(step, *chosen, region);
        run(step, region, held_);
      } catch (const std::exception& error) {
        auto failed = std::make_shared<const Fault>(step.node->traits->name.c_str(), error);
        taint(step, region, failed);
        if (!fault) {
          fault = std::move(failed);
        }
      }
      for (uint32_t slot : step.last_uses) {
        held_[slot].reset();
      }
    }
  }
  for (auto& held : held_) {
    if (held.defined()) {
      held.reset();
    }
  }
  tainted_.clear();
  stack_.clear();
  return_arena(std::move(arena));
  return fault;
}

} // namespace ae
