#include "plan/loop.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstring>

#include "common/parallel.h"

namespace ae {

bool same_values(const Access& access, const std::byte* a, const std::byte* b) {
  int64_t numel = access.numel();
  auto item = static_cast<size_t>(access.item);
  if (access.dense()) {
    if (std::memcmp(a, b, item * static_cast<size_t>(numel)) == 0) {
      return true;
    }
  }
  auto nan = [&](const std::byte* p) {
    switch (access.type) {
      case c10::kFloat:
        return std::isnan(*reinterpret_cast<const float*>(p));
      case c10::kDouble:
        return std::isnan(*reinterpret_cast<const double*>(p));
      case c10::kHalf:
        return std::isnan(static_cast<float>(*reinterpret_cast<const c10::Half*>(p)));
      case c10::kBFloat16:
        return std::isnan(static_cast<float>(*reinterpret_cast<const c10::BFloat16*>(p)));
      default:
        return false;
    }
  };
  for (int64_t i = 0; i < numel; ++i) {
    int64_t rest = i, at = 0;
    for (size_t d = access.dims.size(); d-- > 0;) {
      at += rest % access.dims[d].size * access.dims[d].stride;
      rest /= access.dims[d].size;
    }
    if (std::memcmp(a + at, b + at, item) != 0 && !(nan(a + at) && nan(b + at))) {
      return false;
    }
  }
  return true;
}

void run_range(const Loop& loop, void* const* addresses, int64_t begin, int64_t end) {
  size_t operands = loop.operands.size();
  size_t dims = loop.sizes.size();
  void* at[kMaxLoopOperands];
  int64_t inner = loop.sizes[0];
  int64_t outer = dims > 1 ? loop.sizes[1] : 1;
  while (begin < end) {
    int64_t rest = begin;
    c10::SmallVector<int64_t, 4> index;
    for (size_t d = 0; d < dims; ++d) {
      index.push_back(rest % loop.sizes[d]);
      rest /= loop.sizes[d];
    }
    for (size_t i = 0; i < operands; ++i) {
      auto* p = static_cast<std::byte*>(addresses[i]);
      for (size_t d = 0; d < dims; ++d) {
        p += index[d] * loop.strides[d * operands + i];
      }
      at[i] = p;
    }
    int64_t columns = std::min(inner - index[0], end - begin);
    int64_t rows = 1;
    if (columns == inner && dims > 1) {
      rows = std::min(outer - index[1], (end - begin) / inner);
    }
    loop.kernel->function.load(std::memory_order_relaxed)(at, loop.pairs.data(), columns, rows);
    begin += columns * rows;
  }
}

void run_loop(const Loop& loop, void* const* addresses) {
  if (loop.numel < at::internal::GRAIN_SIZE || at::get_num_threads() == 1) {
    if (C10_LIKELY(loop.sizes.size() <= 2)) {
      return loop.kernel->function.load(std::memory_order_relaxed)(addresses, loop.pairs.data(), loop.sizes[0],
                                                                   loop.sizes.size() > 1 ? loop.sizes[1] : 1);
    }
    return run_range(loop, addresses, 0, loop.numel);
  }
  on_threads(loop.numel, at::internal::GRAIN_SIZE, [&](int64_t begin, int64_t end) { run_range(loop, addresses, begin, end); });
}

} // namespace ae
