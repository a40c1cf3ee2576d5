#include "device/device.h"
#include "device/runtime.h"
#include "device/storage.h"

namespace ae {

void register_device() {
  register_allocator();
  register_kernel_memory();
  register_storage();
  register_host_allocator();
  register_guard();
  register_hooks();
  register_generator();
  register_autocast();
}

} // namespace ae
