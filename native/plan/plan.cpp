#include "plan/plan.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>
#include <queue>

#include "plan/group.h"
#include "runtime/arena.h"

namespace ae {
namespace {

using Origin = PlanInput::Slot::Origin;

// One loop's program and operands, built item by item.
class LoopBuilder {
 public:
  LoopBuilder(const PlanInput& input, const Items& items, const Group& group) : input_(input), items_(items), group_(group) {}

  // Nothing: the group's results are all dead, or no kernel may be made.
  std::optional<Loop> build(const std::vector<bool>& escapes, bool& refused) {
    for (uint32_t item : group_.items) {
      add(item);
    }
    for (size_t i = group_.items.size(); i-- > 0;) { // the last write to each place is the one that counts
      uint32_t item = group_.items[i];
      const Access& output = items_.items[item].op->output;
      bool last = std::find_if(stores_.begin(), stores_.end(), [&](const auto& s) { return s.second == output; }) == stores_.end();
      const auto& slot = input_.slots[output.slot];
      if (last && (slot.origin == Origin::Outside || slot.live || escapes[item])) {
        stores_.emplace_back(value_of_[i], output);
      }
    }
    if (stores_.empty()) {
      return std::nullopt;
    }
    std::reverse(stores_.begin(), stores_.end());
    drop_unused();
    return finish(refused);
  }

 private:
  struct Source {
    const Access* access = nullptr; // else a number
    uint32_t parameter = 0;
    codegen::Type type = codegen::Type::F32;
  };

  uint16_t load(const Source& source) {
    for (size_t v = 0; v < values_.size(); ++v) {
      if (values_[v].lowering == nullptr) {
        const Source& known = sources_[values_[v].operand];
        if (source.access != nullptr
                ? known.access != nullptr && *known.access == *source.access
                : known.access == nullptr && known.parameter == source.parameter && known.type == source.type) {
          return static_cast<uint16_t>(v);
        }
      }
    }
    codegen::Value value;
    value.operand = static_cast<uint16_t>(sources_.size());
    value.type = value.compute = source.type;
    sources_.push_back(source);
    values_.push_back(std::move(value));
    return static_cast<uint16_t>(values_.size() - 1);
  }

  void add(uint32_t item) {
    const PointOp& op = *items_.items[item].op;
    std::vector<uint16_t> inputs;
    for (const auto& input : op.inputs) {
      if (!input.access) {
        inputs.push_back(load({nullptr, input.parameter, input.type}));
        continue;
      }
      auto known = std::find_if(current_.rbegin(), current_.rend(), [&](const auto& c) { return *c.first == *input.access; });
      inputs.push_back(known != current_.rend() ? known->second : load({&*input.access, 0, input.type}));
    }
    codegen::Value value;
    value.lowering = op.lowering;
    value.compute = op.compute;
    value.type = op.type;
    value.arguments = op.arguments;
    for (auto& argument : value.arguments) {
      if (argument.kind == codegen::Argument::Kind::Value) {
        argument.value = inputs[argument.value];
      }
    }
    values_.push_back(std::move(value));
    value_of_.push_back(static_cast<uint16_t>(values_.size() - 1));
    current_.emplace_back(&op.output, value_of_.back());
  }

  void drop_unused() {
    std::vector<bool> used(values_.size(), false);
    for (const auto& [value, access] : stores_) {
      used[value] = true;
    }
    for (size_t v = values_.size(); v-- > 0;) {
      if (used[v]) {
        for (const auto& argument : values_[v].arguments) {
          if (argument.kind == codegen::Argument::Kind::Value) {
            used[argument.value] = true;
          }
        }
      }
    }
    std::vector<uint16_t> renamed(values_.size());
    std::vector<codegen::Value> kept;
    std::vector<Source> sources;
    for (size_t v = 0; v < values_.size(); ++v) {
      if (!used[v]) {
        continue;
      }
      renamed[v] = static_cast<uint16_t>(kept.size());
      auto value = std::move(values_[v]);
      if (value.lowering == nullptr) {
        sources.push_back(sources_[value.operand]);
        value.operand = static_cast<uint16_t>(sources.size() - 1);
      }
      for (auto& argument : value.arguments) {
        if (argument.kind == codegen::Argument::Kind::Value) {
          argument.value = renamed[argument.value];
        }
      }
      kept.push_back(std::move(value));
    }
    values_ = std::move(kept);
    sources_ = std::move(sources);
    for (auto& store : stores_) {
      store.first = renamed[store.first];
    }
  }

  Loop finish(bool& refused) {
    Loop loop;
    codegen::Program program;
    program.values = values_;
    program.cut = group_.cut;
    loop.numel = group_.numel;
    std::vector<const Access*> accesses;
    for (const auto& source : sources_) {
      accesses.push_back(source.access);
      Loop::Operand operand;
      operand.number = source.access == nullptr;
      operand.index = operand.number ? source.parameter : source.access->slot;
      operand.begin = operand.number ? 0 : source.access->begin;
      operand.loaded = true;
      loop.operands.push_back(operand);
      program.operands.push_back({source.type, codegen::Walk::Number});
    }
    for (const auto& [value, access] : stores_) {
      size_t at = 0;
      while (at < accesses.size() && (accesses[at] == nullptr || !(*accesses[at] == access))) {
        ++at;
      }
      if (at == accesses.size()) {
        accesses.push_back(&access);
        loop.operands.push_back({access.slot, false, false, false, access.begin});
        program.operands.push_back({*codegen_type(access.type), codegen::Walk::Number});
      }
      loop.operands[at].stored = true;
      program.stores.push_back({static_cast<uint16_t>(at), value});
    }
    lay_out(loop, program, accesses);
    for (size_t i = 0; i < loop.operands.size(); ++i) {
      if (loop.operands[i].stored) {
        loop.stores.push_back(*accesses[i]);
      }
    }
    loop.kernel = kernel_for(program);
    refused |= loop.kernel == nullptr;
    return loop;
  }

  // The order of dimensions is that of the results' memory, innermost first; what can be merged is.
  void lay_out(Loop& loop, codegen::Program& program, const std::vector<const Access*>& accesses) const {
    Space space;
    for (const auto* access : accesses) {
      if (access != nullptr) {
        space = *refine(space, *access);
      }
    }
    size_t operands = accesses.size();
    std::vector<c10::SmallVector<int64_t, 4>> strides(operands, c10::SmallVector<int64_t, 4>(space.size(), 0));
    for (size_t i = 0; i < operands; ++i) {
      if (accesses[i] != nullptr) {
        strides[i] = strides_in(space, *accesses[i]);
      }
    }
    size_t result = 0;
    while (!loop.operands[result].stored) {
      ++result;
    }
    std::vector<size_t> order(space.size());
    std::iota(order.rbegin(), order.rend(), size_t(0));
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[result][a] < strides[result][b]; });
    for (size_t dim : order) {
      bool merges = !loop.sizes.empty();
      for (size_t i = 0; i < operands && merges; ++i) {
        int64_t before = loop.strides[loop.strides.size() - operands + i];
        merges = strides[i][dim] == before * loop.sizes.back();
      }
      if (merges) {
        loop.sizes.back() *= space[dim];
        continue;
      }
      loop.sizes.push_back(space[dim]);
      for (size_t i = 0; i < operands; ++i) {
        loop.strides.push_back(strides[i][dim]);
      }
    }
    if (loop.sizes.empty()) { // a single element
      loop.sizes.push_back(1);
      for (size_t i = 0; i < operands; ++i) {
        loop.strides.push_back(accesses[i] != nullptr ? accesses[i]->item : 0);
      }
    }
    for (size_t i = 0; i < operands; ++i) {
      int64_t inner = loop.strides[i];
      int64_t outer = loop.sizes.size() > 1 ? loop.strides[operands + i] : 0;
      loop.pairs.push_back(outer);
      loop.pairs.push_back(inner);
      if (accesses[i] != nullptr) {
        program.operands[i].walk = inner == accesses[i]->item ? codegen::Walk::Dense
                                   : inner == 0               ? codegen::Walk::Same
                                                              : codegen::Walk::Strided;
      }
    }
  }

  const PlanInput& input_;
  const Items& items_;
  const Group& group_;
  std::vector<Source> sources_; // by operand
  std::vector<codegen::Value> values_;
  std::vector<uint16_t> value_of_;                          // by item of the group
  std::vector<std::pair<const Access*, uint16_t>> current_; // what memory holds, written by this loop
  std::vector<std::pair<uint16_t, Access>> stores_;
};

// Units in an order that dependences allow, near to program order.
void order_units(std::vector<Plan::Unit>& units, const Items& items, const std::vector<uint32_t>& unit_of_step) {
  std::vector<std::vector<uint32_t>> after(units.size());
  std::vector<uint32_t> waits(units.size(), 0);
  for (uint32_t at = 0; at < items.items.size(); ++at) {
    uint32_t unit = unit_of_step[items.items[at].step];
    for (const auto& d : items.dependences[at]) {
      uint32_t on = unit_of_step[items.items[d.on].step];
      if (on != unit) {
        after[on].push_back(unit);
        ++waits[unit];
      }
    }
  }
  std::priority_queue<std::pair<uint32_t, uint32_t>, std::vector<std::pair<uint32_t, uint32_t>>, std::greater<>> ready;
  for (uint32_t u = 0; u < units.size(); ++u) {
    if (waits[u] == 0) {
      ready.emplace(units[u].steps.front(), u);
    }
  }
  std::vector<Plan::Unit> ordered;
  while (!ready.empty()) {
    uint32_t u = ready.top().second;
    ready.pop();
    for (uint32_t next : after[u]) {
      if (--waits[next] == 0) {
        ready.emplace(units[next].steps.front(), next);
      }
    }
    ordered.push_back(std::move(units[u]));
  }
  TORCH_INTERNAL_ASSERT(ordered.size() == units.size(), "a plan's units depend on each other in a circle");
  units = std::move(ordered);
}

uint32_t find(std::vector<uint32_t>& parents, uint32_t i) {
  while (parents[i] != i) {
    i = parents[i] = parents[parents[i]];
  }
  return i;
}

} // namespace

bool Plan::any_failed() const {
  for (const auto& unit : units) {
    for (const auto& loop : unit.loops) {
      if (loop.kernel->failed()) {
        return true;
      }
    }
  }
  return false;
}

const Guard* Plan::violated(const std::vector<Parameter>& numbers) const {
  for (const auto& guard : guards) {
    if (guard.value.bytes != numbers[guard.parameter].bytes) {
      return &guard;
    }
  }
  return nullptr;
}

bool Plan::all_ready() const {
  for (const auto& unit : units) {
    for (const auto& loop : unit.loops) {
      if (!loop.kernel->ready()) {
        return false;
      }
    }
  }
  return true;
}

std::unique_ptr<Plan> plan_steps(const PlanInput& input) {
  auto plan = std::make_unique<Plan>();
  for (uint32_t step = 0; step < input.steps.size(); ++step) {
    if (!input.skipped[step]) {
      plan->units.emplace_back().steps = {step};
    }
  }
  assign_memory(*plan, input);
  return plan;
}

std::unique_ptr<Plan> plan_fused(const PlanInput& input) {
  int threads = at::get_num_threads();
  std::vector<bool> fusable(input.steps.size(), true);
  for (;;) {
    Items items = analyse(input, fusable);
    auto groups = group(input, items, fusable, threads);
    if (!groups) {
      continue;
    }
    std::vector<bool> escapes(items.items.size(), false); // read outside of their loop
    for (uint32_t at = 0; at < items.items.size(); ++at) {
      for (const auto& d : items.dependences[at]) {
        escapes[d.on] = escapes[d.on] || (d.flow && (groups->group_of[d.on] < 0 || groups->group_of[d.on] != groups->group_of[at]));
      }
    }
    // Steps that share a loop are one unit: they run together, as loops or as they are.
    std::vector<uint32_t> parents(input.steps.size());
    std::iota(parents.begin(), parents.end(), 0u);
    for (const auto& g : groups->groups) {
      for (uint32_t item : g.items) {
        parents[find(parents, items.items[item].step)] = find(parents, items.items[g.items[0]].step);
      }
    }
    std::vector<std::vector<uint32_t>> steps_of(input.steps.size());
    for (uint32_t step = 0; step < input.steps.size(); ++step) {
      if (!input.skipped[step]) {
        steps_of[find(parents, step)].push_back(step);
      }
    }
    auto plan = std::make_unique<Plan>();
    plan->threads = threads;
    std::vector<uint32_t> unit_of(input.steps.size(), 0);
    for (auto& steps : steps_of) {
      if (!steps.empty()) {
        for (uint32_t step : steps) {
          unit_of[step] = static_cast<uint32_t>(plan->units.size());
        }
        plan->units.emplace_back().steps = std::move(steps);
      }
    }
    std::vector<bool> bad(plan->units.size(), false);
    for (const auto& g : groups->groups) {
      if (g.items.empty()) {
        continue;
      }
      uint32_t unit = unit_of[items.items[g.items[0]].step];
      bool refused = false;
      if (auto loop = LoopBuilder(input, items, g).build(escapes, refused)) {
        bad[unit] = bad[unit] || refused || loop->kernel->failed();
        for (const auto& access : loop->stores) {
          plan->units[unit].bytes += static_cast<uint64_t>(access.numel() * access.item);
        }
        plan->units[unit].loops.push_back(std::move(*loop));
      }
    }
    bool again = false;
    for (uint32_t step = 0; step < input.steps.size(); ++step) {
      if (!input.skipped[step] && bad[unit_of[step]] && fusable[step]) {
        fusable[step] = false;
        again = true;
      }
    }
    if (again) {
      continue;
    }
    for (const auto& unit : plan->units) {
      plan->fused_steps += unit.loops.empty() ? 0 : unit.steps.size();
    }
    if (plan->fused_steps == 0) {
      return nullptr;
    }
    for (const auto& item : items.items) {
      if (item.op != nullptr) {
        plan->guards.insert(plan->guards.end(), item.op->guards.begin(), item.op->guards.end());
      }
    }
    auto by_parameter = [](const Guard& a, const Guard& b) { return a.parameter < b.parameter; };
    std::sort(plan->guards.begin(), plan->guards.end(), by_parameter);
    plan->guards.erase(std::unique(plan->guards.begin(), plan->guards.end(),
                                   [](const Guard& a, const Guard& b) { return a.parameter == b.parameter; }),
                       plan->guards.end());
    order_units(plan->units, items, unit_of);
    std::erase_if(plan->units, [&](const Plan::Unit& unit) { // loops whose results are all dead
      return unit.loops.empty() && !items.ops[unit.steps[0]].empty();
    });
    assign_memory(*plan, input);
    return plan;
  }
}

void assign_memory(Plan& plan, const PlanInput& input) {
  size_t slots = input.slots.size();
  constexpr uint32_t never = ~0u;
  plan.memory.assign(slots, Plan::Memory::None);
  plan.arena_offset.assign(slots, -1);
  std::vector<uint32_t> first(slots, never), last(slots, 0);
  for (uint32_t u = 0; u < plan.units.size(); ++u) {
    const auto& unit = plan.units[u];
    auto touch = [&](uint32_t slot, bool by_kernel) {
      if (first[slot] == never) {
        first[slot] = u;
        const auto& s = input.slots[slot];
        plan.memory[slot] = s.origin == Origin::Outside               ? Plan::Memory::Outside
                            : s.origin == Origin::Kernel && by_kernel ? Plan::Memory::Kernel
                            : s.live                                  ? Plan::Memory::Own
                                                                      : Plan::Memory::Arena;
      }
      last[slot] = u;
    };
    if (unit.loops.empty()) {
      const Node& node = *input.steps[unit.steps[0]];
      for (const auto& leaf : node.leaves) {
        if (leaf.kind == LeafKind::Tensor && !touches_nothing(leaf, node)) {
          touch(leaf.slot, false);
        }
      }
      for (const auto& output : node.outputs) {
        if (output.defined) {
          touch(output.slot, true);
        }
      }
    }
    for (const auto& loop : unit.loops) {
      for (const auto& operand : loop.operands) {
        if (!operand.number) {
          touch(operand.index, false);
        }
      }
    }
  }
  // A unit's steps may also run as they are, and then touch what its loops leave out: that must not be another's memory.
  for (uint32_t u = 0; u < plan.units.size(); ++u) {
    auto extend = [&](uint32_t slot) {
      if (first[slot] != never) {
        first[slot] = std::min(first[slot], u);
        last[slot] = std::max(last[slot], u);
      }
    };
    if (plan.units[u].loops.empty()) {
      continue;
    }
    for (uint32_t step : plan.units[u].steps) {
      input.steps[step]->each_slot(extend);
    }
  }
  if (plan.fused_steps > 0) {
    find_tiles(plan, input);
  }
  std::vector<ArenaRequest> requests;
  for (uint32_t slot = 0; slot < slots; ++slot) {
    switch (plan.memory[slot]) {
      case Plan::Memory::Own:
        plan.units[first[slot]].begins.push_back(slot);
        break;
      case Plan::Memory::Kernel:
        plan.units[last[slot]].last_uses.push_back(slot);
        break;
      case Plan::Memory::Arena:
        requests.push_back({slot, input.slots[slot].bytes, first[slot], last[slot]});
        for (const auto& tiles : plan.tiles) { // all rows of what they touch are under way at one time
          if (tiles.is_inside(slot)) {
            continue; // its memory here is for the units run one by one
          }
          uint32_t end = tiles.first + tiles.count - 1;
          if (first[slot] <= end && last[slot] >= tiles.first) {
            requests.back().first = std::min(requests.back().first, tiles.first);
            requests.back().last = std::max(requests.back().last, end);
          }
        }
        break;
      default:
        break;
    }
  }
  for (size_t i = 0; i < plan.tiles.size(); ++i) {
    const auto& tiles = plan.tiles[i];
    requests.push_back({static_cast<uint32_t>(slots + i), tiles.scratch_bytes, tiles.first, tiles.first + tiles.count - 1});
  }
  plan.arena_offset.resize(slots + plan.tiles.size());
  plan.arena_bytes = lay_out(requests, plan.arena_offset);
  for (size_t i = 0; i < plan.tiles.size(); ++i) {
    plan.tiles[i].scratch = plan.arena_offset[slots + i];
  }
  plan.arena_offset.resize(slots);
}

} // namespace ae
