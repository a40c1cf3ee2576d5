#include "runtime/fault.h"

#include <c10/util/Exception.h>

#include "common/error.h"

namespace ae {

Fault::Fault(const char* op, const std::exception& error) {
  auto is = [&]<class T>(const T*) { return dynamic_cast<const T*>(&error) != nullptr; };
  if (is(static_cast<const c10::OutOfMemoryError*>(nullptr))) {
    kind_ = Kind::OutOfMemory;
  } else if (is(static_cast<const c10::IndexError*>(nullptr))) {
    kind_ = Kind::Index;
  } else if (is(static_cast<const c10::ValueError*>(nullptr))) {
    kind_ = Kind::Value;
  } else if (is(static_cast<const c10::TypeError*>(nullptr))) {
    kind_ = Kind::Type;
  } else if (is(static_cast<const c10::NotImplementedError*>(nullptr))) {
    kind_ = Kind::NotImplemented;
  }
  message_ = std::string(op) + " failed when its recorded region ran: " + message_of(error);
}

void Fault::raise() const {
  switch (kind_) {
    case Kind::OutOfMemory:
      C10_THROW_ERROR(OutOfMemoryError, message_);
    case Kind::Index:
      C10_THROW_ERROR(IndexError, message_);
    case Kind::Value:
      C10_THROW_ERROR(ValueError, message_);
    case Kind::Type:
      C10_THROW_ERROR(TypeError, message_);
    case Kind::NotImplemented:
      C10_THROW_ERROR(NotImplementedError, message_);
    case Kind::Error:
      break;
  }
  C10_THROW_ERROR(Error, message_);
}

} // namespace ae
