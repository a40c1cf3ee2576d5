#include "device/block_pool.h"

#include "common/relax.h"
#include "device/runtime.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>

namespace ae {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kStep = 512;
constexpr size_t kSlabBytes = 256 << 10;
constexpr size_t kLargeBytes = 1 << 20; // as torch.cuda's large_pool
constexpr size_t kHugePage = 2 << 20;
constexpr size_t kHugePageFrom = 4 << 20;

void* system_allocate(size_t bytes) {
  const size_t alignment = bytes >= kHugePageFrom ? kHugePage : kAlignment;
  void* base = nullptr;
  if (posix_memalign(&base, alignment, bytes) != 0) {
    return nullptr;
  }
  if (alignment == kHugePage) {
    madvise(base, bytes, MADV_HUGEPAGE); // a hint: fewer page faults on first touch
  }
  return base;
}

void free_all(const std::vector<void*>& bases) {
  for (void* base : bases) {
    std::free(base);
  }
}

template <class Update>
void update(c10::CachingAllocator::StatArray& stat, bool large, Update&& apply) {
  apply(stat[0]);
  apply(stat[large ? 2 : 1]);
}

void increase(c10::CachingAllocator::StatArray& stat, bool large, size_t amount) {
  update(stat, large, [=](auto& s) { s.increase(amount); });
}

void decrease(c10::CachingAllocator::StatArray& stat, bool large, size_t amount) {
  update(stat, large, [=](auto& s) { s.decrease(amount); });
}

} // namespace

struct alignas(kAlignment) BlockPool::Block {
  Block* next;
  Slab* slab;
  size_t requested;
  uint32_t klass;

  void* data() {
    return this + 1;
  }
  static Block* of(const void* data) {
    return static_cast<Block*>(const_cast<void*>(data)) - 1;
  }
};

struct BlockPool::Slab {
  void* base;
  uint32_t klass;
  uint32_t live; // blocks in use
};

void SpinLock::wait() {
  for (int tries = 0; held_.exchange(true, std::memory_order_acquire); ++tries) {
    while (held_.load(std::memory_order_relaxed)) {
      if (++tries < 64) {
        relax();
      } else {
        sched_yield();
      }
    }
  }
}

BlockPool::BlockPool() {
  static_assert(sizeof(Block) == kAlignment);
  const SystemMemory memory = system_memory();
  limit_ = memory.total + memory.swap;
}

uint32_t BlockPool::class_of(size_t nbytes) {
  if (nbytes <= kSmallClasses * kStep) {
    return nbytes == 0 ? 0 : (nbytes - 1) / kStep;
  }
  const size_t last = nbytes - 1;
  const uint32_t log = std::bit_width(last) - 1;
  return kSmallClasses + (log - 12) * 8 + ((last >> (log - 3)) & 7);
}

size_t BlockPool::class_bytes(uint32_t klass) {
  if (klass < kSmallClasses) {
    return (klass + 1) * kStep;
  }
  const uint32_t log = 12 + (klass - kSmallClasses) / 8;
  return size_t(9 + (klass - kSmallClasses) % 8) << (log - 3);
}

size_t BlockPool::rounded(size_t nbytes) {
  return class_bytes(class_of(nbytes));
}

size_t BlockPool::block_bytes(const void* data) {
  return class_bytes(Block::of(data)->klass);
}

void* BlockPool::allocate(size_t nbytes) {
  const uint32_t klass = class_of(nbytes);
  if (klass >= kClasses) {
    return nullptr;
  }
  {
    std::lock_guard guard(lock_);
    if (Block* block = pop(klass)) [[likely]] {
      ++stats_.hits;
      return hand_out(block, nbytes);
    }
    ++stats_.misses;
  }
  // Another thread may take what was reserved: then try again.
  while (reserve(klass)) {
    std::lock_guard guard(lock_);
    if (Block* block = pop(klass)) {
      return hand_out(block, nbytes);
    }
  }
  return nullptr;
}

void* BlockPool::hand_out(Block* block, size_t nbytes) {
  const size_t bytes = class_bytes(block->klass);
  const bool large = bytes >= kLargeBytes;
  used_[block->klass] = true;
  if (block->slab) {
    ++block->slab->live;
  }
  block->requested = nbytes;
  increase(stats_.blocks, large, 1);
  increase(stats_.block_bytes, large, bytes);
  increase(stats_.requested_bytes, large, nbytes);
  return block->data();
}

void BlockPool::release(void* data, int64_t cache_limit) {
  Block* block = Block::of(data);
  const size_t bytes = class_bytes(block->klass);
  const bool large = bytes >= kLargeBytes;
  std::vector<void*> freed;
  {
    std::lock_guard guard(lock_);
    decrease(stats_.blocks, large, 1);
    decrease(stats_.block_bytes, large, bytes);
    decrease(stats_.requested_bytes, large, block->requested);
    if (block->slab) {
      --block->slab->live;
    }
    push(block);
    if (stats_.cached_bytes > cache_limit) [[unlikely]] {
      shrink(cache_limit, block->slab && block->slab->live == 0, freed);
    }
  }
  free_all(freed);
}

void BlockPool::push(Block* block) {
  block->next = free_[block->klass];
  free_[block->klass] = block;
  ++stats_.cached_blocks;
  stats_.cached_bytes += class_bytes(block->klass);
}

BlockPool::Block* BlockPool::pop(uint32_t klass) {
  Block* block = free_[klass];
  if (block) {
    free_[klass] = block->next;
    --stats_.cached_blocks;
    stats_.cached_bytes -= class_bytes(klass);
  }
  return block;
}

// Puts new memory on the class's free list: one block, or a slab of small ones.
bool BlockPool::reserve(uint32_t klass) {
  if (klass >= kSmallClasses) {
    void* base = map_segment(klass, sizeof(Block) + class_bytes(klass));
    if (!base) {
      return false;
    }
    auto* block = new (base) Block{nullptr, nullptr, 0, klass};
    std::lock_guard guard(lock_);
    push(block);
    return true;
  }
  void* base = map_segment(klass, kSlabBytes);
  if (!base) {
    return false;
  }
  const size_t stride = sizeof(Block) + class_bytes(klass);
  auto* slab = new Slab{base, klass, 0};
  std::lock_guard guard(lock_);
  slabs_.push_back(slab);
  for (size_t offset = 0; offset + stride <= kSlabBytes; offset += stride) {
    push(new (static_cast<char*>(base) + offset) Block{nullptr, slab, 0, klass});
  }
  return true;
}

void* BlockPool::map_segment(uint32_t klass, size_t bytes) {
  const bool large = class_bytes(klass) >= kLargeBytes;
  {
    // Counted before it is there, so that threads together keep to the limit.
    std::lock_guard guard(lock_);
    if (size_t(stats_.segment_bytes[0].current) + bytes > limit()) {
      return nullptr;
    }
    increase(stats_.segments, large, 1);
    increase(stats_.segment_bytes, large, bytes);
  }
  void* base = system_allocate(bytes);
  std::lock_guard guard(lock_);
  if (!base) {
    decrease(stats_.segments, large, 1);
    decrease(stats_.segment_bytes, large, bytes);
    return nullptr;
  }
  const auto begin = reinterpret_cast<uintptr_t>(base);
  segments_[begin] = begin + bytes;
  return base;
}

void BlockPool::forget_segment(void* base, uint32_t klass, size_t bytes) {
  const bool large = class_bytes(klass) >= kLargeBytes;
  segments_.erase(reinterpret_cast<uintptr_t>(base));
  decrease(stats_.segments, large, 1);
  decrease(stats_.segment_bytes, large, bytes);
}

void BlockPool::collect(Block* block, std::vector<void*>& freed) {
  forget_segment(block, block->klass, sizeof(Block) + class_bytes(block->klass));
  freed.push_back(block);
}

void BlockPool::collect_slabs(std::vector<void*>& freed) {
  for (uint32_t klass = 0; klass < kSmallClasses; ++klass) {
    Block* kept = nullptr;
    while (Block* block = pop(klass)) {
      if (block->slab->live > 0) {
        block->next = kept;
        kept = block;
      }
    }
    while (kept) {
      Block* next = kept->next;
      push(kept);
      kept = next;
    }
  }
  std::erase_if(slabs_, [&](Slab* slab) {
    if (slab->live > 0) {
      return false;
    }
    forget_segment(slab->base, slab->klass, kSlabBytes);
    freed.push_back(slab->base);
    delete slab;
    return true;
  });
}

// The cache is over its bound: drop sizes that nobody asked for since the last time, then the largest blocks.
void BlockPool::shrink(int64_t cache_limit, bool slab_emptied, std::vector<void*>& freed) {
  for (uint32_t klass = kSmallClasses; klass < kClasses; ++klass) {
    while (!used_[klass] && free_[klass]) {
      collect(pop(klass), freed);
    }
    used_[klass] = false;
  }
  for (uint32_t klass = kClasses; klass-- > kSmallClasses && stats_.cached_bytes > cache_limit;) {
    while (free_[klass] && stats_.cached_bytes > cache_limit) {
      collect(pop(klass), freed);
    }
  }
  if (slab_emptied && stats_.cached_bytes > cache_limit) {
    collect_slabs(freed);
  }
}

void BlockPool::empty_cache() {
  std::vector<void*> freed;
  {
    std::lock_guard guard(lock_);
    ++stats_.cache_flushes;
    for (uint32_t klass = kSmallClasses; klass < kClasses; ++klass) {
      while (Block* block = pop(klass)) {
        collect(block, freed);
      }
    }
    collect_slabs(freed);
  }
  free_all(freed);
}

bool BlockPool::owns(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  std::lock_guard guard(lock_);
  auto next = segments_.upper_bound(address);
  return next != segments_.begin() && address < std::prev(next)->second;
}

PoolStats BlockPool::stats() {
  std::lock_guard guard(lock_);
  return stats_;
}

void BlockPool::reset_peak() {
  std::lock_guard guard(lock_);
  for (auto* stat : {&stats_.blocks, &stats_.block_bytes, &stats_.requested_bytes, &stats_.segments, &stats_.segment_bytes}) {
    for (auto& s : *stat) {
      s.reset_peak();
    }
  }
}

void BlockPool::reset_accumulated() {
  std::lock_guard guard(lock_);
  for (auto* stat : {&stats_.blocks, &stats_.block_bytes, &stats_.requested_bytes, &stats_.segments, &stats_.segment_bytes}) {
    for (auto& s : *stat) {
      s.reset_accumulated();
    }
  }
  stats_.hits = stats_.misses = stats_.cache_flushes = 0;
}

} // namespace ae
