#include "ops/alias.h"

#include <ATen/SparseTensorImpl.h>
#include <ATen/native/Resize.h>
#include <c10/core/Allocator.h>

#include "device/device.h"

namespace ae {
namespace {

// Marks CPU storages that alias device memory; the context is the device storage.
void alias_deleter(void*) {}

// The same for storages on the device that are not its own (memory of others, through from_blob or DLPack), and for
// kernels that may hold on to the alias: it keeps the storage; the context owns a reference.
void keeping_deleter(void* context) {
  delete static_cast<c10::Storage*>(context);
}

c10::intrusive_ptr<c10::StorageImpl> keeping_alias(const c10::Storage& storage) {
  auto* impl = storage.unsafeGetStorageImpl();
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), impl->nbytes(),
      c10::DataPtr(const_cast<void*>(impl->data()), new c10::Storage(storage), &keeping_deleter, c10::Device(c10::DeviceType::CPU)),
      nullptr, false);
}

// Memory for CPU kernels that resize an alias: theirs to take, the device's to keep.
class AliasAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    auto block = allocate_block(nbytes);
    void* data = block.get();
    auto deleter = block.get_deleter();
    return {data, block.release_context(), deleter, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }
};

AliasAllocator& alias_allocator() {
  static auto* allocator = new AliasAllocator;
  return *allocator;
}

} // namespace

c10::StorageImpl* aliased_storage(const c10::StorageImpl* cpu) {
  const auto& data = cpu->data_ptr();
  if (data.get_deleter() == &alias_deleter) {
    return static_cast<NeuronStorage*>(data.get_context());
  }
  if (C10_UNLIKELY(data.get_deleter() == &keeping_deleter)) {
    return static_cast<c10::Storage*>(data.get_context())->unsafeGetStorageImpl();
  }
  return nullptr;
}

c10::intrusive_ptr<c10::StorageImpl> cpu_storage(NeuronStorage& storage) {
  void* data = const_cast<void*>(storage.data());
  auto* alias = storage.alias.load(std::memory_order_acquire);
  if (C10_UNLIKELY(alias == nullptr)) {
    auto made = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
        c10::DataPtr(data, &storage, &alias_deleter, c10::Device(c10::DeviceType::CPU)), &alias_allocator(), true);
    if (storage.alias.compare_exchange_strong(alias, made.get(), std::memory_order_acq_rel)) {
      auto copy = made;
      alias = copy.release();
      return made;
    }
  }
  if (C10_UNLIKELY(alias->data() != data || alias->nbytes() != storage.nbytes())) {
    alias->set_data_ptr_noswap(c10::DataPtr(data, &storage, &alias_deleter, c10::Device(c10::DeviceType::CPU)));
    alias->set_nbytes(storage.nbytes());
  }
  return c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(alias);
}

at::Tensor cpu_alias(const at::Tensor& tensor, bool keeps) {
  if (!tensor.defined() || !on_neuron(tensor)) {
    return tensor;
  }
  auto* impl = tensor.unsafeGetTensorImpl();
  if (C10_UNLIKELY(!is_plain(impl))) {
    if (impl->layout() == at::kSparse) {
      auto* sparse = static_cast<at::SparseTensorImpl*>(impl);
      auto result = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(c10::DispatchKey::SparseCPU), impl->dtype());
      auto* out = static_cast<at::SparseTensorImpl*>(result.unsafeGetTensorImpl());
      out->resize_(sparse->sparse_dim(), sparse->dense_dim(), impl->sizes());
      out->set_indices_and_values_unsafe(cpu_alias(sparse->indices()), cpu_alias(sparse->values()));
      out->set_coalesced(sparse->coalesced());
      return result;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(false, "neuron: a tensor with dispatch keys ", impl->key_set(), " has no CPU counterpart here");
  }
  auto* storage = as_neuron(impl->storage());
  if (C10_LIKELY(storage != nullptr)) {
    if (C10_UNLIKELY(storage->fault != nullptr)) {
      storage->fault->raise();
    }
    if (C10_UNLIKELY(storage->data() == nullptr)) {
      materialize(*storage);
    }
  }
  auto alias = c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(storage && !keeps ? cpu_storage(*storage) : keeping_alias(impl->storage())), kCpuKeys, impl->dtype());
  alias->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
  if (C10_UNLIKELY(impl->is_conj())) {
    alias->_set_conj(true);
  }
  if (C10_UNLIKELY(impl->is_neg())) {
    alias->_set_neg(true);
  }
  if (C10_UNLIKELY(impl->is_wrapped_number())) {
    alias->set_wrapped_number(true);
  }
  at::Tensor result(std::move(alias));
  return result;
}

void adopt_memory(const c10::Storage& cpu, NeuronStorage& target) {
  auto* source = cpu.unsafeGetStorageImpl();
  auto& data = source->_mutable_data_ptr_no_checks();
  target.set_nbytes(source->nbytes());
  if (cpu.use_count() == 1) {
    void* pointer = data.get();
    auto deleter = data.get_deleter();
    void* context = data.release_context();
    target.set_data_ptr_noswap(c10::DataPtr(pointer, context, deleter, neuron_device()));
    return;
  }
  // Somebody else keeps the CPU storage: share it instead of moving its memory.
  auto* keeper = new c10::Storage(cpu);
  target.set_data_ptr_noswap(
      c10::DataPtr(data.get(), keeper, [](void* context) { delete static_cast<c10::Storage*>(context); }, neuron_device()));
}

at::Tensor make_tensor(c10::intrusive_ptr<c10::StorageImpl> storage, caffe2::TypeMeta dtype, c10::IntArrayRef sizes,
                       c10::IntArrayRef strides, int64_t offset) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(storage)), kNeuronKeys, dtype);
  impl->set_sizes_and_strides(sizes, strides, offset);
  return at::Tensor(std::move(impl));
}

at::Tensor neuron_result(const at::Tensor& cpu) {
  if (!cpu.defined() || on_neuron(cpu) || cpu.device().type() != c10::DeviceType::CPU) {
    return cpu;
  }
  auto* impl = cpu.unsafeGetTensorImpl();
  if (C10_UNLIKELY(!is_plain(impl))) {
    if (impl->layout() == at::kSparse) {
      auto* sparse = static_cast<at::SparseTensorImpl*>(impl);
      auto result =
          at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(c10::DispatchKey::SparsePrivateUse1), impl->dtype());
      auto* out = static_cast<at::SparseTensorImpl*>(result.unsafeGetTensorImpl());
      out->resize_(sparse->sparse_dim(), sparse->dense_dim(), impl->sizes());
      out->set_indices_and_values_unsafe(neuron_result(sparse->indices()), neuron_result(sparse->values()));
      out->set_coalesced(sparse->coalesced());
      return result;
    }
    return cpu;
  }
  c10::intrusive_ptr<c10::StorageImpl> storage;
  if (auto* original = aliased_storage(cpu.storage().unsafeGetStorageImpl())) {
    storage = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(original);
  } else {
    auto fresh = make_storage(0);
    adopt_memory(cpu.storage(), *fresh);
    storage = std::move(fresh);
  }
  auto result = make_tensor(std::move(storage), impl->dtype(), impl->sizes(), impl->strides(), impl->storage_offset());
  auto* out = result.unsafeGetTensorImpl();
  if (C10_UNLIKELY(impl->is_conj())) {
    out->_set_conj(true);
  }
  if (C10_UNLIKELY(impl->is_neg())) {
    out->_set_neg(true);
  }
  if (C10_UNLIKELY(impl->is_wrapped_number())) {
    out->set_wrapped_number(true);
  }
  return result;
}

bool carry_back(const at::Tensor& alias, const at::Tensor& original) {
  auto* from = alias.unsafeGetTensorImpl();
  auto* to = original.unsafeGetTensorImpl();
  if (C10_UNLIKELY(!is_plain(to))) {
    if (to->layout() == at::kSparse && from->layout() == at::kSparse) {
      auto* source = static_cast<at::SparseTensorImpl*>(from);
      auto* target = static_cast<at::SparseTensorImpl*>(to);
      target->raw_resize_(source->sparse_dim(), source->dense_dim(), from->sizes());
      target->set_indices_and_values_unsafe(neuron_result(source->indices()), neuron_result(source->values()));
      target->set_coalesced(source->coalesced());
    }
    return true;
  }
  bool changed = false;
  auto* original_impl = to->storage().unsafeGetStorageImpl();
  auto* storage = as_neuron(original_impl);
  auto* cpu = from->storage().unsafeGetStorageImpl();
  if (C10_LIKELY(aliased_storage(cpu) == original_impl)) {
    if (C10_UNLIKELY(cpu->nbytes() != original_impl->nbytes())) {
      original_impl->set_nbytes(cpu->nbytes());
    }
  } else if (storage != nullptr && cpu == storage->alias.load(std::memory_order_relaxed)) {
    // The kernel resized: the alias has memory of its own now, which the device's storage takes over.
    auto& data = cpu->_mutable_data_ptr_no_checks();
    void* pointer = data.get();
    auto deleter = data.get_deleter();
    storage->set_nbytes(cpu->nbytes());
    storage->set_data_ptr_noswap(c10::DataPtr(pointer, data.release_context(), deleter, neuron_device()));
    cpu->set_data_ptr_noswap(c10::DataPtr(pointer, storage, &alias_deleter, c10::Device(c10::DeviceType::CPU)));
    changed = true;
  } else {
    // The kernel gave the tensor another storage.
    to->set_storage_keep_dtype(neuron_result(alias).storage());
    changed = true;
  }
  if (from->sizes() != to->sizes() || from->strides() != to->strides() || from->storage_offset() != to->storage_offset()) {
    to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
    changed = true;
  }
  return changed;
}

} // namespace ae
