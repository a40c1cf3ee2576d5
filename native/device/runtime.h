// Between the parts of the device's runtime: not for the rest of the library.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <utility>

namespace ae {

void register_allocator();
void register_host_allocator();
void register_guard();
void register_hooks();
void register_generator();
void register_autocast();
void register_kernel_memory();

// Whether an address lies in memory that the device's allocator, or the pinned one, got from the system.
bool is_device_pointer(const void* pointer);
bool is_pinned_pointer(const void* pointer);

// Throws OutOfMemoryError where so many bytes could never be allocated.
void check_fits(size_t nbytes);

c10::intrusive_ptr<c10::GeneratorImpl> new_generator();

struct SystemMemory {
  size_t total;
  size_t available;
  size_t swap;
};
SystemMemory system_memory();

} // namespace ae
