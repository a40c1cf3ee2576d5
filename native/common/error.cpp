#include "common/error.h"

#include "adaptive_eager.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace ae {
namespace {

// Raised when the meaning of a declaration in adaptive_eager.h changes.
constexpr int kAbiVersion = 1;

// No destructor: it stays readable while the process exits.
thread_local char last_error[4096] = "";

} // namespace

void set_last_error(const char* message) {
  std::strncpy(last_error, message, sizeof(last_error) - 1);
}

char* copy_text(std::string_view text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (!copy) {
    throw std::bad_alloc();
  }
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

} // namespace ae

int ae_abi_version(void) {
  return ae::kAbiVersion;
}

const char* ae_built_torch_version(void) {
  return AE_TORCH_VERSION;
}

const char* ae_last_error(void) {
  return ae::last_error;
}

void ae_free(char* text) {
  std::free(text);
}
