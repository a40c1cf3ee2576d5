// Policy constants: one table (tables/policy.def), read as `policy(Policy::MaxRegionOps)`.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace ae {

enum class Policy : uint8_t {
#define X(id, name, initial, low, high, why) id,
#include "tables/policy.def"
#undef X
  Count
};

extern std::array<std::atomic<int64_t>, static_cast<size_t>(Policy::Count)> policy_values;

inline int64_t policy(Policy which) {
  return policy_values[static_cast<size_t>(which)].load(std::memory_order_relaxed);
}

} // namespace ae
