// Memory that lives no longer than a launch: temporaries share it by lifetime.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>
#include <vector>

namespace ae {

struct ArenaRequest {
  uint32_t slot;
  size_t bytes;
  uint32_t first, last; // steps between which it is in use, both included
};

// Gives each request an offset such that no two in use at the same step overlap. Returns the arena's size in bytes.
size_t lay_out(std::vector<ArenaRequest>& requests, std::vector<int64_t>& offset_by_slot);

// The arena kept between launches (under the recorder's lock), at least `bytes` large.
c10::DataPtr borrow_arena(size_t bytes);
void return_arena(c10::DataPtr arena);
void drop_arena();

} // namespace ae
