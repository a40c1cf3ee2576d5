#include "recorder/metadata_cache.h"

#include <algorithm>

#include "common/policy.h"

namespace ae {

Learned* MetadataCache::find(const OpTraits& traits, const Spec& spec, uint64_t now) {
  auto [first, last] = entries_.equal_range(spec.content);
  for (; first != last; ++first) {
    auto& learned = first->second;
    if (learned.traits == &traits && learned.metadata == spec.metadata) {
      learned.used = now;
      return &learned;
    }
  }
  return nullptr;
}

void MetadataCache::insert(uint64_t content, Learned learned) {
  if (entries_.size() >= static_cast<size_t>(policy(Policy::MaxMetadata))) {
    evict();
  }
  entries_.emplace(content, std::move(learned));
}

void MetadataCache::clear() {
  entries_.clear();
}

// Drops the half that was used least recently: rare, and it keeps the common case free of bookkeeping.
void MetadataCache::evict() {
  std::vector<uint64_t> ages;
  ages.reserve(entries_.size());
  for (const auto& [content, learned] : entries_) {
    ages.push_back(learned.used);
  }
  auto middle = ages.begin() + static_cast<std::ptrdiff_t>(ages.size() / 2);
  std::nth_element(ages.begin(), middle, ages.end());
  uint64_t limit = *middle;
  size_t target = entries_.size() / 2;
  std::erase_if(entries_, [&](const auto& entry) { return entry.second.used < limit; });
  if (entries_.size() > target + target / 2) { // all of one age
    entries_.clear();
  }
}

} // namespace ae
