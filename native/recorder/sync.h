// How the rest of the library and the outside make recorded work happen.
#pragma once

#include <cstdint>

namespace c10 {
struct StorageImpl;
}

namespace ae {

enum class FlushReason : uint8_t {
#define X(id, name, text, hint) id,
#include "tables/flush_reasons.def"
#undef X
  Count
};

enum class DirectReason : uint8_t {
#define X(id, name, text, hint) id,
#include "tables/direct_reasons.def"
#undef X
  Count
};

// Launches everything that is recorded and waits for it. Throws what the ops threw. No-op when nothing is pending.
void flush(FlushReason reason);

// flush() only when recorded work touches this storage.
void flush_storage(c10::StorageImpl* storage, FlushReason reason);

// Gives the allocator back what is kept from one launch for the next. Waits until nothing runs.
void drop_scratch();

// Whether any recorded op has not been launched yet.
bool work_pending();

// Sequence number of the region being recorded; every region with a smaller number has been launched.
uint64_t current_epoch();

// Waits until every op has run that was recorded while current_epoch() was `epoch` or less.
void finish_epoch(uint64_t epoch);

// flush() only when a recorded op draws from the device's generators.
void flush_random(FlushReason reason);

} // namespace ae
