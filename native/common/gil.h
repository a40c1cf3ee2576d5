// Gives the GIL up while waiting for a lock, if this thread holds it. The library does not link Python: the functions
// are looked up in the process.
#pragma once

namespace ae {

class GilRelease {
 public:
  GilRelease();
  ~GilRelease();
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  void* state_ = nullptr;
};

} // namespace ae
