#include "common/gil.h"

#include <dlfcn.h>

#include <type_traits>

namespace ae {
namespace {

struct Python {
  int (*is_initialized)() = nullptr;
  int (*holds_gil)() = nullptr;
  void* (*save)() = nullptr;
  void (*restore)(void*) = nullptr;
  Python() {
    auto find = [](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(RTLD_DEFAULT, name));
      return function != nullptr;
    };
    bool all = find(is_initialized, "Py_IsInitialized");
    all &= find(holds_gil, "PyGILState_Check");
    all &= find(save, "PyEval_SaveThread");
    all &= find(restore, "PyEval_RestoreThread");
    if (!all) {
      is_initialized = nullptr;
    }
  }
};

const Python& python() {
  static const Python p;
  return p;
}

} // namespace

GilRelease::GilRelease() {
  const auto& p = python();
  if (p.is_initialized && p.is_initialized() && p.holds_gil()) {
    state_ = p.save();
  }
}

GilRelease::~GilRelease() {
  if (state_ != nullptr) {
    python().restore(state_);
  }
}

} // namespace ae
