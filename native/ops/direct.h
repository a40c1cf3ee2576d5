// Per-op execution: an op's CPU kernel on aliases of the same memory, no copy.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/stack.h>

#include "ops/traits.h"

namespace ae {

// Runs the op on the CPU kernels. `stack` holds the arguments and receives the results. Nothing pending may touch
// the arguments. `base` is the index of the first argument.
void run_direct(const OpTraits& traits, torch::jit::Stack& stack, size_t base);

// Dispatch state for running CPU kernels from anywhere: below autograd, autocast, modes and transforms.
class BelowEverything {
 public:
  BelowEverything();
  ~BelowEverything();

 private:
  c10::impl::LocalDispatchKeySet saved_;
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
