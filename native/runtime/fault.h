// Why a storage holds no valid value: an op that should have written it failed, or needed what a failed one left out.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>

namespace ae {

class Fault {
 public:
  // `op` failed with `error` when its region ran.
  Fault(const char* op, const std::exception& error);

  // Throws an exception of the type that the op threw.
  [[noreturn]] void raise() const;

 private:
  enum class Kind : uint8_t { Error, OutOfMemory, Index, Value, Type, NotImplemented };
  Kind kind_ = Kind::Error;
  std::string message_;
};

} // namespace ae
