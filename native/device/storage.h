// The device's storage: a StorageImpl that knows its place in the region being recorded.
//
// Memory is allocated lazily: a storage made by `empty` or by a recorded op has its size but a null data pointer
// until something runs that touches it. Whoever needs the address calls materialize() or goes through
// Tensor.data_ptr(), whose materializer hook does the same.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <memory>

#include "runtime/fault.h"

namespace ae {

inline constexpr c10::DeviceType kNeuron = c10::DeviceType::PrivateUse1;
inline c10::Device neuron_device() {
  return {kNeuron, 0};
}

class NeuronStorage final : public c10::StorageImpl {
 public:
  using c10::StorageImpl::StorageImpl;
  ~NeuronStorage() override {
    if (auto* owned = alias.load(std::memory_order_relaxed)) {
      c10::intrusive_ptr<c10::StorageImpl>::reclaim(owned);
    }
  }

  // A launch releases its region's storages all at once, more than malloc keeps at hand: each thread keeps them here.
  static void* operator new(size_t bytes);
  static void operator delete(void* memory, size_t bytes);

  // Set while a recorded, not yet launched op touches this storage: `epoch` is then the region's number and
  // `slot` its index in the region. Guarded by the recorder's lock.
  uint64_t epoch = 0;
  uint32_t slot = 0;
  // Regions that touch it, and that write it, among those handed over to the device's thread and not taken back. While
  // there are any, its memory is that thread's to allocate, and `fault` that thread's to set. Guarded likewise.
  uint32_t in_flight = 0;
  uint32_t written_in_flight = 0;
  // Known bounds of what is written in flight, read as `type`, while low <= high.
  int64_t low = 1, high = 0;
  c10::ScalarType type = c10::ScalarType::Undefined;

  // The same memory as a CPU storage that owns nothing (ops/alias.h): made on first use, by whichever thread comes
  // first, and kept. Owned.
  std::atomic<c10::StorageImpl*> alias{nullptr};

  std::shared_ptr<const Fault> fault;
};

// nullptr where the StorageImpl is not the device's own class.
NeuronStorage* as_neuron(c10::StorageImpl* impl);
inline NeuronStorage* as_neuron(const c10::Storage& storage) {
  return as_neuron(storage.unsafeGetStorageImpl());
}

// A storage of `nbytes` whose memory is allocated on first use.
c10::intrusive_ptr<NeuronStorage> make_storage(size_t nbytes);

// Makes the next Tensor.data_ptr() of the storage flush it and give it memory; lasts until materialize(). Lazy storages
// are made armed; one whose memory exists has to be armed again when an op on it is recorded.
void arm(NeuronStorage& storage);

// Gives the storage memory if it has none yet (no flush). Throws OutOfMemoryError.
void materialize(NeuronStorage& storage);
// The same, but what asks for its address goes on to finish the work on it first.
void allocate_memory(NeuronStorage& storage);

// Registers NeuronStorage as what storages of the device are made of.
void register_storage();

} // namespace ae
