// Per-op execution: an op's CPU kernel on aliases of the same memory, no copy.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/stack.h>

#include "device/device.h"
#include "ops/traits.h"
#include "recorder/recorder.h"

namespace ae {

// Runs the op on the CPU kernels. Nothing pending may touch the arguments. Appends to `results` as record() does.
void run_direct(const OpTraits& traits, const c10::IValue* args, Results& results);

// For running CPU kernels from anywhere: below autograd, autocast, modes and transforms, on the device's memory.
class BelowEverything {
 public:
  BelowEverything();
  ~BelowEverything();

 private:
  c10::impl::LocalDispatchKeySet saved_;
  KernelMemoryScope memory_;
};

// Runs ops that draw from CPU's default generator on the device's instead, for ops without a generator argument.
class DefaultGeneratorSwap {
 public:
  DefaultGeneratorSwap();
  ~DefaultGeneratorSwap();
  DefaultGeneratorSwap(const DefaultGeneratorSwap&) = delete;
  DefaultGeneratorSwap& operator=(const DefaultGeneratorSwap&) = delete;

 private:
  void exchange();
};

} // namespace ae
