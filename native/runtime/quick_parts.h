// What quick steps are made of, and the makers by op: each looks at a step's arguments and either takes it or not.
#pragma once

#if defined(__x86_64__) // the instruction sets that PyTorch's binaries have kernels for: ATen's stubs look different without
#define AE_ATEN_STUBS
#define HAVE_AVX2_CPU_DEFINITION
#define HAVE_AVX512_CPU_DEFINITION
#endif

#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <cstddef>

#include "runtime/quick.h"

namespace ae {

// The address of an element, read from its storage at each run.
struct Place {
  c10::StorageImpl* storage = nullptr;
  int64_t offset = 0; // bytes

  Place() = default;
  explicit Place(const at::Tensor& tensor)
      : storage(tensor.storage().unsafeGetStorageImpl()),
        offset(tensor.storage_offset() * static_cast<int64_t>(tensor.element_size())) {}
  std::byte* data() const {
    return static_cast<std::byte*>(const_cast<void*>(storage->data())) + offset;
  }
};

// Copies elements of one strided view to those of another of the same shape.
class StridedCopy {
 public:
  StridedCopy() = default;
  // Strides in elements of `item` bytes.
  StridedCopy(c10::IntArrayRef sizes, c10::IntArrayRef from_strides, c10::IntArrayRef to_strides, int64_t item);
  void run(const std::byte* from, std::byte* to) const {
    dims_.empty() ? one(from, to) : along(dims_.data(), dims_.size(), from, to);
  }

 private:
  struct Dim {
    int64_t size, from, to; // strides in bytes
  };
  void one(const std::byte* from, std::byte* to) const;
  void along(const Dim* dim, size_t count, const std::byte* from, std::byte* to) const;

  c10::SmallVector<Dim, 4> dims_; // outermost first
  size_t chunk_ = 0;              // bytes in a row in both
};

// A step's arguments: those that the schema of the functional op names, and its results.
struct QuickCall {
  const c10::IValue* arguments;
  size_t count;
  const c10::IValue* results;
  size_t result_count;

  const at::Tensor& tensor(size_t i) const {
    return arguments[i].toTensor();
  }
  const at::Tensor& result(size_t i = 0) const {
    return results[i].toTensor();
  }
};

// Above this, kernels share the work among threads and set-up does not matter.
int64_t quick_limit();
// Strided memory that holds its values as they are.
bool plain(const at::Tensor& tensor);
bool plain(const c10::IValue& value);
// None, or an undefined tensor.
inline bool absent(const c10::IValue& value) {
  return value.isNone() || (value.isTensor() && !value.toTensor().defined());
}
inline bool apart(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().unsafeGetStorageImpl() != b.storage().unsafeGetStorageImpl();
}
// A list of integers in whichever form the schema has it, or nothing.
bool read_ints(const c10::IValue& value, c10::SmallVectorImpl<int64_t>& ints);

// A maker that takes nothing, where ATen's stubs are not there.
#define AE_NEVER_QUICK(maker)                      \
  std::unique_ptr<Quick> maker(const QuickCall&) { \
    return nullptr;                                \
  }

using QuickMaker = std::unique_ptr<Quick> (*)(const QuickCall&);
std::unique_ptr<Quick> quick_roll(const QuickCall& call);
std::unique_ptr<Quick> quick_cat(const QuickCall& call);
std::unique_ptr<Quick> quick_index_select(const QuickCall& call);
std::unique_ptr<Quick> quick_mm(const QuickCall& call);
std::unique_ptr<Quick> quick_addmm(const QuickCall& call);
std::unique_ptr<Quick> quick_bmm(const QuickCall& call);
std::unique_ptr<Quick> quick_layer_norm(const QuickCall& call);
std::unique_ptr<Quick> quick_attention(const QuickCall& call);
std::unique_ptr<Quick> quick_sum(const QuickCall& call);
std::unique_ptr<Quick> quick_argmax(const QuickCall& call);
std::unique_ptr<Quick> quick_softmax(const QuickCall& call);
std::unique_ptr<Quick> quick_log_softmax(const QuickCall& call);
std::unique_ptr<Quick> quick_softmax_backward(const QuickCall& call);
std::unique_ptr<Quick> quick_log_softmax_backward(const QuickCall& call);
std::unique_ptr<Quick> quick_batch_norm(const QuickCall& call);
std::unique_ptr<Quick> quick_batch_norm_backward(const QuickCall& call);

} // namespace ae
