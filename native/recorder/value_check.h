// Ops that can fail on the values of an operand: checked when recorded, so that errors are raised at the call.
#pragma once

#include <ATen/core/stack.h>

#include "recorder/region.h"

namespace ae {

enum class Verdict : uint8_t { Good, Bad, Unknown, DynamicShape };

// Unknown: the operand is not computed yet and nothing is known of its bounds.
Verdict check_values(const OpTraits& traits, const torch::jit::Stack& stack, size_t base, const Region& region);

} // namespace ae
