// Running an op for the first time with some argument metadata, to know what it returns the next time.
#pragma once

#include "recorder/metadata_cache.h"
#include "recorder/recorder.h"

namespace ae {

class Learning {
 public:
  // Before the op runs.
  Learning(const OpTraits& traits, std::vector<int64_t> metadata, const c10::IValue* args);

  // After it ran: what it returned, or why it has to run by itself each time.
  Learned finish(const c10::IValue* args, const Results& results);

 private:
  const OpTraits& traits_;
  std::vector<int64_t> metadata_;
  std::vector<std::vector<int64_t>> before_; // geometry of what it writes
};

} // namespace ae
