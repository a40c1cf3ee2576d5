#include "runtime/stats.h"

#include <chrono>

#include "recorder/recorder.h"

namespace ae {

Counters counters;

void count_eager() {
  counters.launches.fetch_add(1, std::memory_order_relaxed);
  counters.direct.fetch_add(1, std::memory_order_relaxed);
}

void count_direct(const OpTraits& traits, DirectReason reason) {
  count_eager();
  if (mode() == Mode::Adaptive) {
    counters.directs[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
    traits.direct_counts[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  }
}

uint64_t now_ns() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

} // namespace ae
