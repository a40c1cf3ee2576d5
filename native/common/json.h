#pragma once

#include <string>
#include <string_view>

namespace ae {

// Appends a JSON string. The library's own names are plain ASCII: only quotes and backslashes need care.
inline void append_json(std::string& out, std::string_view text) {
  out += '"';
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  out += '"';
}

} // namespace ae
