#include "device/storage.h"

#include "adaptive_eager.h"
#include "common/error.h"
#include "device/device.h"
#include "device/runtime.h"
#include "recorder/sync.h"

#include <typeinfo>

namespace ae {
namespace {

// Memory of storages that are gone, linked through its first word.
struct FreeList {
  void* first = nullptr;
  uint32_t count = 0;
};
#if defined(__SANITIZE_ADDRESS__)
constexpr uint32_t kMostFree = 0; // it is to see every release
#else
constexpr uint32_t kMostFree = 1024;
#endif
constinit thread_local FreeList free_list;

// Empties the thread's list when the thread ends, and leaves it as full: what the thread releases later is not kept.
struct FreeListEnd {
  bool there = true;
  ~FreeListEnd() {
    free_list.count = kMostFree;
    while (void* memory = free_list.first) {
      free_list.first = *static_cast<void**>(memory);
      ::operator delete(memory);
    }
  }
};
thread_local FreeListEnd free_list_end;

// What Tensor.data_ptr() runs before it hands out the address.
void prepare_for_access(c10::StorageImpl* impl) {
  flush_storage(impl, FlushReason::RawPointer);
  if (NeuronStorage* storage = as_neuron(impl)) {
    materialize(*storage);
  }
}

c10::intrusive_ptr<c10::StorageImpl> create(c10::StorageImpl::use_byte_size_t, c10::SymInt size_bytes, c10::DataPtr data_ptr,
                                            c10::Allocator* allocator, bool resizable) {
  const bool lazy = data_ptr == nullptr;
  data_ptr.unsafe_set_device(neuron_device());
  if (!allocator) {
    allocator = &device_allocator();
  }
  auto storage = c10::make_intrusive<NeuronStorage>(c10::StorageImpl::use_byte_size_t(), std::move(size_bytes), std::move(data_ptr),
                                                    allocator, resizable);
  if (lazy) {
    if (!storage->sym_nbytes().is_heap_allocated()) {
      check_fits(storage->nbytes());
    }
    arm(*storage);
  }
  return storage;
}

} // namespace

void* NeuronStorage::operator new(size_t bytes) {
  FreeList& list = free_list;
  if (void* memory = list.first) {
    list.first = *static_cast<void**>(memory);
    --list.count;
    return memory;
  }
  return ::operator new(bytes);
}

void NeuronStorage::operator delete(void* memory, size_t bytes) {
  FreeList& list = free_list;
  if (list.count == kMostFree) {
    ::operator delete(memory, bytes);
    return;
  }
  if (list.first == nullptr) {
    (void)free_list_end.there; // from now on it will end
  }
  *static_cast<void**>(memory) = list.first;
  list.first = memory;
  ++list.count;
}

NeuronStorage* as_neuron(c10::StorageImpl* impl) {
  return impl && typeid(*impl) == typeid(NeuronStorage) ? static_cast<NeuronStorage*>(impl) : nullptr;
}

c10::intrusive_ptr<NeuronStorage> make_storage(size_t nbytes) {
  check_fits(nbytes);
  auto storage = c10::make_intrusive<NeuronStorage>(c10::StorageImpl::use_byte_size_t(), c10::SymInt(int64_t(nbytes)),
                                                    c10::DataPtr(nullptr, neuron_device()), &device_allocator(),
                                                    /*resizable=*/true);
  arm(*storage);
  return storage;
}

void arm(NeuronStorage& storage) {
  if (!storage.has_materializer()) {
    storage.set_materializer(&prepare_for_access);
  }
}

void allocate_memory(NeuronStorage& storage) {
  if (!storage._mutable_data_ptr_no_checks() && storage.nbytes() > 0) {
    storage.set_data_ptr_noswap(device_allocator().allocate(storage.nbytes()));
  }
}

void materialize(NeuronStorage& storage) {
  allocate_memory(storage);
  if (storage.has_materializer()) {
    storage.clear_materializer();
  }
}

void register_storage() {
  c10::SetStorageImplCreate(kNeuron, &create);
}

} // namespace ae

uint64_t ae_storage_address(uint64_t storage) {
  uint64_t address = 0;
  ae::guarded([&] {
    ae::set_last_error(""); // a storage of no bytes has the address 0, and no error
    auto* impl = reinterpret_cast<c10::StorageImpl*>(storage);
    ae::NeuronStorage* neuron = ae::as_neuron(impl);
    TORCH_CHECK(neuron, "storage_address: expected a storage of the neuron device");
    ae::flush_storage(impl, ae::FlushReason::RawPointer);
    ae::materialize(*neuron);
    address = reinterpret_cast<uint64_t>(impl->data());
  });
  return address;
}
