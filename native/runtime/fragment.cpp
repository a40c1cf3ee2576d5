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
#include "runtime/stats.h"

namespace ae {
namespace {

using Origin = PlanInput::Slot::Origin;

constexpr uint32_t kDefaultGenerator = ~0u;

bool bit(const std::vector<uint64_t>& bits, size_t i) {
  return bits[i >> 6] >> (i & 63) & 1;
}

} // namespace

std::atomic<bool> bench_execution{true};

Fragment::Fragment(const Node* end) {
  std::vector<const Node*> path(end->depth);
  for (const Node* n = end; n->depth > 0; n = n->parent) {
    path[n->depth - 1] = n;
  }

  for (uint32_t at = 0; at < path.size(); ++at) {
    const Node& node = *path[at];
    const OpTraits& traits = *node.traits;
    auto use = [&](uint32_t slot, Origin origin, size_t bytes) {
      if (slot >= slots_.size()) {
        slots_.resize(slot + 1);
        slots_[slot] = {origin, bytes};
      }
    };
    for (const auto& leaf : node.leaves) {
      if (leaf.kind == LeafKind::Tensor) {
        use(leaf.slot, leaf.flags & kFresh ? Origin::Made : Origin::Outside, static_cast<size_t>(leaf.bytes));
      }
    }
    for (const auto& output : node.outputs) {
      if (output.defined) {
        use(output.slot, traits.out ? Origin::Made : Origin::Kernel, output.nbytes);
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
    Step step{&node, traits.out ? *traits.out : traits.op,    nullptr, {}, nullptr, false, {}, {},
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
      auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(storages_[output.slot]), kCpuKeys, output.dtype);
      impl->set_sizes_and_strides(output.sizes, output.strides, output.offset);
      step.arguments.emplace_back(output.defined ? at::Tensor(std::move(impl)) : at::Tensor());
    }
    step.quick = make_quick(traits, step.arguments.data(), step.arguments.size());
    step.copied = step.quick && !traits.out;
    if (!step.quick && !traits.out) {
      step.arguments.resize(traits.args.size());
    }
    for (const auto& output : node.outputs) {
      if (step.copied) {
        slots_[output.slot].origin = Origin::Made;
      } else if (!traits.out) {
        step.returned.push_back({output.slot, &output});
      }
    }
    if (step.returned.empty() && !step.copied) {
      step.replay = find_replay(step.callee);
    }
    steps_.push_back(std::move(step));
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

const std::vector<uint64_t>& Fragment::live(const Region& region) {
  std::fill(mask_.begin(), mask_.end(), 0);
  for (size_t i = 0; i < slots_.size(); ++i) {
    const auto& storage = region.slots[i].storage;
    if (slots_[i].origin != Origin::Outside && storage.use_count() > 1 + storage->in_flight) {
      mask_[i >> 6] |= uint64_t(1) << (i & 63);
    }
  }
  return mask_;
}

Variant* Fragment::find(const Region& region, bool& ready) {
  live(region);
  ready = true;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const auto& storage = *region.slots[i].storage;
    ready &= slots_[i].origin != Origin::Outside || storage.in_flight > 0 || storage.data() != nullptr;
  }
  for (auto& v : variants_) {
    if (v->live == mask_) {
      v->used = region.epoch;
      return v.get();
    }
  }
  return nullptr;
}

Variant& Fragment::add(const std::vector<uint64_t>& live, uint64_t epoch) {
  auto made = std::make_unique<Variant>();
  made->live = live;
  made->used = epoch;
  for (size_t i = 0; i < slots_.size(); ++i) {
    made->input.slots.push_back({slots_[i].origin, bit(live, i), slots_[i].bytes});
  }
  for (const auto& step : steps_) {
    made->input.steps.push_back(step.node);
  }

  // Backwards: a pure op whose results neither live on nor feed a step that runs is left out.
  made->input.skipped.assign(steps_.size(), false);
  std::vector<bool> needed(slots_.size(), false);
  for (size_t i = 0; i < slots_.size(); ++i) {
    needed[i] = slots_[i].origin == Origin::Outside || bit(live, i);
  }
  for (size_t at = steps_.size(); at-- > 0;) {
    const Node& node = *steps_[at].node;
    if (node.traits->pure) {
      bool wanted = false;
      for (const auto& output : node.outputs) {
        wanted |= output.defined && needed[output.slot];
      }
      if (!wanted) {
        made->input.skipped[at] = true;
        continue;
      }
    }
    for (const auto& leaf : node.leaves) {
      if (leaf.kind == LeafKind::Tensor) {
        needed[leaf.slot] = true;
      }
    }
  }
  made->plain = plan_steps(made->input);

  if (variants_.size() >= static_cast<size_t>(policy(Policy::MaxVariants))) {
    auto oldest = std::min_element(variants_.begin(), variants_.end(), [](auto& a, auto& b) { return a->used < b->used; });
    variants_.erase(oldest);
  }
  variants_.push_back(std::move(made));
  return *variants_.back();
}

const Variant* Fragment::latest() const {
  auto newest = std::max_element(variants_.begin(), variants_.end(), [](auto& a, auto& b) { return a->used < b->used; });
  return newest == variants_.end() ? nullptr : newest->get();
}

void Fragment::take_result(const Returned& returned, const at::Tensor& result) {
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
  const void* data = fitting.storage().data();
  point(returned.slot, data);
  held_[returned.slot] = std::move(fitting);
}

void Fragment::patch(const Step& step, std::vector<c10::IValue>& arguments, const Region& region) {
  for (const auto& patch : step.patches) {
    auto& argument = arguments[patch.argument];
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
}

void Fragment::run(Step& step, Region& region) {
  patch(step, step.arguments, region);
  if (step.quick == nullptr) {
    return run_kernel(step, region);
  }
  if (C10_UNLIKELY(!step.quick->proven && !step.quick->seen)) {
    step.quick->seen = true;
    run_kernel(step, region);
  } else if (C10_UNLIKELY(!step.quick->proven)) {
    std::optional<QuickTrial> trial;
    try {
      trial.emplace(*step.quick);
    } catch (const std::bad_alloc&) { // another time
    }
    run_kernel(step, region);
    if (trial && !trial->passes()) {
      step.quick.reset();
      bump(counters.kernels_refused);
    }
  } else if (!step.quick->run()) {
    run_kernel(step, region);
  }
}

void Fragment::run_kernel(Step& step, Region& region) {
  for (const auto& [argument, index] : step.generators) {
    step.arguments[argument] = cpu_generator_of(index == kDefaultGenerator ? at::Generator() : region.generators[index]);
  }
  if (C10_LIKELY(step.replay != nullptr)) {
    return step.replay(step.arguments.data());
  }
  stack_.clear();
  stack_.insert(stack_.end(), step.arguments.begin(), step.arguments.end() - (step.copied ? step.node->outputs.size() : 0));
  if (C10_UNLIKELY(step.swap_generator)) {
    DefaultGeneratorSwap swap;
    step.callee.redispatchBoxed(kCpuKeys, &stack_);
  } else {
    step.callee.redispatchBoxed(kCpuKeys, &stack_);
  }
  if (step.copied) {
    return copy_results(step);
  }
  if (!step.returned.empty()) {
    size_t next = 0;
    for (auto& iv : stack_) {
      if (next == step.returned.size()) {
        break;
      }
      if (iv.isTensor()) {
        take_result(step.returned[next++], iv.toTensor());
      } else if (iv.isTensorList()) {
        for (const c10::IValue& element : iv.toListRef()) {
          take_result(step.returned[next++], element.toTensor());
        }
      }
      iv = c10::IValue();
    }
    // The stack's references are gone: memory of results that outlive the launch moves to their storages.
    for (const auto& returned : step.returned) {
      if (returned.output->defined && bit(running_->live, returned.slot)) {
        auto& target = *region.slots[returned.slot].storage;
        auto nbytes = target.nbytes();
        c10::Storage storage = held_[returned.slot].storage();
        held_[returned.slot].reset();
        adopt_memory(storage, target);
        target.set_nbytes(nbytes);
      }
    }
  }
}

void Fragment::copy_results(const Step& step) {
  for (size_t i = 0; i < step.node->outputs.size(); ++i) {
    const at::Tensor& target = step.arguments[step.node->traits->args.size() + i].toTensor();
    const at::Tensor& result = stack_[i].toTensor();
    TORCH_CHECK(result.sizes() == target.sizes() && result.dtype() == target.dtype(), "returned a tensor of shape ", result.sizes(),
                " where ", target.sizes(), " was expected from earlier calls with the same arguments");
    target.copy_(result);
  }
  stack_.clear();
}

void Fragment::point(uint32_t slot, const void* data) {
  storages_[slot]->set_data_ptr_noswap(c10::DataPtr(const_cast<void*>(data), c10::Device(c10::kCPU)));
}

std::byte* Fragment::address(const Loop::Operand& operand, Region& region) const {
  return operand.number ? region.parameters[operand.index].bytes.data()
                        : static_cast<std::byte*>(const_cast<void*>(storages_[operand.index]->data())) + operand.begin;
}

// Pointers of what is there before the first step, and numbers. What an op that failed in flight left out taints.
void Fragment::set_up(const Plan& plan, Region& region, std::shared_ptr<const Fault>& fault) {
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].origin == Origin::Outside) {
      if (const auto& failed = region.slots[slot].storage->fault; C10_UNLIKELY(failed != nullptr)) {
        tainted_.resize(slots_.size());
        tainted_[slot] = true;
        fault = fault ? fault : failed;
        continue; // nothing will touch it
      }
      begin(slot, region);
      storages_[slot]->set_nbytes(region.slots[slot].storage->nbytes());
    } else if (plan.arena_offset[slot] >= 0 && has_arena_) {
      point(slot, arena_ + plan.arena_offset[slot]);
    }
  }
  for (size_t i = 0; i < host_numbers_.size(); ++i) {
    std::memcpy(host_numbers_[i].second, region.parameters[host_numbers_[i].first].bytes.data(), host_sizes_[i]);
  }
}

// Gives the storage memory if it has none. Storages that outlive the launch get it when their first unit runs, so that
// running out of it harms nothing that came before.
void Fragment::begin(uint32_t slot, Region& region) {
  auto& storage = *region.slots[slot].storage;
  if (C10_UNLIKELY(storage.data() == nullptr)) {
    allocate_memory(storage);
  }
  point(slot, storage.data());
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

std::shared_ptr<const Fault> Fragment::launch(Region& region, Variant& variant) {
  NoFlushScope no_flush;
  std::shared_ptr<const Fault> fault;
  c10::DataPtr arena;
  Plan* plan = nullptr;
  running_ = &variant;
  uint64_t start = now_ns();
  try {
    plan = &variant.choose(region.parameters);
    try {
      arena = borrow_arena(plan->arena_bytes);
      has_arena_ = true;
    } catch (const c10::OutOfMemoryError&) {
      has_arena_ = false;
    }
    arena_ = static_cast<std::byte*>(arena.get());
    set_up(*plan, region, fault);
  } catch (const std::exception& error) {
    fault = std::make_shared<const Fault>("launch", error);
    for (const auto& step : steps_) {
      taint(step, region, fault);
    }
    tainted_.clear();
    return_arena(std::move(arena));
    return fault;
  }
  {
    BelowEverything below;
    auto tiles = plan->tiles.begin();
    for (uint32_t u = 0; u < plan->units.size();) {
      if (C10_UNLIKELY(!bench_execution.load(std::memory_order_relaxed))) {
        break;
      }
      uint32_t end = u + 1;
      if (tiles != plan->tiles.end() && tiles->first == u) {
        end = u + tiles->count;
        run_tiles(*tiles++, *plan, region, fault);
      } else {
        run_unit(plan->units[u], *plan, region, fault);
      }
      for (; u < end; ++u) {
        for (uint32_t slot : plan->units[u].last_uses) {
          held_[slot].reset();
        }
      }
    }
  }
  for (auto& held : held_) {
    if (held.defined()) {
      held.reset();
    }
  }
  tainted_.clear();
  extra_.clear();
  stack_.clear();
  return_arena(std::move(arena));
  variant.observe(*plan, now_ns() - start);
  return fault;
}

// The steps failed with `error`: what they should have written is marked.
void Fragment::fail(c10::ArrayRef<uint32_t> steps, const std::exception& error, Region& region,
                    std::shared_ptr<const Fault>& fault) {
  auto failed = std::make_shared<const Fault>(steps_[steps[0]].node->traits->name.c_str(), error);
  for (uint32_t step : steps) {
    taint(steps_[step], region, failed);
  }
  if (!fault) {
    fault = std::move(failed);
  }
}

// A loop that finds no memory runs as the steps that it stands for, each of which may find some or fail alone: memory of
// the device is all that it asks for, before it writes anything.
void Fragment::run_unit(Plan::Unit& unit, const Plan& plan, Region& region, std::shared_ptr<const Fault>& fault) {
  if (unit.loops.empty() || C10_UNLIKELY(!tainted_.empty() || !has_arena_)) {
    return run_steps(unit, plan, region, fault);
  }
  try {
    if (C10_UNLIKELY(!unit.compared)) {
      return compare_unit(unit, plan, region, fault);
    }
    for (uint32_t slot : unit.begins) {
      begin(slot, region);
    }
    run_loops(unit, region);
  } catch (const c10::OutOfMemoryError&) {
    run_steps(unit, plan, region, fault);
  } catch (const std::exception& error) {
    fail(unit.steps, error, region, fault);
  }
}

// Memory for a step of a unit that was to run as loops, or without an arena: also what the plan does not provide.
void Fragment::provide(const Step& step, const Plan& plan, Region& region) {
  extra_.resize(slots_.size());
  step.node->each_slot([&](uint32_t slot) {
    if (slots_[slot].origin != Origin::Made) {
      return;
    }
    if (plan.memory[slot] == Plan::Memory::Own) {
      begin(slot, region);
    } else if ((plan.memory[slot] == Plan::Memory::None || !has_arena_) && !extra_[slot]) {
      extra_[slot] = allocate_block(slots_[slot].bytes);
      point(slot, extra_[slot].get());
    }
  });
}

void Fragment::run_steps(const Plan::Unit& unit, const Plan& plan, Region& region, std::shared_ptr<const Fault>& fault) {
  bool planned = unit.loops.empty() && has_arena_;
  std::vector<uint32_t> last; // step, by slot
  if (C10_UNLIKELY(!planned)) {
    last.resize(slots_.size());
    for (uint32_t at : unit.steps) {
      steps_[at].node->each_slot([&](uint32_t slot) { last[slot] = at; });
    }
  }
  for (uint32_t at : unit.steps) {
    auto& step = steps_[at];
    if (C10_UNLIKELY(!tainted_.empty() && tainted(step))) {
      taint(step, region, fault);
      continue;
    }
    try {
      if (C10_LIKELY(planned)) {
        for (uint32_t slot : unit.begins) {
          if (slots_[slot].origin == Origin::Made) {
            begin(slot, region);
          }
        }
      } else {
        provide(step, plan, region);
      }
      run(step, region);
    } catch (const std::exception& error) {
      fail(at, error, region, fault);
    }
    if (C10_UNLIKELY(!planned && !extra_.empty())) { // what only this unit touches is given back as soon as it can be
      step.node->each_slot([&](uint32_t slot) {
        if (last[slot] == at && plan.memory[slot] == Plan::Memory::None) {
          extra_[slot].clear();
        }
      });
    }
  }
  if (has_arena_) {
    extra_.clear();
  }
}

void Fragment::run_loops(const Plan::Unit& unit, Region& region) {
  for (const auto& loop : unit.loops) {
    void* addresses[kMaxLoopOperands];
    for (size_t i = 0; i < loop.operands.size(); ++i) {
      addresses[i] = address(loop.operands[i], region);
    }
    run_loop(loop, addresses);
  }
}

// The first time: the loops write to memory of their own, the steps run as they are, and what both wrote is compared.
// Throws, having done nothing, if there is no memory for both.
void Fragment::compare_unit(Plan::Unit& unit, const Plan& plan, Region& region, std::shared_ptr<const Fault>& fault) {
  struct Result {
    const Loop* loop;
    const Access* access;
    c10::DataPtr memory;
  };
  for (uint32_t slot : unit.begins) {
    begin(slot, region);
  }
  std::vector<Result> results;
  for (const auto& loop : unit.loops) {
    void* addresses[kMaxLoopOperands];
    size_t next = 0;
    for (size_t i = 0; i < loop.operands.size(); ++i) {
      const auto& operand = loop.operands[i];
      addresses[i] = address(operand, region);
      if (operand.stored) {
        const Access& access = loop.stores[next++];
        auto bytes = static_cast<size_t>(access.end() - access.begin);
        results.push_back({&loop, &access, allocate_block(bytes)});
        if (operand.loaded) {
          std::memcpy(results.back().memory.get(), addresses[i], bytes);
        }
        addresses[i] = results.back().memory.get();
      }
    }
    run_loop(loop, addresses);
  }
  auto before = fault;
  run_steps(unit, plan, region, fault);
  if (fault != before) {
    return;
  }
  unit.compared = true;
  for (const auto& result : results) {
    const auto* written = static_cast<const std::byte*>(storages_[result.access->slot]->data()) + result.access->begin;
    if (!same_values(*result.access, written, static_cast<const std::byte*>(result.memory.get()))) {
      refuse(*result.loop->kernel, "gave other results than the kernels that it replaces");
      unit.compared = false;
    }
  }
}

} // namespace ae
