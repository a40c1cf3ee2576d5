// The device's allocator: a BlockPool, and what happens when it is empty-handed.
#include "adaptive_eager.h"
#include "common/policy.h"
#include "device/block_pool.h"
#include "device/device.h"
#include "device/runtime.h"
#include "device/storage.h"
#include "recorder/sync.h"

#include <c10/util/Exception.h>

#include <pthread.h>

#include <atomic>

namespace ae {
namespace {

using c10::CachingAllocator::format_size;

BlockPool& pool = *new BlockPool();

std::atomic<int64_t> oom_count{0};
std::atomic<int64_t> retry_count{0};

thread_local int no_flush_depth = 0;

void report(void* data, int64_t bytes) {
  const PoolStats stats = pool.stats();
  c10::reportMemoryUsageToProfiler(data, bytes, stats.block_bytes[0].current, stats.segment_bytes[0].current, neuron_device());
}

void release_block(void* data) {
  if (c10::memoryProfilingEnabled()) [[unlikely]] {
    const int64_t bytes = BlockPool::block_bytes(data);
    pool.release(data, policy(Policy::AllocatorCacheBytes));
    report(data, -bytes);
    return;
  }
  pool.release(data, policy(Policy::AllocatorCacheBytes));
}

[[noreturn]] void throw_out_of_memory(size_t nbytes) {
  ++oom_count;
  const PoolStats stats = pool.stats();
  const int64_t allocated = stats.block_bytes[0].current;
  const int64_t reserved = stats.segment_bytes[0].current;
  c10::reportOutOfMemoryToProfiler(nbytes, allocated, reserved, neuron_device());
  const SystemMemory memory = system_memory();
  TORCH_CHECK_WITH(OutOfMemoryError, false, "neuron out of memory. Tried to allocate ", format_size(nbytes), " (", nbytes,
                   " bytes). Of the limit of ", format_size(pool.limit()), ", ", format_size(allocated), " are allocated and ",
                   format_size(reserved), " reserved; the machine has ", format_size(memory.available), " of ",
                   format_size(memory.total), " available.");
}

void* allocate_slowly(size_t nbytes) {
  ++retry_count;
  pool.empty_cache();
  if (void* data = pool.allocate(nbytes)) {
    return data;
  }
  if (!NoFlushScope::active()) {
    NoFlushScope scope;
    flush(FlushReason::OutOfMemory); // gives back the operands that recorded ops keep alive
    ae_memory_empty_cache();
    if (void* data = pool.allocate(nbytes)) {
      return data;
    }
  }
  throw_out_of_memory(nbytes);
}

class NeuronAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    if (nbytes == 0) {
      return {nullptr, neuron_device()};
    }
    void* data = pool.allocate(nbytes);
    if (!data) [[unlikely]] {
      data = allocate_slowly(nbytes);
    }
    if (c10::memoryProfilingEnabled()) [[unlikely]] {
      report(data, BlockPool::block_bytes(data));
    }
    return {data, data, &release_block, neuron_device()};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &release_block;
  }

  void copy_data(void* dest, const void* src, size_t count) const override {
    default_copy_data(dest, src, count);
  }

  bool initialized() override {
    return true;
  }

  void emptyCache(c10::MempoolId_t) override {
    ae_memory_empty_cache();
  }

  // Ops run in program order whatever their stream, and recorded ones keep their storages: nothing to wait for.
  void recordStream(const c10::DataPtr&, c10::Stream) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    check_device_index(device);
    const PoolStats from = pool.stats();
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocation = stats.active = from.blocks;
    stats.allocated_bytes = stats.active_bytes = from.block_bytes;
    stats.requested_bytes = from.requested_bytes;
    stats.segment = from.segments;
    stats.reserved_bytes = from.segment_bytes;
    stats.num_alloc_retries = retry_count;
    stats.num_ooms = oom_count;
    stats.num_device_alloc = from.segments[0].allocated;
    stats.num_device_free = from.segments[0].freed;
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    check_device_index(device);
    pool.reset_accumulated();
    oom_count = 0;
    retry_count = 0;
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    check_device_index(device);
    pool.reset_peak();
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    check_device_index(device);
    const SystemMemory memory = system_memory();
    return {memory.available, memory.total};
  }
};

NeuronAllocator& allocator = *new NeuronAllocator();

} // namespace

NoFlushScope::NoFlushScope() noexcept {
  ++no_flush_depth;
}

NoFlushScope::~NoFlushScope() {
  --no_flush_depth;
}

bool NoFlushScope::active() noexcept {
  return no_flush_depth > 0;
}

c10::DeviceAllocator& device_allocator() {
  return allocator;
}

c10::DataPtr allocate_block(size_t nbytes) {
  return allocator.allocate(nbytes);
}

void set_memory_limit(int64_t bytes) {
  const SystemMemory memory = system_memory();
  pool.set_limit(bytes > 0 ? size_t(bytes) : memory.total + memory.swap);
}

bool is_device_pointer(const void* pointer) {
  return pool.owns(pointer);
}

void check_fits(size_t nbytes) {
  if (nbytes > pool.limit()) [[unlikely]] {
    throw_out_of_memory(nbytes);
  }
}

void register_allocator() {
  c10::SetAllocator(kNeuron, &allocator);
  pthread_atfork([] { pool.lock().lock(); }, [] { pool.lock().unlock(); }, [] { pool.lock().unlock(); });
}

} // namespace ae

void ae_memory_stats(ae_memory* out) {
  const ae::PoolStats stats = ae::pool.stats();
  out->allocated = stats.block_bytes[0].current;
  out->allocated_peak = stats.block_bytes[0].peak;
  out->allocated_total = stats.block_bytes[0].allocated;
  out->freed_total = stats.block_bytes[0].freed;
  out->reserved = stats.segment_bytes[0].current;
  out->reserved_peak = stats.segment_bytes[0].peak;
  out->active_blocks = stats.blocks[0].current;
  out->cached_blocks = stats.cached_blocks;
  out->cache_hits = stats.hits;
  out->cache_misses = stats.misses;
  out->cache_flushes = stats.cache_flushes;
  out->ooms = ae::oom_count;
}

void ae_memory_reset_peak(void) {
  ae::allocator.resetPeakStats(0);
}

void ae_memory_reset_accumulated(void) {
  ae::allocator.resetAccumulatedStats(0);
}

void ae_memory_empty_cache(void) {
  ae::drop_scratch();
  ae::pool.empty_cache();
}

void ae_memory_set_limit(int64_t bytes) {
  ae::set_memory_limit(bytes);
}
