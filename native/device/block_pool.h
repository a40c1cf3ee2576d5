// A pool of 64-byte aligned host memory: free blocks are kept in lists by size class and handed out again.
//
// A block is its header and the memory behind it. The header keeps the size class, so that giving a block back needs no
// lookup. Blocks up to 4 KiB are cut from slabs, larger ones come from the system one by one. Size classes
// are 512 bytes apart up to 4 KiB, then eight for each power of two: at most one eighth of a block is wasted.
//
// Pools are never destroyed: tensors may outlive the end of main().
#pragma once

#include <c10/core/Allocator.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace ae {

class SpinLock {
 public:
  void lock() {
    if (held_.exchange(true, std::memory_order_acquire)) [[unlikely]] {
      wait();
    }
  }
  void unlock() {
    held_.store(false, std::memory_order_release);
  }

 private:
  void wait();
  std::atomic<bool> held_{false};
};

struct PoolStats {
  using StatArray = c10::CachingAllocator::StatArray; // all, blocks below 1 MiB, others
  StatArray blocks{};
  StatArray block_bytes{};
  StatArray requested_bytes{};
  StatArray segments{};
  StatArray segment_bytes{};
  int64_t cached_blocks = 0;
  int64_t cached_bytes = 0;
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t cache_flushes = 0;
};

class BlockPool {
 public:
  BlockPool();

  // nullptr where the limit, or the system, does not grant it.
  void* allocate(size_t nbytes);

  // `cache_limit`: the most bytes of free blocks to keep.
  void release(void* data, int64_t cache_limit);

  // What allocate() takes for a request, and what a block holds.
  static size_t rounded(size_t nbytes);
  static size_t block_bytes(const void* data);

  // Gives free memory back to the system.
  void empty_cache();

  // The most bytes to get from the system.
  size_t limit() const {
    return limit_.load(std::memory_order_relaxed);
  }
  void set_limit(size_t bytes) {
    limit_.store(bytes, std::memory_order_relaxed);
  }

  // Whether the address is in memory got from the system, in use or cached.
  bool owns(const void* pointer);

  PoolStats stats();
  void reset_peak();
  void reset_accumulated();

  // For fork handlers: the child must not inherit a lock that another thread held.
  SpinLock& lock() {
    return lock_;
  }

  struct Block;

 private:
  struct Slab;
  static constexpr uint32_t kSmallClasses = 8;
  static constexpr uint32_t kClasses = kSmallClasses + 35 * 8;

  static uint32_t class_of(size_t nbytes);
  static size_t class_bytes(uint32_t klass);

  void* hand_out(Block* block, size_t nbytes);
  void push(Block* block);
  Block* pop(uint32_t klass);
  bool reserve(uint32_t klass);
  void* map_segment(uint32_t klass, size_t bytes);
  void collect(Block* block, std::vector<void*>& freed);
  void collect_slabs(std::vector<void*>& freed);
  void forget_segment(void* base, uint32_t klass, size_t bytes);
  void shrink(int64_t cache_limit, bool slab_emptied, std::vector<void*>& freed);

  SpinLock lock_;
  std::atomic<size_t> limit_;
  std::array<Block*, kClasses> free_{};
  std::array<bool, kClasses> used_{}; // since the last shrink()
  PoolStats stats_;
  std::vector<Slab*> slabs_;
  std::map<uintptr_t, uintptr_t> segments_; // begin -> end
};

} // namespace ae
