#include "recorder/match.h"

#include <cstring>

#include "ops/alias.h"
#include "recorder/spec.h"

namespace ae {
namespace {

bool match_tensor(const c10::TensorImpl* impl, const Leaf& leaf, const Node& node, Region& region) {
  if (!on_neuron(impl) || impl->dim() != leaf.dim || impl->storage_offset() != leaf.value ||
      static_cast<uint16_t>(c10::typeMetaToScalarType(impl->dtype())) != leaf.dtype || !is_plain(impl)) {
    return false;
  }
  const int64_t* words = node.words.data() + leaf.at;
  size_t bytes = size_t(leaf.dim) * sizeof(int64_t);
  if (std::memcmp(impl->sizes().data(), words, bytes) != 0 || std::memcmp(impl->strides().data(), words + leaf.dim, bytes) != 0) {
    return false;
  }
  uint8_t flags = (impl->is_conj() ? kConj : 0) | (impl->is_neg() ? kNeg : 0) | (impl->is_wrapped_number() ? kWrapped : 0);
  if (flags != (leaf.flags & (kConj | kNeg | kWrapped))) {
    return false;
  }
  auto* storage = as_neuron(impl->storage().unsafeGetStorageImpl());
  if (storage == nullptr) {
    return false;
  }
  if (storage->epoch == region.epoch) {
    return storage->slot == leaf.slot && (!(leaf.flags & kFirstTouch));
  }
  if (!(leaf.flags & kFirstTouch) || (storage->written_in_flight == 0 && storage->fault != nullptr)) {
    return false;
  }
  bool fresh = storage->in_flight == 0 && storage->data() == nullptr && storage->nbytes() > 0;
  if (fresh != ((leaf.flags & kFresh) != 0) || (fresh && static_cast<int64_t>(storage->nbytes()) != leaf.bytes)) {
    return false;
  }
  return region.touch(*storage) == leaf.slot;
}

bool match_host(const c10::TensorImpl* impl, const Leaf& leaf, Region& region) {
  if (impl->dim() != 0 || !impl->device().is_cpu() ||
      static_cast<uint16_t>(c10::typeMetaToScalarType(impl->dtype())) != leaf.dtype ||
      impl->is_wrapped_number() != ((leaf.flags & kWrapped) != 0) || !is_plain(impl) || impl->is_conj() || impl->is_neg() ||
      impl->key_set().has(c10::DispatchKey::ZeroTensor)) {
    return false;
  }
  std::memcpy(region.parameters[leaf.at].bytes.data(), impl->data(), impl->dtype().itemsize());
  return true;
}

bool match_argument(const c10::IValue& iv, const Leaf*& leaf, const Node& node, Region& region) {
  const Leaf& l = *leaf++;
  switch (l.kind) {
    case LeafKind::Tensor:
      return iv.isTensor() && iv.unsafeToTensorImpl() != c10::UndefinedTensorImpl::singleton() &&
             match_tensor(iv.unsafeToTensorImpl(), l, node, region);
    case LeafKind::HostNumber:
      return iv.isTensor() && iv.unsafeToTensorImpl() != c10::UndefinedTensorImpl::singleton() &&
             match_host(iv.unsafeToTensorImpl(), l, region);
    case LeafKind::None:
      return iv.isNone() || (iv.isTensor() && !iv.toTensor().defined());
    case LeafKind::Number: {
      uint8_t tag;
      auto& parameter = region.parameters[l.at];
      return number_of(iv, tag, parameter) && tag == l.tag && in_range(tag, parameter, node.low, node.high);
    }
    case LeafKind::Int:
      return l.tag ? iv.isBool() && iv.toBool() == (l.value != 0) : iv.isInt() && iv.toInt() == l.value;
    case LeafKind::Attribute: {
      const int64_t* words = node.words.data() + l.at;
      return same_attribute(iv, words);
    }
    case LeafKind::Generator:
      if (iv.isGenerator() && iv.toGenerator().defined()) {
        if (l.value == 0 || !iv.toGenerator().device().is_privateuseone()) {
          return false;
        }
        region.generators.push_back(iv.toGenerator());
        return region.generators.size() == l.at + 1;
      }
      return l.value == 0;
    case LeafKind::Numbers: {
      if (!iv.isList() || static_cast<int64_t>(iv.toListRef().size()) != l.value) {
        return false;
      }
      uint32_t at = l.at;
      for (const c10::IValue& element : iv.toListRef()) {
        uint8_t tag;
        auto& parameter = region.parameters[at++];
        if (!number_of(element, tag, parameter) || tag != l.tag || !in_range(tag, parameter, node.low, node.high)) {
          return false;
        }
      }
      return true;
    }
    case LeafKind::List: {
      if (!iv.isList() || static_cast<int64_t>(iv.toListRef().size()) != l.value) {
        return false;
      }
      for (const c10::IValue& element : iv.toListRef()) {
        if (!match_argument(element, leaf, node, region)) {
          return false;
        }
      }
      return true;
    }
  }
  return false;
}

} // namespace

bool match(const Node& node, const c10::IValue* args, Region& region) {
  size_t slots = region.slots.size();
  size_t parameters = region.parameters.size();
  size_t generators = region.generators.size();
  region.parameters.resize(node.parameters_after);
  const Leaf* leaf = node.leaves.data();
  const OpTraits& traits = *node.traits;
  for (size_t i = 0, n = traits.args.size(); i < n; ++i) {
    if (!match_argument(args[i], leaf, node, region)) {
      region.untouch(slots);
      region.parameters.resize(parameters);
      region.generators.resize(generators);
      return false;
    }
  }
  return true;
}

} // namespace ae
