// What the rows of the table share: sets of types, cuts, conditions.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "codegen/emitter.h"

namespace ae::codegen {

inline constexpr Types kF32 = bit(Type::F32), kF64 = bit(Type::F64), kF16 = bit(Type::F16), kBF16 = bit(Type::BF16);
inline constexpr Types kHalves = kF16 | kBF16, kFloats = kF32 | kF64, kFloating = kFloats | kHalves, kBool = bit(Type::Bool);
inline constexpr Types kIntegers = bit(Type::U8) | bit(Type::I8) | bit(Type::I16) | bit(Type::I32) | bit(Type::I64);
inline constexpr Types kNumbers = kFloating | kIntegers, kAll = kNumbers | kBool;

// Two registers: `vectorized_loop` of ATen's Loops.h takes two at a time.
inline uint32_t two_registers(size_t bytes, Type type) {
  return static_cast<uint32_t>(2 * bytes / size_of(type));
}
// For kernels with an AVX-512 build, and for those that run their AVX2 build there.
inline uint32_t cut_wide(const Value& value, const Target& target) {
  return two_registers(target.level == Target::Level::Avx512 ? 64 : 32, value.compute);
}
inline uint32_t cut_narrow(const Value& value, const Target&) {
  return two_registers(32, value.compute);
}
inline uint32_t cut_narrow_floats(const Value& value, const Target& target) {
  return is_float(value.compute) ? cut_narrow(value, target) : 0;
}

// ATen's build without vector extensions takes other routines.
inline bool has_vectors(const Value&, const Target& target) {
  return target.vectors();
}

// Whether an argument is a tensor's value, not a number.
inline bool is_tensor(const Value& value, size_t index) {
  return index < value.arguments.size() && value.arguments[index].kind == Argument::Kind::Value && !value.arguments[index].number;
}

// The square root of sqrt and of powers: MKL's, or the processor's.
const char* root_array(const Value& value, const Target& target);
Ir root(Emitter& emitter, const Value& value);

using Rows = std::vector<Lowering>;
void add_arithmetic(Rows& rows);
void add_comparisons(Rows& rows);
void add_copies(Rows& rows);
void add_mathematics(Rows& rows);
void add_powers(Rows& rows);
void add_activations(Rows& rows);
void add_activation_gradients(Rows& rows);
void add_gelu(Rows& rows);
void add_losses(Rows& rows);

} // namespace ae::codegen
