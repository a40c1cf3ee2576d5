// Sums, products, quotients, extrema and bits.
#include "codegen/rows.h"

namespace ae::codegen {
namespace {

// a + alpha * b
void add_scaled(Emitter& e, const Value& v, const Ir& a, const Ir& b, bool minus) {
  if (v.compute == Type::Bool)
    return e.set(v, e.either(a, e.has(v, 2) ? e.both(e.arg(v, 2), b) : b));
  if (!e.has(v, 2))
    return e.set(v, minus ? e.sub(a, b) : e.add(a, b));
  Ir alpha = e.arg(v, 2);
  e.set(v, minus ? e.fnma(alpha, b, a) : e.fma(alpha, b, a));
}

enum class Extreme { Maximum, Minimum };

// Of equal zeros the vector formula gives the second, the scalar one the first.
Ir extreme(Emitter& e, const Ir& a, const Ir& b, Extreme which) {
  const char* better = which == Extreme::Maximum ? "ogt" : "olt";
  if (!is_float(a.type))
    return a.type == Type::Bool ? (which == Extreme::Maximum ? e.either(a, b) : e.both(a, b))
                                : e.select(e.compare(better, a, b), a, b);
  Ir chosen = e.vector() ? e.select(e.compare(better, a, b), a, b) : e.select(e.compare(better, b, a), b, a);
  return e.select(e.compare("uno", a, b), e.like(a, std::numeric_limits<double>::quiet_NaN()), chosen);
}

template <Extreme which>
void extreme_of(Emitter& e, const Value& v) {
  e.set(v, extreme(e, e.arg(v, 0), e.arg(v, 1), which));
}

// With a factor, halves round the product in the tail only, and the tail of a sum with a number is not contracted.
template <size_t other>
bool add_accepts(const Value& v, const Target& target) {
  bool scaled = v.arguments.size() > 2 && v.arguments[2].kind != Argument::Kind::None;
  bool known = target.level != Target::Level::Other && !is_half(v.compute) && is_tensor(v, other);
  return !scaled || !is_float(v.compute) || known;
}

// Bounds that are tensors take `extreme`, with its cut: left out for floating types.
bool clamp_accepts(const Value& v, const Target&) {
  return !is_float(v.compute) || (!is_tensor(v, 1) && !is_tensor(v, 2));
}

void clamp_between(Emitter& e, const Value& v, size_t low, size_t high) {
  Ir a = e.arg(v, 0);
  for (size_t index : {low, high}) {
    if (!e.has(v, index))
      continue;
    Ir bound = e.arg(v, index);
    a = e.select(e.compare(index == low ? "olt" : "ogt", a, bound), bound, a);
  }
  if (is_float(a.type))
    for (size_t index : {low, high})
      if (e.has(v, index))
        a = e.select(e.is_nan(e.arg(v, index)), e.like(a, std::numeric_limits<double>::quiet_NaN()), a);
  e.set(v, a);
}

void relu(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0);
  e.set(v, e.select(e.compare("olt", a, e.like(a, 0)), e.like(a, 0), a));
}

void divide(Emitter& e, const Value& v) {
  Ir quotient = e.div(e.arg(v, 0), e.opmath(v, 1));
  if (e.text(v, 2) != "trunc")
    return e.set(v, quotient);
  if (is_half(v.compute) && is_tensor(v, 1))
    quotient = e.round(quotient, v.compute);
  e.set(v, e.intrinsic("trunc", {quotient}));
}

bool divides(const Value& v, const Target&) {
  bool mode = v.arguments.size() > 2 && v.arguments[2].kind == Argument::Kind::Text;
  return !mode || v.arguments[2].text == "trunc";
}

template <const char* name>
void bitwise(Emitter& e, const Value& v) {
  e.set(v, e.binary(name, e.arg(v, 0), e.arg(v, 1)));
}
constexpr char kAnd[] = "and", kOr[] = "or", kXor[] = "xor";

// Shifts beyond the width give zero (or the sign).
void shift(Emitter& e, const Value& v, bool left) {
  Ir a = e.arg(v, 0), b = e.arg(v, 1);
  int64_t width = static_cast<int64_t>(8 * size_of(v.compute)), most = left || !is_signed(v.compute) ? width : width - 1;
  auto n = [&](int64_t number) { return e.integer_number(v.compute, number); };
  Ir inside = e.compare("olt", b, n(most));
  if (is_signed(v.compute))
    inside = e.both(inside, e.compare("oge", b, n(0)));
  if (left)
    return e.set(v, e.select(inside, e.binary("shl", a, e.select(inside, b, n(0))), n(0)));
  if (!is_signed(v.compute))
    return e.set(v, e.select(inside, e.binary("lshr", a, e.select(inside, b, n(0))), n(0)));
  e.set(v, e.binary("ashr", a, e.select(inside, b, n(most))));
}

} // namespace

void add_arithmetic(Rows& rows) {
  rows.insert(
      rows.end(),
      {
          {.op = "add",
           .types = kAll,
           .exact = true,
           .unit = 4,
           .accepts = add_accepts<1>,
           .emit = [](Emitter& e, const Value& v) { add_scaled(e, v, e.arg(v, 0), e.arg(v, 1), false); },
           .how = "native/ufunc/add.h: self + alpha * other, contracted to one fma"},
          {.op = "sub",
           .types = kNumbers,
           .exact = true,
           .unit = 4,
           .accepts = add_accepts<1>,
           .emit = [](Emitter& e, const Value& v) { add_scaled(e, v, e.arg(v, 0), e.arg(v, 1), true); },
           .how = "BinaryOps.cpp sub: add with -alpha"},
          {.op = "rsub",
           .types = kNumbers,
           .exact = true,
           .unit = 4,
           .accepts = add_accepts<0>,
           .emit = [](Emitter& e, const Value& v) { add_scaled(e, v, e.arg(v, 1), e.arg(v, 0), true); },
           .how = "BinaryOps.cpp rsub: sub with its operands swapped"},
          {.op = "mul",
           .types = kAll,
           .exact = true,
           .emit =
               [](Emitter& e, const Value& v) {
                 e.set(v, v.compute == Type::Bool ? e.both(e.arg(v, 0), e.arg(v, 1)) : e.mul(e.arg(v, 0), e.opmath(v, 1)));
               },
           .how = "BinaryOpsKernel.cpp mul_kernel: numbers are not rounded to a half type"},
          {.op = "div",
           .promotion = Promotion::FloatOfInt,
           .types = kFloating,
           .exact = true,
           .accepts = divides,
           .emit = divide,
           .how = "BinaryOpsKernel.cpp div_true_kernel, div_trunc_kernel"},
          {.op = "maximum",
           .types = kAll,
           .cut = cut_narrow_floats,
           .emit = extreme_of<Extreme::Maximum>,
           .how = "BinaryOpsKernel.cpp maximum_kernel (AVX2): equal zeros give the second in the vector, the first in the tail"},
          {.op = "minimum",
           .types = kAll,
           .cut = cut_narrow_floats,
           .emit = extreme_of<Extreme::Minimum>,
           .how = "BinaryOpsKernel.cpp minimum_kernel (AVX2): as maximum"},
          {.op = "fmax",
           .types = kIntegers | kBool,
           .emit = extreme_of<Extreme::Maximum>,
           .how = "BinaryOpsKernel.cpp fmax_kernel: maximum for integers"},
          {.op = "fmin",
           .types = kIntegers | kBool,
           .emit = extreme_of<Extreme::Minimum>,
           .how = "BinaryOpsKernel.cpp fmin_kernel: minimum for integers"},
          {.op = "clamp",
           .types = kNumbers,
           .accepts = clamp_accepts,
           .emit = [](Emitter& e, const Value& v) { clamp_between(e, v, 1, 2); },
           .how = "TensorCompareKernel.cpp clamp_scalar_kernel_impl, clamp_kernel_impl"},
          {.op = "clamp_min",
           .types = kNumbers,
           .accepts = clamp_accepts,
           .emit = [](Emitter& e, const Value& v) { clamp_between(e, v, 1, 9); },
           .how = "TensorCompareKernel.cpp clamp_min_scalar_kernel_impl"},
          {.op = "clamp_max",
           .types = kNumbers,
           .accepts = clamp_accepts,
           .emit = [](Emitter& e, const Value& v) { clamp_between(e, v, 9, 1); },
           .how = "TensorCompareKernel.cpp clamp_max_scalar_kernel_impl"},
          {.op = "hardtanh",
           .types = kNumbers,
           .emit =
               [](Emitter& e, const Value& v) {
                 Ir a = e.arg(v, 0), low = e.arg_or(v, 1, -1), high = e.arg_or(v, 2, 1);
                 a = e.select(e.compare("olt", a, low), low, a);
                 e.set(v, e.select(e.compare("ogt", a, high), high, a));
               },
           .how = "Activation.cpp hardtanh: clamp"},
          {.op = "relu", .types = kNumbers, .emit = relu, .how = "Activation.cpp relu: clamp_min(0)"},
          {.op = "bitwise_and",
           .types = kIntegers | kBool,
           .exact = true,
           .emit = bitwise<kAnd>,
           .how = "BinaryOpsKernel.cpp bitwise_and_kernel"},
          {.op = "bitwise_or",
           .types = kIntegers | kBool,
           .exact = true,
           .emit = bitwise<kOr>,
           .how = "BinaryOpsKernel.cpp bitwise_or_kernel"},
          {.op = "bitwise_xor",
           .types = kIntegers | kBool,
           .exact = true,
           .emit = bitwise<kXor>,
           .how = "BinaryOpsKernel.cpp bitwise_xor_kernel"},
          {.op = "bitwise_not",
           .types = kIntegers | kBool,
           .exact = true,
           .emit =
               [](Emitter& e, const Value& v) {
                 e.set(v, v.compute == Type::Bool ? e.differ(e.arg(v, 0), e.number(Type::Bool, 1)) : e.invert(e.arg(v, 0)));
               },
           .how = "UnaryOpsKernel.cpp bitwise_not_kernel"},
          {.op = "bitwise_left_shift",
           .types = kIntegers,
           .exact = true,
           .emit = [](Emitter& e, const Value& v) { shift(e, v, true); },
           .how = "BinaryOpsKernel.cpp lshift_kernel"},
          {.op = "bitwise_right_shift",
           .types = kIntegers,
           .exact = true,
           .emit = [](Emitter& e, const Value& v) { shift(e, v, false); },
           .how = "BinaryOpsKernel.cpp rshift_kernel"},
      });
  for (const char* pair : {"__lshift__", "__rshift__"}) {
    Lowering row = rows[rows.size() - 2]; // both pushes keep the order left, right
    row.op = pair;
    rows.push_back(row);
  }
}

} // namespace ae::codegen
