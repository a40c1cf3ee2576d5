// Ops that can fail on the values of an operand: checked when recorded, so that errors are raised at the call.
#pragma once

#include <ATen/core/stack.h>

#include "recorder/region.h"

namespace ae {

enum class Verdict : uint8_t { Good, Bad, Unknown, DynamicShape };

// Unknown: the operand is not computed yet and nothing is known of its bounds.
Verdict check_values(const OpTraits& traits, const c10::IValue* args, const Region& region);

struct Bounds {
  int64_t low = 0, high = -1; // no values while low > high
};

// The bounds of an integer tensor's values, or of a list's, if they can be known now at little cost.
std::optional<Bounds> known_bounds(const c10::IValue& tensors, const Region& region);

} // namespace ae
