// The door to the recorder for kernels: every op of the device goes through record().
#pragma once

#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include "ops/traits.h"

namespace ae {

// What an op returns, but for returns that are arguments: those the caller has.
using Results = c10::SmallVector<c10::IValue, 3>;

// An op of the device is called with `args`, one an argument of its schema: recorded, or run directly. Appends its
// results. The arguments are only looked at, so they may be borrowed.
void record(const OpTraits& traits, const c10::IValue* args, Results& results);

// The same in the boxed calling convention.
void record_boxed(const OpTraits& traits, torch::jit::Stack& stack);

enum class Mode : uint8_t { Eager, Adaptive };
Mode mode();
void set_mode(Mode mode);
bool launch_blocking();
void set_launch_blocking(bool on);

// Global settings that kernels read are about to change: flushes; `relearn` forgets output metadata.
void context_changes(bool relearn);

// The process is ending: flushes, and runs every later op at its call.
void shut_down();

// Waits until what is in flight has run. The recorder's lock is held.
void wait_for_device();

// Called by the device's thread before it runs anything: ops that its kernels call are never recorded.
void enter_device_thread();

// Recorded and not launched: ops, and bytes of their outputs.
void pending_work(uint64_t& ops, uint64_t& bytes);

// JSON for ae_explain().
std::string explain();

// Nanoseconds per op of matching and keying alone.
double bench_record(int count);

} // namespace ae
