// A second opinion on plans, by brute force: every pair of accesses, every pair of lifetimes.
#include <algorithm>
#include <map>

#include "plan/dependence.h"

namespace ae {
namespace {

std::string pair_of(const PlanInput& input, uint32_t a, uint32_t b) {
  return "steps " + std::to_string(a) + " (" + input.steps[a]->traits->name + ") and " + std::to_string(b) + " (" +
         input.steps[b]->traits->name + ")";
}

} // namespace

std::string verify(const Plan& plan, const PlanInput& input) {
  std::vector<int64_t> unit_of(input.steps.size(), -1);
  for (size_t u = 0; u < plan.units.size(); ++u) {
    for (uint32_t step : plan.units[u].steps) {
      if (unit_of[step] >= 0) {
        return "step " + std::to_string(step) + " is in two units";
      }
      unit_of[step] = static_cast<int64_t>(u);
    }
  }

  // What follows from the records alone, without grouping.
  Items items = analyse(input, std::vector<bool>(input.steps.size(), true));
  int64_t last_random = -1;
  for (uint32_t b = 0; b < items.items.size(); ++b) {
    const Item& later = items.items[b];
    int64_t at = unit_of[later.step];
    if (at < 0) {
      if (later.op == nullptr) {
        return "step " + std::to_string(later.step) + " is in no unit";
      }
      continue; // its results are dead
    }
    if (input.steps[later.step]->traits->random) {
      if (at < last_random) {
        return "random numbers are drawn out of order at step " + std::to_string(later.step);
      }
      last_random = at;
    }
    bool fused = !plan.units[at].loops.empty();
    for (uint32_t a = 0; a < b; ++a) {
      const Item& earlier = items.items[a];
      int64_t before = unit_of[earlier.step];
      if (before < 0 || before < at || (earlier.step == later.step && !fused)) {
        continue;
      }
      auto conflict = [&](const std::vector<Access>& x, const std::vector<Access>& y) {
        for (const auto& p : x) {
          for (const auto& q : y) {
            if (may_overlap(p, q) && (before > at || !fused || !(p == q))) {
              return true;
            }
          }
        }
        return false;
      };
      if (conflict(earlier.writes, later.reads) || conflict(earlier.writes, later.writes) ||
          conflict(earlier.reads, later.writes)) {
        return "the order of " + pair_of(input, earlier.step, later.step) + " is not kept";
      }
    }
  }

  // Memory: what lives at one time lies apart, and what is used is there.
  struct Life {
    uint32_t slot;
    size_t first, last;
  };
  std::map<uint32_t, Life> lives;
  for (size_t u = 0; u < plan.units.size(); ++u) {
    auto use = [&](uint32_t slot) {
      auto& life = lives.try_emplace(slot, Life{slot, u, u}).first->second;
      life.last = u;
      return plan.memory[slot] != Plan::Memory::None;
    };
    const auto& unit = plan.units[u];
    for (const auto& loop : unit.loops) {
      for (const auto& operand : loop.operands) {
        if (!operand.number && !use(operand.index)) {
          return "a loop needs slot " + std::to_string(operand.index) + ", which has no memory";
        }
      }
    }
    for (uint32_t step : unit.steps) { // as they are, where loops are compared or cannot run
      for (const auto& leaf : input.steps[step]->leaves) {
        if (leaf.kind == LeafKind::Tensor && plan.memory[leaf.slot] == Plan::Memory::Arena) {
          use(leaf.slot);
        }
      }
    }
    if (unit.loops.empty()) {
      for (const auto& leaf : input.steps[unit.steps[0]]->leaves) {
        if (leaf.kind == LeafKind::Tensor && !touches_nothing(leaf, *input.steps[unit.steps[0]]) && !use(leaf.slot)) {
          return "step " + std::to_string(unit.steps[0]) + " needs slot " + std::to_string(leaf.slot) + ", which has no memory";
        }
      }
      for (const auto& output : input.steps[unit.steps[0]]->outputs) {
        if (output.defined && !use(output.slot)) {
          return "step " + std::to_string(unit.steps[0]) + " has a result without memory";
        }
      }
    }
  }
  for (auto& [slot, life] : lives) { // all rows of what tiles touch are under way at one time
    for (const auto& tiles : plan.tiles) {
      if (!tiles.is_inside(slot) && life.first < tiles.first + tiles.count && life.last >= tiles.first) {
        auto end = plan.arena_offset[slot] + static_cast<int64_t>(input.slots[slot].bytes);
        if (plan.memory[slot] == Plan::Memory::Arena && plan.arena_offset[slot] < tiles.scratch + int64_t(tiles.scratch_bytes) &&
            tiles.scratch < end) {
          return "slot " + std::to_string(slot) + " shares memory with the blocks of tiles";
        }
        life.first = std::min<size_t>(life.first, tiles.first);
        life.last = std::max<size_t>(life.last, tiles.first + tiles.count - 1);
      }
    }
  }
  for (const auto& [slot, life] : lives) {
    if (plan.memory[slot] != Plan::Memory::Arena) {
      continue;
    }
    auto begin = plan.arena_offset[slot], end = begin + static_cast<int64_t>(input.slots[slot].bytes);
    if (begin < 0 || static_cast<size_t>(end) > plan.arena_bytes) {
      return "slot " + std::to_string(slot) + " lies outside of the arena";
    }
    for (const auto& [other, second] : lives) {
      if (other <= slot || plan.memory[other] != Plan::Memory::Arena || second.last < life.first || life.last < second.first) {
        continue;
      }
      auto other_end = plan.arena_offset[other] + static_cast<int64_t>(input.slots[other].bytes);
      if (plan.arena_offset[other] < end && begin < other_end) {
        return "slots " + std::to_string(slot) + " and " + std::to_string(other) + " share memory at one time";
      }
    }
  }

  // What is read, or lives on, was written: by a loop that stores it or by a step as it is.
  for (uint32_t b = 0; b < items.items.size(); ++b) {
    const Item& later = items.items[b];
    for (const auto& d : items.dependences[b]) {
      const Item& earlier = items.items[d.on];
      if (!d.flow || unit_of[later.step] < 0) {
        continue;
      }
      if (unit_of[earlier.step] < 0) {
        return "the results of " + pair_of(input, earlier.step, later.step) + ": the first is dropped, the second reads it";
      }
      const auto& unit = plan.units[unit_of[earlier.step]];
      if (unit.loops.empty() || unit_of[earlier.step] == unit_of[later.step]) {
        continue;
      }
      bool found = false;
      for (const auto& loop : unit.loops) {
        for (const auto& access : loop.stores) {
          for (const auto& written : earlier.writes) {
            found |= access == written;
          }
        }
      }
      if (!found) {
        return "the results of " + pair_of(input, earlier.step, later.step) + ": the first does not store what the second reads";
      }
    }
  }
  return {};
}

} // namespace ae
