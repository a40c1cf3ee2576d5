// What the rest of the library uses of the device's runtime: memory, random numbers.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>

namespace ae {

// The caching allocator (64-byte aligned, bounded cache). Its blocks carry the device `neuron:0`.
c10::DeviceAllocator& device_allocator();

// Raw blocks of the same allocator, for memory that no storage owns (a fragment's arena). Throws OutOfMemoryError.
c10::DataPtr allocate_block(size_t nbytes);

// While it lives, what CPU kernels of this thread allocate comes from the device's pool.
class KernelMemoryScope {
 public:
  KernelMemoryScope() noexcept;
  ~KernelMemoryScope();
  KernelMemoryScope(const KernelMemoryScope&) = delete;
  KernelMemoryScope& operator=(const KernelMemoryScope&) = delete;
};

// While one lives on this thread, an allocation that fails throws without launching pending work first: for code that
// holds the recorder's lock or is launching.
struct NoFlushScope {
  NoFlushScope() noexcept;
  ~NoFlushScope();
  NoFlushScope(const NoFlushScope&) = delete;
  NoFlushScope& operator=(const NoFlushScope&) = delete;
  static bool active() noexcept;
};

// The most bytes that the allocator gets from the system; 0: as many as the machine has (its memory and swap).
void set_memory_limit(int64_t bytes);

// Throws unless the index names the one device; -1 stands for the current device.
void check_device_index(int64_t index);

// The default generator of the device, and the CPU generator inside any generator of the device: kernels draw from
// the latter. Neither flushes.
const at::Generator& default_generator();
at::Generator cpu_generator_of(const at::Generator& generator);

// Called once by ae_init(): registers allocator, guard, hooks, generator, pinned memory and autocast.
void register_device();

} // namespace ae
