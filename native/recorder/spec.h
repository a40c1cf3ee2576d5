// From a call to its key, the slow way: what a hit avoids. Used when the prediction failed.
#pragma once

#include <ATen/core/stack.h>

#include "recorder/region.h"

namespace ae {

struct Spec {
  std::vector<Leaf> leaves;
  std::vector<int64_t> words;
  std::vector<int64_t> metadata; // op and metadata without slots: the key of the output-metadata cache
  std::vector<Parameter> parameters;
  std::vector<at::Generator> generators;
  std::vector<NeuronStorage*> touched; // storages that would enter the region, in order
  c10::SmallVector<uint32_t, 2> written;
  uint64_t content = 0;               // hash of `metadata`
  uint64_t key = 0;                   // hash of leaves and words
  std::optional<DirectReason> direct; // cannot be recorded, and why
  double low = 0, high = 0;
  bool ranged = false;
};

// Describes the call; changes nothing. `spec` is reused between calls.
void describe(const OpTraits& traits, const c10::IValue* args, const Region& region, Spec& spec);

// Compares an attribute with its encoding without building anything. Advances `at`.
bool same_attribute(const c10::IValue& iv, const int64_t*& at);

// The value of a number: its alternative of Scalar, and its bytes.
bool number_of(const c10::IValue& iv, uint8_t& tag, Parameter& out);

// Whether every floating dtype of the op can hold the number (Scalars that cannot be converted make ops fail).
inline bool in_range(uint8_t tag, const Parameter& number, double low, double high) {
  auto fits = [&](double value) { return (value >= low && value <= high) || !__builtin_isfinite(value); };
  double parts[2];
  __builtin_memcpy(parts, number.bytes.data(), sizeof parts);
  if (tag == 0) {
    return fits(parts[0]);
  }
  if (tag == 3) {
    return fits(parts[0]) && fits(parts[1]);
  }
  int64_t integer;
  __builtin_memcpy(&integer, number.bytes.data(), sizeof integer);
  return fits(static_cast<double>(integer));
}

// The IValue that a kernel gets for a parameter.
c10::IValue number_value(uint8_t tag, const Parameter& number);

} // namespace ae
