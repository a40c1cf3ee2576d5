// The region being recorded: its storages, its numbers, its place in the trie.
#pragma once

#include <ATen/core/Generator.h>

#include <vector>

#include "device/storage.h"
#include "recorder/node.h"

namespace ae {

struct Slot {
  c10::intrusive_ptr<NeuronStorage> storage;
  int64_t low = 1, high = 0; // known bounds of its values, read as `type`, while low <= high
  c10::ScalarType type = c10::ScalarType::Undefined;
  bool written = false; // by a recorded op
};

struct Region {
  uint64_t epoch = 1;
  Node* cursor = nullptr;
  std::vector<Slot> slots;
  std::vector<Parameter> parameters;
  std::vector<at::Generator> generators;
  uint32_t ops = 0;
  uint64_t bytes = 0;         // of outputs
  uint64_t touched_bytes = 0; // of storages that entered since held_bytes() was asked
  bool random = false;

  bool touches(const NeuronStorage& storage) const {
    return storage.epoch == epoch;
  }

  // The storage enters the region: it is kept alive, and asking for its address launches the region.
  uint32_t touch(NeuronStorage& storage);

  // Bytes that nothing but the region keeps alive any more.
  uint64_t held_bytes() const;

  // Takes back the touches after the first `count` slots.
  void untouch(size_t count);
};

} // namespace ae
