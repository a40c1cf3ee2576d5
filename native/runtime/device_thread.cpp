#include "runtime/device_thread.h"

#include <ATen/Parallel.h>
#include <pthread.h>

#include <algorithm>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/gil.h"
#include "common/relax.h"
#include "recorder/recorder.h"
#include "runtime/stats.h"

namespace ae {
namespace {

// How long a thread looks before it sleeps: as long as a host takes to record a long region, since waking a thread costs
// both sides more than a short one.
constexpr uint64_t kSpinNs = 300000;

// Flushing of denormals is a setting of the thread that calls torch.set_flush_denormal.
unsigned float_control() {
#if defined(__x86_64__)
  return _mm_getcsr();
#elif defined(__aarch64__)
  return static_cast<unsigned>(__builtin_aarch64_get_fpcr());
#else
  return 0;
#endif
}

void set_float_control(unsigned value) {
#if defined(__x86_64__)
  constexpr unsigned flags = 0x3f; // what happened, not what is wanted
  _mm_setcsr(value & ~flags);
#elif defined(__aarch64__)
  __builtin_aarch64_set_fpcr(value);
#endif
}

template <class Condition>
bool spin(Condition&& condition) {
  uint64_t start = now_ns();
  do {
    for (int i = 0; i < 64; ++i) {
      if (condition()) {
        return true;
      }
      relax();
    }
    std::this_thread::yield(); // somebody else may need the processor more
  } while (now_ns() - start < kSpinNs);
  return false;
}

} // namespace

void DeviceThread::submit() {
  Job& job = next();
  job.threads = at::get_num_threads();
  job.float_control = float_control();
  job.submitted_ns = now_ns();
  bytes_ += job.bytes;
  if (!thread_) {
    stopping_ = false;
    thread_ = std::make_unique<std::thread>([this] { run(); });
  }
  submitted_.fetch_add(1); // sequentially consistent, with the flag below
  if (worker_sleeps_.load()) {
    std::lock_guard lock(mutex_);
    work_.notify_one();
  }
}

void DeviceThread::run() {
  pthread_setname_np(pthread_self(), "neuron");
  enter_device_thread();
  uint64_t ended = 0;
  for (;;) {
    uint64_t at = finished_.load(std::memory_order_relaxed);
    auto there = [&] { return submitted_.load(std::memory_order_acquire) != at || stopping_.load(); };
    if (!spin(there)) {
      std::unique_lock lock(mutex_);
      worker_sleeps_.store(true);
      work_.wait(lock, [&] { return submitted_.load() != at || stopping_.load(); });
      worker_sleeps_.store(false);
    }
    if (submitted_.load(std::memory_order_acquire) == at) {
      return;
    }
    Job& job = jobs_[at % kDepth];
    if (at::get_num_threads() != job.threads) {
      at::set_num_threads(job.threads);
    }
    set_float_control(job.float_control);
    uint64_t start = now_ns();
    job.fault = job.fragment->launch(job.region, *job.variant);
    job.late_ns = start - std::min(start, std::max(job.submitted_ns, ended));
    ended = now_ns();
    job.ns = ended - start;
    finished_.fetch_add(1);
    if (host_sleeps_.load()) {
      std::lock_guard lock(mutex_);
      progress_.notify_all();
    }
  }
}

void DeviceThread::wait_until(uint64_t count) {
  auto there = [&] { return finished_.load(std::memory_order_acquire) >= count; };
  if (there()) {
    return;
  }
  GilRelease gil;
  if (spin(there)) {
    return;
  }
  std::unique_lock lock(mutex_);
  host_sleeps_.store(true);
  progress_.wait(lock, [&] { return finished_.load() >= count; });
  host_sleeps_.store(false);
}

void DeviceThread::wait() {
  wait_until(submitted_.load(std::memory_order_relaxed));
}

void DeviceThread::wait_for_one() {
  wait_until(taken_ + 1);
}

Job* DeviceThread::done() {
  return taken_ < finished_.load(std::memory_order_acquire) ? &jobs_[taken_ % kDepth] : nullptr;
}

void DeviceThread::took() {
  Job& job = jobs_[taken_ % kDepth];
  bytes_ -= job.bytes;
  job.fault.reset();
  ++taken_;
}

void DeviceThread::stop() {
  if (!thread_) {
    return;
  }
  {
    GilRelease gil;
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      work_.notify_one();
    }
    thread_->join();
  }
  thread_.reset();
}

void DeviceThread::forget_thread() {
  if (thread_) {
    (void)thread_.release(); // its handle names a thread of the parent
    worker_sleeps_ = false;
    host_sleeps_ = false;
    new (&mutex_) std::mutex;
    new (&work_) std::condition_variable;
    new (&progress_) std::condition_variable;
  }
}

} // namespace ae
