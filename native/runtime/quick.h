// Quick steps: what a step's kernel does, without the set-up that PyTorch does before it.
//
// For small tensors the dispatcher, output checks, TensorIterator, expand, as_strided and the like cost more than the
// work. In a fragment all of that is known beforehand. A quick step moves data by itself, or calls the very routine that
// the kernel would end in with the same arguments, or (batch norm) goes through the kernel's own operations in the
// kernel's order, several sums at a time: it never computes a number in a way of its own, so the bits are the kernel's.
// It is compared with the kernel all the same, the second time that the step runs.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "ops/traits.h"

namespace ae {

struct Quick {
  virtual ~Quick() = default;
  // Writes what the kernel would write. False: the kernel has to, and nothing that it reads was changed.
  virtual bool run() = 0;

  std::vector<at::Tensor> written;
  bool reads_written = false; // what is written there depends on what was there
  bool seen = false;          // the kernel ran: what runs once is not worth a comparison
  bool proven = false;        // compared with the kernel
};

// `arguments`: the `count` arguments of the op (of its out= overload, if it has one), with its results last. They stay
// where they are; their storages' memory and their numbers change from run to run. nullptr where the kernel has to run.
std::unique_ptr<Quick> make_quick(const OpTraits& traits, const c10::IValue* arguments, size_t count);

// The comparison of a quick step with its kernel, on the same memory: what MKL computes may depend on addresses.
class QuickTrial {
 public:
  explicit QuickTrial(Quick& quick); // before the kernel runs
  // After it ran. False: the quick step gave other bits. Either way the kernel's are there.
  bool passes();

 private:
  struct Extent {
    std::byte* begin;
    std::vector<std::byte> before, after;
  };
  Quick& quick_;
  std::vector<Extent> extents_;
};

} // namespace ae
