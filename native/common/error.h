// Errors at the C ABI's edge: a function that failed leaves its message here, per thread.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string_view>

namespace ae {

// What went wrong, without where in the library.
inline const char* message_of(const std::exception& error) {
  const auto* known = dynamic_cast<const c10::Error*>(&error);
  return known != nullptr ? known->what_without_backtrace() : error.what();
}

// Messages longer than 4 KiB are cut.
void set_last_error(const char* message);

// A copy for the caller of the C ABI to ae_free().
char* copy_text(std::string_view text);

// Runs `body` for a C function: 0 when it returns, -1 with the message kept when it throws.
template <class Body>
int guarded(Body&& body) noexcept {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    set_last_error(message_of(error));
  } catch (...) {
    set_last_error("an exception of unknown type was thrown");
  }
  return -1;
}

} // namespace ae
