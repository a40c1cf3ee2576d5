// The table of pointwise ops: for each, how it is written in LLVM IR and how its bits were matched.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "codegen/program.h"

namespace ae::codegen {

class Emitter;
struct Ir; // a value in IR text

using Types = uint16_t; // a bit for each Type
constexpr Types bit(Type type) {
  return Types(1u << static_cast<unsigned>(type));
}

// How ATen chooses the type it computes in.
enum class Promotion : uint8_t {
  Common,     // the arguments' common dtype
  FloatOfInt, // ... or the default dtype where that is integral: the result's dtype
  First,      // the dtype of the first argument
  Result      // the dtype of the result: conversions and fills
};

struct Lowering {
  std::string_view
      op; // base name, without overload, in-place mark and foreach: "add" is add.Tensor, add_.Tensor, _foreach_add.Scalar, ...
  Promotion promotion = Promotion::Common;
  Types types = 0; // compute types that are admitted on the target
  // One correctly rounded operation of IEEE 754 or none, so that every processor and compiler gives the same bits. Halves
  // and conversions to integers are left out of it.
  bool exact = false;
  // Arguments (a bit each) whose number belongs to the program: given as an Int where it is integral, else as a Text
  // ("-0.5"). And those that are left out (None) where they are the number 1.
  uint32_t fixed = 0, unit = 0;

  // Elements in ATen's vector step on this target; nullptr or 0: results do not depend on the cut.
  uint32_t (*cut)(const Value& value, const Target& target) = nullptr;
  // Whether these arguments are lowered; nullptr: all are. (Rounding modes, a missing bound, ...)
  bool (*accepts)(const Value& value, const Target& target) = nullptr;
  void (*emit)(Emitter& emitter, const Value& value) = nullptr;
  // The MKL routine on whole arrays that makes the result ("vmsExp"); then `emit` makes its input. nullptr, or a
  // nullptr result: `emit` makes the result.
  const char* (*array)(const Value& value, const Target& target) = nullptr;
  // Where ATen hands the op to oneDNN: the argument that has to be contiguous for that, of the op's own size and two
  // elements or more. -1 or nullptr: the kernel is ATen's whatever the arguments look like.
  int (*onednn)(const Value& value) = nullptr;
  // ATen source (file and function) and what was done to give its bits: one line, shown in the docs.
  const char* how = "";
};

// nullptr where the op has no row.
const Lowering* find_lowering(std::string_view base_name);
const std::vector<Lowering>& lowerings();

// Whether the value's op is admitted with these types and arguments on this target.
bool admitted(const Value& value, const Target& target);

// JSON: [{"op", "types", "exact", "cut", "array", "how"}], each row as it is on the target.
std::string describe_lowerings(const Target& target);

} // namespace ae::codegen
