// Which elementwise items run in one loop.
#pragma once

#include "plan/dependence.h"

namespace ae {

struct Group {
  std::vector<uint32_t> items; // in program order
  std::vector<Access> accesses;
  Space space; // refines all of them
  int64_t numel = 0;
  uint32_t cut = 0;
  uint32_t level = 0;
  size_t numbers = 0;
};

struct Groups {
  std::vector<Group> groups;      // those without items were merged into others
  std::vector<int32_t> group_of;  // by item, -1: opaque
  std::vector<uint32_t> level_of; // by step
};

// Puts every item that may run in a loop into a group, and every step on a level: what depends on a step lies on a
// higher level, or in the same group. So the order by levels is a right one.
// Steps that turn out not to fit are taken out of `fusable`, and nothing is returned: analyse again.
std::optional<Groups> group(const PlanInput& input, const Items& items, std::vector<bool>& fusable, int threads);

} // namespace ae
