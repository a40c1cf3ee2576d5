#include "runtime/cascade.h"

#include <algorithm>
#include <bit>

#include "plan/pointwise.h"

#if defined(__x86_64__)
#define AE_AVX2 __attribute__((target("avx2"))) // nothing is contracted
#else
#define AE_AVX2
#endif

namespace ae {

template <class T>
bool Cascade<T>::available() {
#if defined(__x86_64__)
  return codegen_target().vectors();
#else
  return false;
#endif
}

template <class T>
void Cascade<T>::begin(int64_t total) {
  std::fill_n(&sums_[0][0], kLevels * kSide, Vector{});
  rows_ = total / kRow;
  row_ = kept_ = 0;
  int log = rows_ <= 2 ? 1 : std::bit_width(static_cast<uint64_t>(rows_ - 1));
  power_ = std::max(4, log / kLevels);
}

// Level 0 adds up rows; each time that it has 2^power of them it is added to level 1 and starts anew, and so on.
template <class T>
AE_AVX2 void Cascade<T>::add(const T* values, int64_t rows) {
  int64_t mask = (int64_t(1) << power_) - 1;
  while (rows > 0) {
    int64_t some = std::min(rows, mask + 1 - (row_ & mask));
    Vector a = sums_[0][0], b = sums_[0][1], c = sums_[0][2], d = sums_[0][3];
    for (int64_t i = 0; i < some; ++i, values += kRow) {
      const auto* v = reinterpret_cast<const Vector*>(values);
      a += v[0];
      b += v[1];
      c += v[2];
      d += v[3];
    }
    sums_[0][0] = a;
    sums_[0][1] = b;
    sums_[0][2] = c;
    sums_[0][3] = d;
    row_ += some;
    rows -= some;
    for (int level = 1; level < kLevels && (row_ & mask) == 0; ++level) {
      for (int k = 0; k < kSide; ++k) {
        sums_[level][k] += sums_[level - 1][k];
        sums_[level - 1][k] = Vector{};
      }
      if ((row_ & (mask << (level * power_))) != 0) {
        break;
      }
    }
  }
}

template <class T>
void Cascade<T>::feed(const T* values, int64_t count) {
  if (kept_ > 0) {
    int64_t some = std::min<int64_t>(count, kRow - kept_);
    std::copy_n(values, some, rest_ + kept_);
    kept_ += static_cast<int>(some);
    values += some;
    count -= some;
    if (kept_ < kRow) {
      return;
    }
    add(rest_, 1);
    kept_ = 0;
  }
  int64_t rows = count / kRow;
  add(values, rows);
  kept_ = static_cast<int>(count - rows * kRow);
  std::copy_n(values + rows * kRow, kept_, rest_);
}

template <class T>
AE_AVX2 T Cascade<T>::end() {
  for (int level = 1; level < kLevels; ++level) {
    for (int k = 0; k < kSide; ++k) {
      sums_[0][k] += sums_[level][k];
    }
  }
  int at = 0;
  for (; at + kLanes <= kept_; at += kLanes) {
    sums_[0][0] += *reinterpret_cast<const Vector*>(rest_ + at);
  }
  for (int k = 1; k < kSide; ++k) {
    sums_[0][0] += sums_[0][k];
  }
  T sum = 0;
  for (; at < kept_; ++at) {
    sum += rest_[at];
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    sum += sums_[0][0][lane];
  }
  return T(0) + sum; // it is added to a zero
}

template class Cascade<float>;
template class Cascade<double>;

} // namespace ae
