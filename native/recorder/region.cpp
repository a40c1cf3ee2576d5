#include "recorder/region.h"

#include "device/runtime.h"

namespace ae {

uint32_t Region::touch(NeuronStorage& storage) {
  auto slot = static_cast<uint32_t>(slots.size());
  slots.push_back({c10::intrusive_ptr<NeuronStorage>::reclaim_copy(&storage)});
  storage.epoch = epoch;
  storage.slot = slot;
  if (storage.in_flight == 0) { // else it is armed
    arm(storage);
  }
  touched_bytes += storage.nbytes();
  return slot;
}

uint64_t Region::held_bytes() const {
  uint64_t held = 0;
  for (const auto& slot : slots) {
    if (slot.storage->in_flight == 0 && slot.storage.use_count() == 1 && slot.storage->data() != nullptr) {
      held += slot.storage->nbytes();
    }
  }
  return held;
}

void Region::untouch(size_t count) {
  while (slots.size() > count) {
    auto& storage = *slots.back().storage;
    storage.epoch = 0;
    if (storage.in_flight == 0 && storage.data() != nullptr) {
      storage.clear_materializer();
    }
    slots.pop_back();
  }
}

} // namespace ae
