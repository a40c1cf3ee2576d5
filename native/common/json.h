#pragma once

#include <string>
#include <string_view>

namespace ae {

// Appends a JSON string. What is not ASCII is taken to be UTF-8; control characters become spaces.
inline void append_json(std::string& out, std::string_view text) {
  out += '"';
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  out += '"';
}

} // namespace ae
