// What ATen's generic code asks an accelerator for.
#include "device/device.h"
#include "device/runtime.h"
#include "device/storage.h"
#include "recorder/sync.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include <algorithm>
#include <cstring>

namespace ae {
namespace {

void resize_storage(c10::StorageImpl* impl, size_t nbytes) {
  TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
  flush_storage(impl, FlushReason::StorageChange);
  const size_t before = impl->nbytes();
  c10::DataPtr& old_memory = impl->_mutable_data_ptr_no_checks();
  if (nbytes == before) {
    return;
  }
  NeuronStorage* storage = as_neuron(impl);
  if (old_memory || !storage) {
    c10::DataPtr memory = device_allocator().allocate(nbytes);
    if (const size_t kept = std::min(before, nbytes); kept > 0 && old_memory) {
      std::memcpy(memory.mutable_get(), old_memory.get(), kept);
    }
    impl->set_data_ptr_noswap(std::move(memory));
  } else {
    check_fits(nbytes);
    arm(*storage); // still without memory: it is allocated on first use
  }
  impl->set_nbytes(nbytes);
}

class NeuronHooks final : public at::PrivateUse1HooksInterface {
 public:
  void init() const override {}

  bool isBuilt() const override {
    return true;
  }

  bool isAvailable() const override {
    return true;
  }

  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    check_device_index(index);
    return true;
  }

  c10::DeviceIndex deviceCount() const override {
    return 1;
  }

  c10::DeviceIndex getCurrentDevice() const override {
    return 0;
  }

  void setCurrentDevice(c10::DeviceIndex index) const override {
    check_device_index(index);
  }

  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    check_device_index(index);
    return 0;
  }

  // An index that names no device changes nothing.
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override {
    return 0;
  }

  bool isPinnedPtr(const void* data) const override {
    return is_pinned_pointer(data);
  }

  c10::Allocator* getPinnedMemoryAllocator() const override {
    return at::getHostAllocator(kNeuron);
  }

  c10::Device getDeviceFromPtr(void* data) const override {
    TORCH_CHECK(is_device_pointer(data), "neuron: the address ", data, " is not in memory of the device");
    return neuron_device();
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    check_device_index(index);
    return default_generator();
  }

  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    check_device_index(index);
    return at::Generator(new_generator());
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize_storage(storage.unsafeGetStorageImpl(), nbytes);
  }
};

} // namespace

void register_hooks() {
  at::RegisterPrivateUse1HooksInterface(new NeuronHooks());
}

} // namespace ae
