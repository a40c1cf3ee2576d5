// What an op returned for given argument metadata, so that the next such call can be recorded without running.
#pragma once

#include <list>
#include <unordered_map>

#include "recorder/node.h"
#include "recorder/spec.h"

namespace ae {

struct Learned {
  std::vector<int64_t> metadata; // the whole key
  const OpTraits* traits = nullptr;
  std::vector<Output> outputs;
  c10::SmallVector<uint32_t, 2> list_lengths;
  std::optional<DirectReason> direct; // must always run by itself
  uint64_t used = 0;
};

class MetadataCache {
 public:
  // nullptr where nothing is known.
  Learned* find(const OpTraits& traits, const Spec& spec, uint64_t now);
  void insert(uint64_t content, Learned learned);
  void clear();
  size_t size() const {
    return entries_.size();
  }

 private:
  void evict();
  std::unordered_multimap<uint64_t, Learned> entries_;
};

} // namespace ae
