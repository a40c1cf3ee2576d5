// All regions ever recorded, as paths from one root. Bounded: the branches used least recently go first.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "recorder/metadata_cache.h"
#include "recorder/node.h"
#include "recorder/spec.h"

namespace ae {

class Trie {
 public:
  Trie();

  Node& root() {
    return root_;
  }

  // The child of `parent` that the call described by `spec` is, or nullptr.
  Node* find(const Node& parent, const OpTraits& traits, const Spec& spec);

  // A new child. May not be called while a region is under way whose path could be evicted: `now` protects it.
  Node& insert(Node& parent, const OpTraits& traits, const Spec& spec, const Learned& learned, const c10::IValue* args,
               const Region& region);

  // Keeps nodes and fragments within their bounds. Call between regions; what the region `newest` used stays.
  void trim(uint64_t newest);

  // Forgets everything. Call between regions.
  void clear();

  size_t fragments = 0;

  template <class F>
  void each(F&& f) const {
    for (const auto& [key, node] : nodes_) {
      f(*node);
    }
  }

 private:
  static uint64_t child_key(const Node& parent, uint64_t key) {
    return (key ^ parent.id * 0x9E3779B97F4A7C15ull) * 0xD1B54A32D192ED03ull;
  }
  template <class F>
  void erase_if(F&& gone);

  Node root_;
  uint64_t next_id_ = 1;
  std::unordered_multimap<uint64_t, std::unique_ptr<Node>> nodes_;
};

} // namespace ae
