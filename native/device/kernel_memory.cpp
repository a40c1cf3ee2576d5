// What CPU kernels allocate while they work for the device comes from the device's pool: results become the device's
// without a copy, are counted, and large ones do not pay for fresh pages each time.
//
// PyTorch has one CPU allocator; this one stands before it and steps in only inside a KernelMemoryScope.
#include <c10/core/CPUAllocator.h>

#include "device/device.h"
#include "device/runtime.h"

namespace ae {
namespace {

thread_local int depth = 0;

c10::DeleterFnPtr stock_deleter = nullptr;

// Memory that was allocated raw comes back without saying which of the two it is from.
void release(void* data) {
  (is_device_pointer(data) ? device_allocator().raw_deleter() : stock_deleter)(data);
}

class KernelAllocator final : public c10::Allocator {
 public:
  explicit KernelAllocator(c10::Allocator* stock) : stock_(stock) {}

  c10::DataPtr allocate(size_t nbytes) override {
    if (depth == 0) [[likely]] {
      return stock_->allocate(nbytes);
    }
    auto block = allocate_block(nbytes);
    block.unsafe_set_device(c10::Device(c10::DeviceType::CPU));
    return block;
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return stock_deleter ? &release : nullptr;
  }

  void copy_data(void* to, const void* from, std::size_t count) const override {
    stock_->copy_data(to, from, count);
  }

 private:
  c10::Allocator* stock_;
};

} // namespace

KernelMemoryScope::KernelMemoryScope() noexcept {
  ++depth;
}

KernelMemoryScope::~KernelMemoryScope() {
  --depth;
}

void register_kernel_memory() {
  auto* stock = c10::GetCPUAllocator();
  stock_deleter = stock->raw_deleter();
  c10::SetCPUAllocator(new KernelAllocator(stock), /*priority=*/1);
}

} // namespace ae
