// The device's own thread: runs regions in the order in which they were handed over, while the host records the next.
//
// Handing over costs a few hundred nanoseconds, so it is done for regions that take longer than that (policy
// hand_over_ns), and where a processor is free for it. Everything else about a region stays with the host: which variant
// of its fragment runs is decided at the hand-over, its references are released when the host takes it back.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "recorder/region.h"
#include "runtime/fault.h"
#include "runtime/fragment.h"

namespace ae {

struct Job {
  Region region;
  Fragment* fragment = nullptr;
  Variant* variant = nullptr;
  uint64_t bytes = 0;         // that the region keeps alive
  int threads = 1;            // intra-op
  unsigned float_control = 0; // the processor's rounding and denormal flags
  uint64_t submitted_ns = 0;
  std::shared_ptr<const Fault> fault;
  uint64_t ns = 0;
  uint64_t late_ns = 0; // how long it waited for a processor, with nothing before it to wait for
};

// One producer: whoever holds the recorder's lock.
class DeviceThread {
 public:
  static constexpr uint64_t kDepth = 8;

  // Jobs handed over and not taken back.
  bool busy() const {
    return taken_ != submitted_.load(std::memory_order_relaxed);
  }
  bool full() const {
    return submitted_.load(std::memory_order_relaxed) - taken_ == kDepth;
  }
  uint64_t bytes() const {
    return bytes_;
  }

  // The next job's place, to be filled and then submitted. Only if not full().
  Job& next() {
    return jobs_[submitted_.load(std::memory_order_relaxed) % kDepth];
  }
  void submit();

  // Waits until everything that was submitted has run. Gives up the GIL while it waits.
  void wait();
  // Waits until one more job has run.
  void wait_for_one();

  // The oldest job that has run, or nullptr. The caller empties it and calls took().
  Job* done();
  void took();

  // Ends the thread once it has nothing to do.
  void stop();
  // In the child of a fork, where the thread does not exist. Nothing may be under way.
  void forget_thread();

 private:
  void run();
  void wait_until(uint64_t count);

  std::array<Job, kDepth> jobs_;
  std::atomic<uint64_t> submitted_{0}, finished_{0};
  uint64_t taken_ = 0;
  uint64_t bytes_ = 0;
  std::atomic<bool> worker_sleeps_{false}, host_sleeps_{false}, stopping_{false};
  std::mutex mutex_;
  std::condition_variable work_, progress_;
  std::unique_ptr<std::thread> thread_;
};

} // namespace ae
