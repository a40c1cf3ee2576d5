// Pinned memory: a pool of its own, so that is_pinned() can tell it from other host memory.
#include "common/policy.h"
#include "device/block_pool.h"
#include "device/runtime.h"
#include "device/storage.h"

#include <ATen/core/CachingHostAllocator.h>

#include <pthread.h>

namespace ae {
namespace {

BlockPool& pool = *new BlockPool();

void release_block(void* data) {
  pool.release(data, policy(Policy::AllocatorCacheBytes));
}

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    if (nbytes == 0) {
      return {nullptr, c10::Device(c10::kCPU)};
    }
    void* data = pool.allocate(nbytes);
    if (!data) {
      pool.empty_cache();
      data = pool.allocate(nbytes);
    }
    TORCH_CHECK_WITH(OutOfMemoryError, data, "pin_memory: out of host memory. Tried to allocate ", nbytes,
                     " bytes of pinned memory.");
    return {data, data, &release_block, c10::Device(c10::kCPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &release_block;
  }

  void copy_data(void* dest, const void* src, size_t count) const override {
    default_copy_data(dest, src, count);
  }

  // A recorded copy holds its source's storage until it ran.
  bool record_event(void* ptr, void* ctx, c10::Stream stream) override {
    return true;
  }

  void empty_cache() override {
    pool.empty_cache();
  }

  at::HostStats get_stats() override {
    const PoolStats from = pool.stats();
    at::HostStats stats;
    stats.active_requests = from.blocks[0];
    stats.active_bytes = from.block_bytes[0];
    stats.allocations = from.segments[0];
    stats.allocated_bytes = from.segment_bytes[0];
    stats.num_host_alloc = from.segments[0].allocated;
    stats.num_host_free = from.segments[0].freed;
    return stats;
  }

  void reset_accumulated_stats() override {
    pool.reset_accumulated();
  }

  void reset_peak_stats() override {
    pool.reset_peak();
  }
};

} // namespace

bool is_pinned_pointer(const void* pointer) {
  return pool.owns(pointer);
}

void register_host_allocator() {
  at::setHostAllocator(kNeuron, new PinnedAllocator());
  pthread_atfork([] { pool.lock().lock(); }, [] { pool.lock().unlock(); }, [] { pool.lock().unlock(); });
}

} // namespace ae
