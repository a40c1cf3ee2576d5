// A fused loop as data: what the planner hands to the emitter, and the key under which kernels are kept.
//
// A program reads operands element by element, computes values and stores some of them. It knows no sizes and no
// addresses: one program serves every shape whose innermost dimension its operands walk along in the same way.
// This folder knows nothing of torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ae::codegen {

enum class Type : uint8_t { Bool, U8, I8, I16, I32, I64, F16, BF16, F32, F64 };
inline constexpr size_t kTypes = 10;
size_t size_of(Type type);
const char* name_of(Type type); // "f32"

// How an operand walks along the innermost dimension.
enum class Walk : uint8_t {
  Dense,   // consecutive elements
  Same,    // one element for all
  Strided, // the byte stride is an argument of the kernel
  Number // a number of the launch: a `type` at the operand's address, the same for the whole loop. A Python or CPU scalar, so F64,
         // I64, Bool or any other
};

struct Operand {
  Type type = Type::F32;
  Walk walk = Walk::Dense;
  bool operator==(const Operand&) const = default;
};

struct Lowering;

// An argument of an op, in the order of its schema (out= arguments left out).
struct Argument {
  enum class Kind : uint8_t { None, Value, Int, Text } kind = Kind::None;
  uint16_t value = 0; // Value: index of a value
  int64_t number = 0; // Int: an int, bool or enum of the schema. Value: 1 where it is a number (Walk::Number), else 0.
                      // Text: the bits of the double that it stands for, if it is one
  std::string text;   // Text: such as a rounding mode, or a number in hexadecimal
  bool operator==(const Argument&) const = default;
};

// Values are numbered in program order. `lowering == nullptr`: the operand `operand` is loaded.
struct Value {
  const Lowering* lowering = nullptr;
  uint16_t operand = 0;
  Type compute = Type::F32; // what ATen promotes the tensor arguments to (its common dtype) and computes in
  Type type = Type::F32;    // of the result
  std::vector<Argument> arguments;
};

struct Store {
  uint16_t operand;
  uint16_t value;
};

struct Program {
  std::vector<Operand> operands;
  std::vector<Value> values;
  std::vector<Store> stores;
  // Elements in which ATen's vector body advances where results depend on whether an element lies in the body or in
  // the scalar tail; 0 where they do not.
  uint32_t cut = 0;

  // Equal for equal programs: the op names, types and data flow as text.
  std::string key() const;
};

// How ATen calls MKL's vm routines (aten/src/ATen/cpu/vml.h): high accuracy, denormals kept, errors ignored.
inline constexpr int64_t kVmMode = 1310978;

// What ATen's kernels were chosen for on this machine: it fixes the bits of ops whose routines differ by it.
struct Target {
  // ATen's builds of its kernels: another processor's than x86 (its bits were never compared: rows that are `exact`
  // only), and x86's without and with vector extensions.
  enum class Level : uint8_t { Other, Generic, Avx2, Avx512 } level = Level::Generic;
  bool vectors() const {
    return level > Level::Generic;
  }
  bool mkl = false; // MKL's vector math is there and ATen calls it
  // The instructions that oneDNN's kernels use, each including those before.
  enum class Onednn : uint8_t { None, Avx2, Avx512, Avx512Bf16, Avx512Fp16 } onednn = Onednn::None;
};

// LLVM IR (text, opaque pointers) of
//   void @kernel(ptr %operands, ptr %strides, i64 %inner, i64 %outer)
// `operands`: one address an operand. `strides`: for operand i, strides[2*i] is its byte stride along the outer
// dimension and strides[2*i+1] along the inner one (read for Walk::Strided only). The kernel runs `outer` rows of
// `inner` elements. With `cut` != 0 each row's first inner - inner % cut elements take the vector formula, the rest the
// scalar one. Stores of an element come after all of its loads: an operand may be read and written at one address.
std::string emit(const Program& program, const Target& target);

} // namespace ae::codegen
