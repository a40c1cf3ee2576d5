// The routines that loops call, by name: MKL's, Sleef's, the C library's, and a few of our own.
#pragma once

namespace ae {

// nullptr: there is none.
void* routine(const char* name);

} // namespace ae
