// Which steps of a region depend on which: through the bytes that they read and write, and through random numbers.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "plan/pointwise.h"

namespace ae {

// A step, or one element of a step over lists.
struct Item {
  uint32_t step = 0;
  PointOp* op = nullptr; // nullptr: opaque
  std::vector<Access> reads, writes;
};

struct Dependence {
  uint32_t on = 0;      // an earlier item
  bool aligned = false; // element for element: both may run in one loop
  bool flow = false;    // the earlier one's results are read
};

struct Items {
  std::vector<Item> items;
  std::vector<std::vector<Dependence>> dependences; // by item
  std::vector<std::vector<PointOp>> ops;            // by step
};

// Whether the view has no elements: it depends on nothing, and its storage may not be there yet.
bool touches_nothing(const Leaf& leaf, const Node& node);

// `fusable`: steps that may become loops.
Items analyse(const PlanInput& input, const std::vector<bool>& fusable);

} // namespace ae
