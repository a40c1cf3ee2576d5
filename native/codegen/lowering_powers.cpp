// Powers and what is made of products and sums.
#include "codegen/rows.h"

namespace ae::codegen {
namespace {

void square(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0);
  e.set(v, e.mul(a, a));
}

// An exponent that the program knows: an Int, or "0.5" or "-0.5" as Text.
double known_exponent(const Value& v) {
  const Argument& exponent = v.arguments[1];
  return exponent.kind == Argument::Kind::Int ? static_cast<double>(exponent.number) : exponent.text == "0.5" ? 0.5 : -0.5;
}

bool is_root(const Value& v) {
  return v.arguments.size() > 1 && v.arguments[1].kind == Argument::Kind::Text && v.arguments[1].text == "0.5";
}

void power(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0);
  double exponent = known_exponent(v);
  auto inverse = [&](const Ir& b) { return e.div(e.like(b, 1), b); };
  auto step = [&](const Ir& b) { return is_half(v.compute) ? e.round(b, v.compute) : b; };
  if (exponent == 0.5)
    e.set(v, root(e, v));
  else if (exponent == 2)
    e.set(v, e.mul(a, a));
  else if (exponent == 3)
    e.set(v, e.mul(step(e.mul(a, a)), a));
  else if (exponent == -1)
    e.set(v, inverse(a));
  else if (exponent == -2)
    e.set(v, inverse(step(e.mul(a, a))));
  else if (exponent == -0.5)
    e.set(v, inverse(step(e.intrinsic("sqrt", {a}))));
  else
    e.set(v, exponent == 1 ? a : e.like(a, 1));
}

bool power_accepts(const Value& v, const Target& target) {
  const Argument& exponent = v.arguments[1];
  if (is_root(v))
    return v.compute == Type::BF16 || ((v.compute == Type::F32 || v.compute == Type::F64) && target.mkl);
  if (exponent.kind == Argument::Kind::Text)
    return is_float(v.compute) && exponent.text == "-0.5" && !is_half(v.compute);
  if (exponent.kind != Argument::Kind::Int)
    return false;
  int64_t n = exponent.number;
  return is_float(v.compute) ? n >= -2 && n <= 3 && !(v.compute == Type::F16 && (n == 3 || n == -2)) : n >= 0 && n <= 3;
}

void lerp(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0), b = e.arg(v, 1), weight = e.opmath(v, 2);
  Ir small = e.compare("olt", e.intrinsic("fabs", {weight}), e.like(weight, 0.5));
  Ir factor = e.select(small, weight, e.sub(weight, e.like(weight, 1)));
  if (!e.vector()) // 1 - weight taken away: another sign of zero where the weight is 1
    factor = e.select(small, weight, e.neg(e.sub(e.like(weight, 1), weight)));
  e.set(v, e.fma(factor, e.sub(b, a), e.select(small, a, b)));
}

void addcmul(Emitter& e, const Value& v) {
  Ir product = e.has(v, 3) ? e.mul(e.opmath(v, 3), e.arg(v, 1)) : e.arg(v, 1);
  e.set(v, e.fma(product, e.arg(v, 2), e.arg(v, 0)));
}

void addcdiv(Emitter& e, const Value& v) {
  Ir product = e.has(v, 3) ? e.mul(e.opmath(v, 3), e.arg(v, 1)) : e.arg(v, 1);
  e.set(v, e.add(e.arg(v, 0), e.div(product, e.arg(v, 2))));
}

} // namespace

void add_powers(Rows& rows) {
  rows.insert(
      rows.end(),
      {
          {.op = "square", .types = kNumbers, .emit = square, .how = "UnaryOps.cpp square: pow(2)"},
          {.op = "pow",
           .types = kNumbers,
           .fixed = 2,
           .accepts = power_accepts,
           .emit = power,
           .array = [](const Value& v, const Target& target) { return is_root(v) ? root_array(v, target) : nullptr; },
           .how = "PowKernel.cpp pow_tensor_scalar_kernel, for exponents that the program knows"},
          {.op = "lerp",
           .types = kFloating,
           .cut = cut_narrow,
           .emit = lerp,
           .how = "LerpKernel.cpp, Lerp.h: one fma; vector and tail differ in the sign of zeros at weight 1"},
          {.op = "addcmul",
           .types = kNumbers,
           .unit = 8,
           .emit = addcmul,
           .how = "PointwiseOpsKernel.cpp addcmul_cpu_kernel: self + (value * t1) * t2, contracted"},
          {.op = "addcdiv", .types = kFloating, .unit = 8, .emit = addcdiv, .how = "PointwiseOpsKernel.cpp addcdiv_cpu_kernel"},
      });
}

} // namespace ae::codegen
