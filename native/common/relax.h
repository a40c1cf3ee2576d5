// A hint to the processor within a loop that waits for another thread.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ae {

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb"); // some tens of cycles, as x86's pause; yield does nothing on most cores
#endif
}

} // namespace ae
