// What a region becomes: its ops as calls of CPU kernels on tensors that were built once.
//
// Every slot of the region has a CPU storage whose data pointer is set at each launch; every operand is a CPU tensor
// on one of them. Launching is setting pointers, writing parameters and calling kernels.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <memory>
#include <vector>

#include "plan/plan.h"
#include "recorder/region.h"
#include "runtime/quick.h"
#include "runtime/replay.h"

namespace ae {

// The region with one pattern of results that something outside still holds.
struct Variant {
  // Unfused until the fused plan's kernels are there; back to it, with the reason, where fusing does not pay.
  enum class Stage : uint8_t { Cold, Compiling, Fused, Unfused };

  std::vector<uint64_t> live; // one bit a slot
  PlanInput input;
  std::unique_ptr<Plan> plain, fused;
  Stage stage = Stage::Cold;
  uint64_t launches = 0;
  uint64_t fused_launches = 0;
  uint32_t violations = 0;                                   // of the fused plan's guards
  uint64_t plain_ns = ~uint64_t(0), fused_ns = ~uint64_t(0); // the quickest launch
  uint64_t used = 0;

  // The plan to run now. Never waits.
  Plan& choose(const std::vector<Parameter>& numbers);
  // The plan that ran last, unless the next launch changes it.
  const Plan& current() const;
  const char* stage_name() const;
  // What the launch took.
  void observe(const Plan& plan, uint64_t ns);
};

// False only while a benchmark measures what recording alone costs.
extern std::atomic<bool> bench_execution;

struct Fragment {
  explicit Fragment(const Node* end);

  // Which results of the region live on: a bit a slot.
  const std::vector<uint64_t>& live(const Region& region);
  // The variant for what lives on now, or nullptr. `ready`: all that the region needs from outside has memory.
  Variant* find(const Region& region, bool& ready);
  Variant& add(const std::vector<uint64_t>& live, uint64_t epoch);

  // Runs the region. Returns the fault if an op failed: what it and its successors should have written is marked.
  std::shared_ptr<const Fault> launch(Region& region, Variant& variant);

  // The variant that was launched last, or nullptr.
  const Variant* latest() const;
  // Whether the step has been found to do without its kernel.
  bool quick(uint32_t step) const {
    return steps_[step].quick != nullptr && steps_[step].quick->proven;
  }

  uint64_t launches = 0;
  uint64_t ns = 0;
  uint64_t used = 0;

 private:
  struct Patch { // a parameter's place among a step's arguments
    uint16_t argument;
    uint8_t tag;
    bool list;
    uint32_t parameter;
    uint32_t count;
  };
  struct Returned { // an output that the kernel allocates
    uint32_t slot;
    const Output* output;
  };
  struct Step {
    const Node* node;
    c10::OperatorHandle callee;
    Replay replay; // unboxed, or nullptr
    std::vector<c10::IValue> arguments;
    std::unique_ptr<Quick> quick; // what it does instead, or nullptr
    bool copied = false;          // the kernel has no out= overload: its results are copied to those in `arguments`
    std::vector<Patch> patches;
    std::vector<Returned> returned;
    std::vector<std::pair<uint16_t, uint32_t>> generators; // argument, index in the region's (or ~0: the default)
    bool swap_generator = false;
  };
  struct SlotInfo {
    PlanInput::Slot::Origin origin = PlanInput::Slot::Origin::Outside;
    size_t bytes = 0;
  };

  at::Tensor operand(const Leaf& leaf, const Node& node);
  at::Tensor host_number(const Leaf& leaf); // its memory is written at each launch
  static void patch(const Step& step, std::vector<c10::IValue>& arguments, const Region& region);
  void run(Step& step, Region& region);
  void run_kernel(Step& step, Region& region);
  void copy_results(const Step& step);
  void run_unit(Plan::Unit& unit, const Plan& plan, Region& region, std::shared_ptr<const Fault>& fault);
  void run_steps(const Plan::Unit& unit, const Plan& plan, Region& region, std::shared_ptr<const Fault>& fault);
  void provide(const Step& step, const Plan& plan, Region& region);
  void run_loops(const Plan::Unit& unit, Region& region);
  // fragment_tiles.cpp
  void run_tiles(Tiles& tiles, Plan& plan, Region& region, std::shared_ptr<const Fault>& fault);
  void run_blocks(Tiles& tiles, Plan& plan, Region& region);
  void try_blocks(Tiles& tiles, Plan& plan, Region& region);
  void compare_unit(Plan::Unit& unit, const Plan& plan, Region& region, std::shared_ptr<const Fault>& fault);
  void set_up(const Plan& plan, Region& region, std::shared_ptr<const Fault>& fault);
  void begin(uint32_t slot, Region& region);
  void point(uint32_t slot, const void* data);
  std::byte* address(const Loop::Operand& operand, Region& region) const;
  bool tainted(const Step& step) const;
  void taint(const Step& step, Region& region, const std::shared_ptr<const Fault>& fault);
  void fail(c10::ArrayRef<uint32_t> steps, const std::exception& error, Region& region, std::shared_ptr<const Fault>& fault);
  void take_result(const Returned& returned, const at::Tensor& result);

  std::vector<Step> steps_;
  std::vector<SlotInfo> slots_;
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> storages_; // CPU, one a slot
  std::vector<std::pair<uint32_t, void*>> host_numbers_;       // parameter -> memory of its 0-dim tensor
  std::vector<uint8_t> host_sizes_;
  std::vector<std::unique_ptr<Variant>> variants_;
  std::vector<uint64_t> mask_; // scratch of the host
  const Variant* running_ = nullptr;
  bool has_arena_ = true;           // while it is launched
  std::byte* arena_ = nullptr;      // ...
  std::vector<c10::DataPtr> extra_; // by slot: what was allocated because the plan provides none
  std::vector<bool> tainted_;       // slots without valid values: empty as long as nothing failed
  torch::jit::Stack stack_;         // scratch
  std::vector<at::Tensor> held_;    // scratch
};

} // namespace ae
