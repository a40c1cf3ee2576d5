#include "runtime/arena.h"

#include <algorithm>
#include <utility>

#include "device/device.h"

namespace ae {
namespace {

constexpr size_t kAlign = 64;
constexpr size_t kKeep = size_t(32) << 20; // larger arenas go back to the allocator at once

c10::DataPtr* kept = new c10::DataPtr;
size_t kept_bytes = 0;
size_t lent_bytes = 0;

} // namespace

size_t lay_out(std::vector<ArenaRequest>& requests, std::vector<int64_t>& offset_by_slot) {
  // Largest first, each at the lowest offset that is free for its whole life.
  std::sort(requests.begin(), requests.end(),
            [](const auto& a, const auto& b) { return a.bytes != b.bytes ? a.bytes > b.bytes : a.slot < b.slot; });
  struct Placed {
    size_t begin, end;
    uint32_t first, last;
  };
  std::vector<Placed> placed; // by begin
  size_t total = 0;
  for (const auto& request : requests) {
    size_t bytes = std::max((request.bytes + kAlign - 1) / kAlign * kAlign, kAlign);
    size_t begin = 0;
    for (const auto& other : placed) {
      if (other.last < request.first || request.last < other.first) {
        continue;
      }
      if (begin + bytes <= other.begin) {
        break;
      }
      begin = std::max(begin, other.end);
    }
    Placed here{begin, begin + bytes, request.first, request.last};
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), here, [](const auto& a, const auto& b) { return a.begin < b.begin; }), here);
    offset_by_slot[request.slot] = static_cast<int64_t>(begin);
    total = std::max(total, here.end);
  }
  return total;
}

c10::DataPtr borrow_arena(size_t bytes) {
  if (bytes == 0) {
    lent_bytes = 0;
    return {};
  }
  if (*kept && kept_bytes >= bytes) {
    lent_bytes = kept_bytes;
    kept_bytes = 0;
    return std::exchange(*kept, {}); // a DataPtr that was only moved from still holds the address
  }
  kept->clear();
  kept_bytes = 0;
  lent_bytes = bytes;
  return allocate_block(bytes);
}

void return_arena(c10::DataPtr arena) {
  if (arena && lent_bytes <= kKeep) {
    *kept = std::move(arena);
    kept_bytes = lent_bytes;
  }
}

void drop_arena() {
  kept->clear();
  kept_bytes = 0;
}

} // namespace ae
