#include "runtime/kernel.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>

#include "codegen/lowering.h"
#include "common/json.h"
#include "common/policy.h"
#include "plan/pointwise.h"
#include "runtime/stats.h"

namespace ae {
namespace {

struct Known {
  Kernel kernel;
  uint64_t ns = 0;
  bool cached = false;
};

struct Registry {
  std::mutex mutex;
  std::condition_variable wanted;
  std::unordered_map<std::string, Known*> by_key;
  std::deque<Known> kernels; // by number - 1
  std::deque<uint64_t> queue;
  std::set<uint64_t> compiling;
  bool closed = false;
};

Registry& registry() {
  static auto* r = new Registry;
  return *r;
}

std::string name_of_program(const codegen::Program& program) {
  std::string name;
  for (const auto& value : program.values) {
    if (value.lowering != nullptr) {
      name += (name.empty() ? "" : "-") + std::string(value.lowering->op);
    }
  }
  return name;
}

void settle(Kernel& kernel, Kernel::State state) {
  kernel.state.store(state, std::memory_order_release);
}

// A kernel that was being compiled no longer is. Under the lock.
Known& compiled(Registry& r, uint64_t id) {
  TORCH_CHECK(id >= 1 && id <= r.kernels.size(), "no kernel has the number ", id);
  r.compiling.erase(id);
  return r.kernels[id - 1];
}

} // namespace

Kernel* kernel_for(const codegen::Program& program) {
  std::string key = program.key();
  auto& r = registry();
  std::lock_guard lock(r.mutex);
  auto found = r.by_key.find(key);
  if (found != r.by_key.end()) {
    return &found->second->kernel;
  }
  if (r.kernels.size() >= static_cast<size_t>(policy(Policy::MaxKernels))) {
    return nullptr;
  }
  auto& known = r.kernels.emplace_back();
  known.kernel.program = program;
  known.kernel.name = name_of_program(program);
  r.by_key.emplace(std::move(key), &known);
  r.queue.push_back(r.kernels.size());
  r.wanted.notify_one();
  return &known.kernel;
}

void refuse(Kernel& kernel, const std::string& why) {
  std::lock_guard lock(registry().mutex);
  kernel.why = why;
  settle(kernel, Kernel::State::Failed);
  bump(counters.kernels_refused);
}

int64_t next_kernel(int timeout_ms, std::string& name, std::string& ir) {
  auto& r = registry();
  std::unique_lock lock(r.mutex);
  r.wanted.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return r.closed || !r.queue.empty(); });
  if (r.closed) {
    return -1;
  }
  if (r.queue.empty()) {
    return 0;
  }
  uint64_t id = r.queue.front();
  r.queue.pop_front();
  r.compiling.insert(id);
  auto& kernel = r.kernels[id - 1].kernel;
  lock.unlock();
  name = kernel.name;
  try {
    ir = codegen::emit(kernel.program, codegen_target());
  } catch (const std::exception& error) {
    fail_kernel(id, error.what());
    return 0;
  }
  return static_cast<int64_t>(id);
}

void finish_kernel(uint64_t id, uint64_t address, uint64_t ns, bool cached) {
  auto& r = registry();
  std::lock_guard lock(r.mutex);
  auto& known = compiled(r, id);
  known.ns = ns;
  known.cached = cached;
  known.kernel.function.store(reinterpret_cast<Kernel::Function>(address), std::memory_order_relaxed);
  settle(known.kernel, Kernel::State::Ready);
  counters.compiled.fetch_add(1, std::memory_order_relaxed);
  counters.compile_ns.fetch_add(ns, std::memory_order_relaxed);
}

void fail_kernel(uint64_t id, const char* why) {
  auto& r = registry();
  std::lock_guard lock(r.mutex);
  auto& kernel = compiled(r, id).kernel;
  kernel.why = why;
  settle(kernel, Kernel::State::Failed);
}

void lock_queue() {
  registry().mutex.lock();
}

void unlock_queue(bool in_child) {
  auto& r = registry();
  if (in_child) {
    r.queue.insert(r.queue.begin(), r.compiling.begin(), r.compiling.end());
    r.compiling.clear();
    new (&r.wanted) std::condition_variable; // the parent's threads wait at it
  }
  r.mutex.unlock();
}

void close_queue() {
  auto& r = registry();
  std::lock_guard lock(r.mutex);
  r.closed = true;
  r.wanted.notify_all();
}

uint64_t kernels_pending() {
  auto& r = registry();
  std::lock_guard lock(r.mutex);
  return r.queue.size() + r.compiling.size();
}

std::string describe_kernels() {
  auto& r = registry();
  std::lock_guard lock(r.mutex);
  std::string out = "[";
  for (const auto& known : r.kernels) {
    constexpr const char* states[] = {"queued", "ready", "failed"};
    out += out.size() > 1 ? ", {\"name\": " : "{\"name\": ";
    append_json(out, known.kernel.name);
    out += ", \"state\": ";
    append_json(out, states[static_cast<size_t>(known.kernel.state.load())]);
    out += ", \"why\": ";
    append_json(out, known.kernel.why);
    out += ", \"ns\": " + std::to_string(known.ns) + ", \"cached\": " + (known.cached ? "true" : "false") + "}";
  }
  return out + "]";
}

} // namespace ae
