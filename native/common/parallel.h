// Sharing work as ATen does: on its threads, cut where it cuts.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

namespace ae {

// The elements that ATen gives a thread of an op on `numel`: all of them where it does not share.
inline int64_t thread_share(int64_t numel, int64_t threads) {
  constexpr int64_t grain = at::internal::GRAIN_SIZE;
  int64_t shares = std::clamp<int64_t>((numel + grain - 1) / grain, 1, threads);
  return numel < grain ? numel : (numel + shares - 1) / shares;
}

// Calls body(begin, end) for shares of [0, count) that have `grain` units or more. at::parallel_for would be serial: it is
// compiled into whoever calls it, and this library is built without OpenMP. Only distances from the first address count,
// nothing is read.
template <class Body>
void on_threads(int64_t count, int64_t grain, const Body& body) {
  auto* first = const_cast<char*>("");
  auto flat = at::from_blob(first, {count}, at::kByte);
  at::TensorIterator::nullary_op(flat).for_each(
      [&](char** at, const int64_t*, int64_t columns, int64_t rows) {
        int64_t begin = at[0] - first;
        body(begin, begin + columns * rows);
      },
      grain);
}

} // namespace ae
