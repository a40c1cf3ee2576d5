// What a region becomes: its ops as calls of CPU kernels on tensors that were built once.
//
// Every slot of the region has a CPU storage whose data pointer is set at each launch; every operand is a CPU tensor
// on one of them. Launching is setting pointers, writing parameters and calling kernels.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "recorder/region.h"
#include "runtime/replay.h"

namespace ae {

// How a launch lays out the storages that come into being in the region: those that something outside still holds
// get memory of their own, the others share the arena.
struct Variant {
  std::vector<uint64_t> live;        // one bit a slot
  std::vector<int64_t> arena_offset; // of slots in the arena, else -1
  std::vector<bool> skipped;         // steps whose results nobody needs
  size_t arena_bytes = 0;
  uint64_t used = 0;
};

struct Fragment {
  explicit Fragment(const Node* end);

  // Runs the region. Returns the fault if an op failed: what it and its successors should have written is marked.
  std::shared_ptr<const Fault> launch(Region& region);

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
    std::vector<Patch> patches;
    std::vector<Returned> returned;
    std::vector<uint32_t> begins;                          // slots that come into being here and are not the kernel's to allocate
    std::vector<uint32_t> last_uses;                       // slots with kernel-allocated memory that nothing reads later
    std::vector<std::pair<uint16_t, uint32_t>> generators; // argument, index in the region's (or ~0: the default)
    bool swap_generator = false;
  };
  enum class SlotKind : uint8_t { Input, Made, Returned };
  struct SlotPlan {
    SlotKind kind = SlotKind::Input;
    size_t bytes = 0;
    uint32_t first = 0, last = 0; // steps
  };

  at::Tensor operand(const Leaf& leaf, const Node& node);
  at::Tensor host_number(const Leaf& leaf); // its memory is written at each launch
  const Variant& variant(const Region& region);
  void run(Step& step, Region& region, std::vector<at::Tensor>& held);
  void set_up(const Variant& variant, std::byte* arena, Region& region);
  void begin(const Step& step, const Variant& variant, Region& region);
  bool tainted(const Step& step) const;
  void taint(const Step& step, Region& region, const std::shared_ptr<const Fault>& fault);
  void take_result(const Returned& returned, const at::Tensor& result, std::vector<at::Tensor>& held);

  std::vector<Step> steps_;
  std::vector<SlotPlan> slots_;
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> storages_; // CPU, one a slot
  std::vector<std::pair<uint32_t, void*>> host_numbers_;       // parameter -> memory of its 0-dim tensor
  std::vector<uint8_t> host_sizes_;
  std::vector<std::unique_ptr<Variant>> variants_;
  std::vector<uint64_t> mask_;   // scratch
  std::vector<bool> tainted_;    // slots without valid values: empty as long as nothing failed
  torch::jit::Stack stack_;      // scratch
  std::vector<at::Tensor> held_; // scratch
};

} // namespace ae
