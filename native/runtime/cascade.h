// The sum of all elements of a contiguous tensor, handed over piece by piece, in the order of ATen's cascade sum
// (aten/src/ATen/native/cpu/SumKernel.cpp: row_sum and multi_row_sum over vectors).
#pragma once

#include <cstddef>
#include <cstdint>

namespace ae {

template <class T>
class Cascade {
 public:
  // Whether ATen's vectors are those that this is made for.
  static bool available();

  void begin(int64_t total);
  void feed(const T* values, int64_t count);
  T end();

 private:
  static constexpr int kLanes = 32 / sizeof(T); // ATen has no wider build of this kernel
  static constexpr int kSide = 4;               // vectors side by side
  static constexpr int kLevels = 4;
  static constexpr int kRow = kSide * kLanes;
  typedef T Vector __attribute__((vector_size(32), aligned(sizeof(T)), may_alias));

  void add(const T* values, int64_t rows);

  Vector sums_[kLevels][kSide];
  int64_t row_ = 0, rows_ = 0; // done, and in all
  int power_ = 0;              // rows to a sum of the next level, as a power of 2
  T rest_[2 * kRow];           // less than a row: of the piece under way, or what is left in the end
  int kept_ = 0;
};

} // namespace ae
