// Compiled loops: one a program, shared by every fragment that needs it, and the queue of those that are to be compiled.
//
// Launches ask for kernels and never wait: the compile service (adaptive_eager/_compile.py) takes them from the queue
// on a thread of its own and hands back the function's address.
#pragma once

#include <atomic>
#include <string>

#include "codegen/program.h"

namespace ae {

struct Kernel {
  using Function = void (*)(void* const* operands, const int64_t* strides, int64_t inner, int64_t outer);

  enum class State : uint8_t { Queued, Ready, Failed };

  codegen::Program program;
  std::string name; // of its ops: "mul-add-tanh"
  std::atomic<Function> function{nullptr};
  std::atomic<State> state{State::Queued};
  std::string why; // Failed

  bool ready() const {
    return state.load(std::memory_order_acquire) == State::Ready;
  }
  bool failed() const {
    return state.load(std::memory_order_acquire) == State::Failed;
  }
};

// The kernel of the program: made and queued when it is asked for the first time. Lives for ever. nullptr once there
// are as many as policy max_kernels allows.
Kernel* kernel_for(const codegen::Program& program);

// Never use this kernel again (its results were wrong): fragments plan without it.
void refuse(Kernel& kernel, const std::string& why);

// For the compile service. next: waits at most so long for a kernel that is wanted; -1 once close_queue() was called, 0
// if none came, else its number.
int64_t next_kernel(int timeout_ms, std::string& name, std::string& ir);
void finish_kernel(uint64_t id, uint64_t address, uint64_t ns, bool cached);
void fail_kernel(uint64_t id, const char* why);
void close_queue();
// Around a fork: the child has to find the lock free, and what was being compiled is wanted again there.
void lock_queue();
void unlock_queue(bool in_child);

// Kernels that are queued or being compiled.
uint64_t kernels_pending();

// JSON: [{"name", "ops", "state", "why", "ns", "cached"}].
std::string describe_kernels();

} // namespace ae
