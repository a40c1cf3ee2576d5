// One memory, two tensors: CPU tensors over the device's memory, and device tensors over what CPU kernels return.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "device/storage.h"

namespace ae {

inline constexpr c10::DispatchKeySet kNeuronKeys{c10::DispatchKey::PrivateUse1};
inline constexpr c10::DispatchKeySet kCpuKeys{c10::DispatchKey::CPU};

inline bool on_neuron(const c10::TensorImpl* impl) {
  return impl->key_set().has_backend(c10::BackendComponent::PrivateUse1Bit);
}
inline bool on_neuron(const at::Tensor& t) {
  return on_neuron(t.unsafeGetTensorImpl());
}

// A strided tensor whose metadata and storage say all there is to it (not sparse, nested, quantized or a wrapper).
inline bool is_plain(const c10::TensorImpl* impl) {
  constexpr c10::DispatchKeySet special{c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr, c10::DispatchKey::Quantized,
                                        c10::DispatchKey::NestedTensor, c10::DispatchKey::Python};
  return !impl->key_set().has_any(special) && impl->has_storage();
}

// The storage's memory as a CPU storage that owns nothing (the storage must have memory).
c10::intrusive_ptr<c10::StorageImpl> cpu_storage(NeuronStorage& storage);

// The CPU tensor over a device tensor's memory, with the same sizes, strides, offset, dtype and conj/neg bits.
// Gives the storage memory if it has none. Other tensors come back as they are.
// `keeps`: the alias keeps the storage alive, for kernels that may hold on to it.
at::Tensor cpu_alias(const at::Tensor& tensor, bool keeps = false);

// The device tensor over a CPU kernel's result: takes over the memory, or finds the device storage that it aliases.
at::Tensor neuron_result(const at::Tensor& cpu);

// After a kernel ran on `alias`: carries a changed size or moved memory back to `original`. True if anything changed.
bool carry_back(const at::Tensor& alias, const at::Tensor& original);

// The device storage behind the CPU storage of a cpu_alias(), else nullptr.
c10::StorageImpl* aliased_storage(const c10::StorageImpl* cpu);

// A device tensor on `storage` with the metadata given.
at::Tensor make_tensor(c10::intrusive_ptr<c10::StorageImpl> storage, caffe2::TypeMeta dtype, c10::IntArrayRef sizes,
                       c10::IntArrayRef strides, int64_t offset);

// Moves a CPU storage's memory into `target`.
void adopt_memory(const c10::Storage& cpu, NeuronStorage& target);

} // namespace ae
