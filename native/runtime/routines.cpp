#include "runtime/routines.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "codegen/program.h"

namespace ae {
namespace {

void* torch_routine(const char* name) {
  static void* torch_cpu = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD); // searched with what it needs itself
  return dlsym(torch_cpu != nullptr ? torch_cpu : RTLD_DEFAULT, name);
}

// exp of a masked score. MKL takes every minus infinity out of its vectors, at 20 times the cost of a number; the result
// is 0 without asking it.
template <class T>
void exp_of_masked(int count, const T* from, T* to) {
  using Vm = void (*)(int, const T*, T*, int64_t);
  static const auto vm = reinterpret_cast<Vm>(torch_routine(sizeof(T) == 4 ? "vmsExp" : "vmdExp"));
  constexpr int kSome = 256;
  constexpr T masked = -std::numeric_limits<T>::infinity();
  T values[kSome];
  for (int at = 0; at < count; at += kSome) {
    int some = std::min(kSome, count - at);
    int found = 0;
    for (int i = 0; i < some; ++i) {
      found += from[at + i] == masked;
    }
    if (found == 0) {
      vm(some, from + at, to + at, codegen::kVmMode);
      continue;
    }
    if (found == some) {
      std::fill_n(to + at, some, T(0));
      continue;
    }
    for (int i = 0; i < some; ++i) {
      values[i] = from[at + i] == masked ? T(0) : from[at + i];
    }
    T results[kSome];
    vm(some, values, results, codegen::kVmMode);
    for (int i = 0; i < some; ++i) {
      to[at + i] = from[at + i] == masked ? T(0) : results[i];
    }
  }
}

} // namespace

void* routine(const char* name) {
  if (std::string_view(name) == "ae_exp_f32") {
    return reinterpret_cast<void*>(exp_of_masked<float>);
  }
  if (std::string_view(name) == "ae_exp_f64") {
    return reinterpret_cast<void*>(exp_of_masked<double>);
  }
  return torch_routine(name);
}

} // namespace ae
