// Errors at the C ABI's edge: a function that failed leaves its message here, per thread.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string_view>

namespace ae {

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
  } catch (const c10::Error& error) {
    set_last_error(error.what_without_backtrace());
  } catch (const std::exception& error) {
    set_last_error(error.what());
  } catch (...) {
    set_last_error("an exception of unknown type was thrown");
  }
  return -1;
}

} // namespace ae
