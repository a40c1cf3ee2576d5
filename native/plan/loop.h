// A fused loop over a region's storages: a kernel and where its operands lie.
#pragma once

#include <c10/util/SmallVector.h>

#include <vector>

#include "plan/access.h"
#include "recorder/node.h"
#include "runtime/kernel.h"

namespace ae {

inline constexpr size_t kMaxLoopOperands = 64;

struct Loop {
  struct Operand {
    uint32_t index = 0; // of the slot, or of the parameter
    bool number = false;
    bool loaded = false;
    bool stored = false;
    int64_t begin = 0; // bytes into the slot
  };
  Kernel* kernel = nullptr;
  c10::SmallVector<Operand, 8> operands;
  c10::SmallVector<int64_t, 4> sizes; // innermost first; at least one
  std::vector<int64_t> strides;       // bytes: [dimension][operand]
  std::vector<int64_t> pairs;         // the kernel's own argument: [operand][outer, inner]
  std::vector<Access> stores;         // of the operands that are stored, in their order
  int64_t numel = 0;
};

// Whether the elements of the access are the same bits at both addresses of its first element, or NaN at both.
bool same_values(const Access& access, const std::byte* a, const std::byte* b);

// Runs elements [begin, end) of the loop's iteration space, in its own order, with operand i at addresses[i].
void run_range(const Loop& loop, void* const* addresses, int64_t begin, int64_t end);

// Runs the loop, on as many threads as ATen would take for one such op.
void run_loop(const Loop& loop, void* const* addresses);

} // namespace ae
