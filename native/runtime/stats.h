// Counters. Written under the recorder's lock or relaxed; read from anywhere.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "ops/traits.h"
#include "recorder/sync.h"

namespace ae {

struct Counters {
  std::atomic<uint64_t> recorded{0}, direct{0}, launches{0}, compiled{0}, hits{0}, misses{0}, evictions{0};
  std::atomic<uint64_t> compile_ns{0}, record_ns{0}, launch_ns{0};
  std::atomic<uint64_t> fragments{0};
  std::atomic<uint64_t> kernels_refused{0}; // their results differed
  std::array<std::atomic<uint64_t>, static_cast<size_t>(FlushReason::Count)> flushes{};
  std::array<std::atomic<uint64_t>, static_cast<size_t>(DirectReason::Count)> directs{};
};
extern Counters counters;

// For counters that one thread at a time writes: no locked instruction.
inline void bump(std::atomic<uint64_t>& counter, uint64_t by = 1) {
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

// An op is executed by itself: one launch.
void count_direct(const OpTraits& traits, DirectReason reason);
void count_eager();

uint64_t now_ns();

} // namespace ae
