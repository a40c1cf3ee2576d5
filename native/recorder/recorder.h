// The door to the recorder for kernels: every op of the device goes through record().
#pragma once

#include <ATen/core/stack.h>

#include "ops/traits.h"

namespace ae {

// Takes the op's arguments off the stack and puts its results there: recorded, or run directly.
void record(const OpTraits& traits, torch::jit::Stack& stack);

enum class Mode : uint8_t { Eager, Adaptive };
Mode mode();
void set_mode(Mode mode);
bool launch_blocking();
void set_launch_blocking(bool on);

// Global settings that kernels read are about to change: flushes; `relearn` forgets output metadata.
void context_changes(bool relearn);

// The process is ending: flushes, and runs every later op at its call.
void shut_down();

// Recorded and not launched: ops, and bytes of their outputs.
void pending_work(uint64_t& ops, uint64_t& bytes);

// JSON for ae_explain().
std::string explain();

// Nanoseconds per op of matching and keying alone.
double bench_record(int count);

} // namespace ae
