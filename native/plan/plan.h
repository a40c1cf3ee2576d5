// How a region is executed: in which order, what as fused loops, with which memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "plan/loop.h"
#include "plan/pointwise.h"
#include "plan/tiles.h"

namespace ae {

// What the planner needs to know of a region and of the variant of it that is to run.
struct PlanInput {
  struct Slot {
    enum class Origin : uint8_t {
      Outside, // it has memory when the region is launched
      Made,    // it comes into being in the region, in memory that it is given
      Kernel   // ... in memory that a kernel allocates, if its op runs as it is
    } origin = Origin::Outside;
    bool live = false; // something outside of the region holds it
    size_t bytes = 0;
  };
  std::vector<const Node*> steps;
  std::vector<bool> skipped; // steps whose results nobody needs
  std::vector<Slot> slots;
  Numbers numbers;
};

struct Plan {
  enum class Memory : uint8_t {
    None,    // nothing is ever written there: its values stay in registers
    Outside, // there before the launch
    Arena,   // for the launch only
    Own,     // allocated for the storage when its first unit runs
    Kernel   // allocated by the kernel
  };

  struct Unit {
    std::vector<uint32_t> steps;     // what it does, in program order
    std::vector<Loop> loops;         // how; empty: the steps run as they are
    std::vector<uint32_t> begins;    // slots that get memory of their own here
    std::vector<uint32_t> last_uses; // slots with a kernel's memory that nothing needs afterwards
    uint64_t bytes = 0;              // moved by the loops
    bool compared = false;           // with the steps run as they are
  };

  std::vector<Unit> units;
  std::vector<Tiles> tiles;          // of units, in their order
  std::vector<Memory> memory;        // by slot
  std::vector<int64_t> arena_offset; // by slot, -1: not there
  size_t arena_bytes = 0;
  size_t fused_steps = 0;
  std::vector<Guard> guards;
  int threads = 1;

  // Of all loops' kernels.
  bool any_failed() const;
  bool all_ready() const;

  // The first number that it was not made for, or nullptr.
  const Guard* violated(const std::vector<Parameter>& numbers) const;
};

// Every step as it is, in program order.
std::unique_ptr<Plan> plan_steps(const PlanInput& input);

// Elementwise steps as fused loops, as far as their kernels have not failed. nullptr where nothing is to be fused.
std::unique_ptr<Plan> plan_fused(const PlanInput& input);

// What is wrong with the plan, or nothing: every access that depends on another comes after it, memory that lives at the
// same time does not overlap, everything that is read was written. For tests (policy verify_plans).
std::string verify(const Plan& plan, const PlanInput& input);

// Fills in everything that follows from the units: memory, first and last uses, the arena.
void assign_memory(Plan& plan, const PlanInput& input);

} // namespace ae
