// Instructions of LLVM IR as text: what lowerings are written with.
//
// Inside a loop a value is a vector of `width()` elements. What is the same for all elements (numbers, constants and
// what is computed from them alone) stays a scalar and is computed once, outside of the loops: `level` says where.
#pragma once

#include <array>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/lowering.h"

namespace ae::codegen {

// F16 and BF16 are floats in registers, already rounded; Bool is an i1.
struct Ir {
  enum Level : uint8_t { Loop, Row, Launch };
  std::string text; // a register or a literal, without its type
  Type type = Type::F32;
  Level level = Loop;
};

constexpr bool is_half(Type type) {
  return type == Type::F16 || type == Type::BF16;
}
constexpr bool is_float(Type type) {
  return type >= Type::F16;
}
constexpr bool is_signed(Type type) {
  return type >= Type::I8;
}

std::string register_type(Type type, size_t width);
std::string memory_type(Type type, size_t width);

class Emitter {
 public:
  explicit Emitter(const Target& target) : target_(target) {}
  virtual ~Emitter() = default;

  const Target& target() const {
    return target_;
  }
  size_t width() const {
    return width_;
  }
  // Whether ATen's vector formula applies here; else its scalar one (the tail of a program with a cut).
  bool vector() const {
    return vector_;
  }

  // Arguments of a value. Halves come as F32: lowerings compute in float and `set` rounds.
  bool has(const Value& value, size_t index) const;
  int64_t integer(const Value& value, size_t index, int64_t otherwise) const;
  std::string_view text(const Value& value, size_t index) const;
  Ir arg(const Value& value, size_t index);    // as the compute type
  Ir opmath(const Value& value, size_t index); // as the compute type, but a number is not rounded to a half
  Ir raw(const Value& value, size_t index);    // as it is
  Ir arg_or(const Value& value, size_t index, double otherwise);
  Ir opmath_or(const Value& value, size_t index, double otherwise);
  // The result, converted (rounded) to the value's type.
  void set(const Value& value, const Ir& result);

  Ir number(Type type, double number) const;
  Ir integer_number(Type type, int64_t number) const;
  Ir like(const Ir& other, double value) const;

  Ir add(const Ir& a, const Ir& b);
  Ir sub(const Ir& a, const Ir& b);
  Ir mul(const Ir& a, const Ir& b);
  Ir div(const Ir& a, const Ir& b);               // floating types
  Ir fma(const Ir& a, const Ir& b, const Ir& c);  // a * b + c, contracted where ATen's build contracts
  Ir fnma(const Ir& a, const Ir& b, const Ir& c); // c - a * b, likewise
  Ir fms(const Ir& a, const Ir& b, const Ir& c);  // a * b - c, likewise
  Ir neg(const Ir& a);
  Ir binary(std::string_view instruction, const Ir& a, const Ir& b);
  Ir compare(std::string_view predicate, const Ir& a, const Ir& b); // "olt", ...; mapped for integers
  Ir select(const Ir& condition, const Ir& yes, const Ir& no);
  Ir both(const Ir& a, const Ir& b);
  Ir either(const Ir& a, const Ir& b);
  Ir differ(const Ir& a, const Ir& b); // exclusive or
  Ir invert(const Ir& a);
  Ir is_nan(const Ir& a);
  Ir intrinsic(std::string_view name, std::initializer_list<Ir> arguments); // "fabs": llvm.fabs on the arguments' type
  Ir bits(const Ir& a);                                                     // of an F32 or F64 as an integer
  Ir from_bits(const Ir& a);
  Ir truncate(const Ir& a);           // of an F32 or F64 that fits an integer of its size
  Ir convert(const Ir& a, Type type); // as c10::convert
  Ir round(const Ir& a, Type half);   // F32 rounded to a half type, still F32

  // The entry of a table of bit patterns, named `name` in the module, at an I32 index: an F32.
  using Table = std::array<uint32_t, 32>;
  Ir entry(std::string_view name, const Table& table, const Ir& index);

  // The routine of ATen's vector types: Sleef_<name>f16<suffix>. `wide`: the kernel has an AVX-512 build.
  Ir sleef(std::string_view name, std::string_view suffix, std::initializer_list<Ir> arguments, bool wide);
  // The C library's: `name` without the type's suffix ("exp" is expf on F32). Makes this block scalar.
  Ir libm(std::string_view name, std::initializer_list<Ir> arguments);

 protected:
  virtual Ir value(size_t index) = 0;
  virtual void put(const Value& value, const Ir& result) = 0;

  std::string fresh();
  // The text of `a` as an operand of an instruction at `level`, a splat where needed.
  std::string operand(const Ir& a, Ir::Level level);
  std::string& block(Ir::Level level);
  size_t width_at(Ir::Level level) const {
    return level == Ir::Loop ? width_ : 1;
  }
  template <class Write>
  Ir instruction(Type type, std::initializer_list<const Ir*> arguments, Write&& write);
  void declare(std::string declaration);

  Target target_;
  size_t width_ = 1;
  bool vector_ = true;
  bool needs_scalar_ = false; // a routine was asked for that has no vector form
  std::string launch_, row_, *loop_ = nullptr;
  std::map<std::string, std::string> splats_, uniforms_; // registers outside of the loops, by what they hold
  std::set<std::string> declarations_;
  size_t names_ = 0;

 private:
  Ir cast(std::string_view instruction, const Ir& a, Type type);
  Ir to_integer(const Ir& a, Type type);
  Ir number_nan() const;
};

} // namespace ae::codegen
