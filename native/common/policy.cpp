#include "common/policy.h"

#include "common/error.h"
#include "include/adaptive_eager.h"

#include <string>

namespace ae {
namespace {

struct Row {
  const char* name;
  int64_t initial, low, high;
  const char* why;
};

constexpr Row kRows[] = {
#define X(id, name, initial, low, high, why) {name, initial, low, high, why},
#include "tables/policy.def"
#undef X
};
constexpr int kCount = static_cast<int>(Policy::Count);

bool known(int index) {
  if (index >= 0 && index < kCount) {
    return true;
  }
  set_last_error(("no policy constant has the index " + std::to_string(index)).c_str());
  return false;
}

} // namespace

std::array<std::atomic<int64_t>, static_cast<size_t>(Policy::Count)> policy_values = {
#define X(id, name, initial, low, high, why) initial,
#include "tables/policy.def"
#undef X
};

} // namespace ae

using namespace ae;

extern "C" {

int ae_policy_count(void) {
  return kCount;
}

int ae_policy_describe(int index, ae_policy* out) {
  if (!known(index)) {
    return -1;
  }
  const Row& row = kRows[index];
  *out = {row.name, row.initial, row.low, row.high, row.why};
  return 0;
}

int64_t ae_policy_get(int index) {
  return known(index) ? policy_values[index].load(std::memory_order_relaxed) : -1;
}

int ae_policy_set(int index, int64_t value) {
  if (!known(index)) {
    return -1;
  }
  const Row& row = kRows[index];
  if (value < row.low || value > row.high) {
    set_last_error((std::string(row.name) + " is " + std::to_string(value) + ", expected " + std::to_string(row.low) + " to " +
                    std::to_string(row.high))
                       .c_str());
    return -1;
  }
  policy_values[index].store(value, std::memory_order_relaxed);
  return 0;
}

} // extern "C"
