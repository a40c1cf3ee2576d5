// Elementary functions and rounding.
#include "codegen/rows.h"

namespace ae::codegen {
namespace {

// Through vml.h: MKL on whole arrays for float and double, ATen's vector type (in float) for the halves.
struct Vml {
  const char *single, *twice, *name, *suffix;
};

template <const Vml& f>
const char* vml_array(const Value& v, const Target& target) {
  return !target.mkl || is_half(v.compute) ? nullptr : v.compute == Type::F32 ? f.single : f.twice;
}

// Vectorized<float>::erf of vec512_float.h
Ir error_function(Emitter& e, const Ir& a) {
  Ir one = e.like(a, 1), size = e.intrinsic("fabs", {a});
  Ir t = e.div(one, e.fma(e.like(a, 0.3275911f), size, one)), r = e.like(a, 1.061405429f);
  for (float coefficient : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f})
    r = e.fma(r, t, e.like(a, coefficient));
  Ir power = e.neg(e.sleef("exp", "_u10", {e.neg(e.mul(a, a))}, true)), result = e.fma(e.mul(power, t), r, one);
  Ir sign = e.both(e.bits(a), e.integer_number(Type::I32, std::numeric_limits<int32_t>::min()));
  return e.from_bits(e.differ(sign, e.bits(result)));
}

template <const Vml& f>
void vml(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0);
  if (vml_array<f>(v, e.target()))
    e.set(v, a);
  else if (std::string_view(f.name) == "erf")
    e.set(v, error_function(e, a));
  else
    e.set(v, e.sleef(f.name, f.suffix, {a}, true));
}

bool mkl_or_half(const Value& v, const Target& target) {
  return is_half(v.compute) ? has_vectors(v, target) : target.mkl;
}

constexpr Vml kExp{"ae_exp_f32", "ae_exp_f64", "exp", "_u10"}, // vmsExp and vmdExp, see runtime/routines.cpp
    kLog{"vmsLn", "vmdLn", "log", "_u10"}, kLog2{"vmsLog2", "vmdLog2", "log2", "_u10"},
    kLog10{"vmsLog10", "vmdLog10", "log10", "_u10"}, kSin{"vmsSin", "vmdSin", "sin", "_u35"},
    kCos{"vmsCos", "vmdCos", "cos", "_u35"}, kTan{"vmsTan", "vmdTan", "tan", "_u10"}, kTanh{"vmsTanh", "vmdTanh", "tanh", "_u10"},
    kAsin{"vmsAsin", "vmdAsin", "asin", "_u10"}, kAcos{"vmsAcos", "vmdAcos", "acos", "_u10"},
    kAtan{"vmsAtan", "vmdAtan", "atan", "_u10"}, kErf{"vmsErf", "vmdErf", "erf", "_u10"},
    kErfc{"vmsErfc", "vmdErfc", "erfc", "_u15"}, kRoot{"vmsSqrt", "vmdSqrt", "sqrt", "_u05"};

template <const Vml& f>
Lowering vml_row(std::string_view op) {
  return {.op = op,
          .promotion = Promotion::FloatOfInt,
          .types = kFloating,
          .accepts = mkl_or_half,
          .emit = vml<f>,
          .array = vml_array<f>,
          .how = "UnaryOpsKernel.cpp, vml.h: MKL's vm routine with ATen's mode; halves by Sleef in float"};
}

// Sleef on vectors, the C library in the tail.
constexpr char kSinh[] = "sinh", kCosh[] = "cosh", kExp2[] = "exp2";
template <const char* name>
void either_library(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0);
  e.set(v, e.vector() ? e.sleef(name, "_u10", {a}, true) : e.libm(name, {a}));
}

// vec::map: Sleef everywhere, tails are padded.
constexpr char kExpm1[] = "expm1", kLog1p[] = "log1p";
template <const char* name>
void always_sleef(Emitter& e, const Value& v) {
  e.set(v, e.sleef(name, "_u10", {e.arg(v, 0)}, true));
}

constexpr char kFloor[] = "floor", kCeil[] = "ceil", kRound[] = "roundeven", kTrunc[] = "trunc", kFabs[] = "fabs";
template <const char* name>
void exact(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0);
  e.set(v, is_float(a.type) ? e.intrinsic(name, {a}) : a);
}

bool without_decimals(const Value& v, const Target&) {
  return v.arguments.size() < 2 || v.arguments[1].kind == Argument::Kind::None;
}

void absolute(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0);
  if (is_float(a.type))
    return e.set(v, e.intrinsic("fabs", {a}));
  e.set(v, is_signed(a.type) ? e.select(e.compare("olt", a, e.like(a, 0)), e.neg(a), a) : a);
}

void sign(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0);
  if (v.compute == Type::Bool)
    return e.set(v, a);
  Ir zero = e.like(a, 0), positive = e.select(e.compare("ogt", a, zero), e.like(a, 1), zero);
  e.set(v, is_signed(a.type) ? e.select(e.compare("olt", a, zero), e.like(a, -1), positive) : positive);
}

void rsqrt(Emitter& e, const Value& v) {
  Ir root = e.intrinsic("sqrt", {e.arg(v, 0)});
  if (is_half(v.compute) && !e.vector())
    root = e.round(root, v.compute);
  e.set(v, e.div(e.like(root, 1), root));
}

bool rsqrt_accepts(const Value& v, const Target& target) {
  return !is_half(v.compute) || has_vectors(v, target);
}

uint32_t cut_halves(const Value& v, const Target& target) {
  return is_half(v.compute) ? cut_narrow(v, target) : 0;
}

void atan2(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0), b = e.arg(v, 1);
  e.set(v, e.vector() ? e.sleef("atan2", "_u10", {a, b}, true) : e.libm("atan2", {a, b}));
}

Ir fmod_of(Emitter& e, const Ir& a, const Ir& b) {
  return e.vector() ? e.sleef("fmod", "", {a, b}, false) : e.libm("fmod", {a, b});
}

void fmod(Emitter& e, const Value& v) {
  e.set(v, fmod_of(e, e.arg(v, 0), e.arg(v, 1)));
}

void remainder(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0), b = e.arg(v, 1), rest = fmod_of(e, a, b), zero = e.like(a, 0);
  Ir apart = e.both(e.compare("une", rest, zero), e.differ(e.compare("olt", b, zero), e.compare("olt", rest, zero)));
  e.set(v, e.select(apart, e.add(rest, b), rest));
}

} // namespace

const char* root_array(const Value& v, const Target& target) {
  return vml_array<kRoot>(v, target);
}

Ir root(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0);
  return root_array(v, e.target()) ? a : e.intrinsic("sqrt", {a});
}

void add_mathematics(Rows& rows) {
  for (const Lowering& row :
       {vml_row<kExp>("exp"), vml_row<kLog>("log"), vml_row<kLog2>("log2"), vml_row<kLog10>("log10"), vml_row<kSin>("sin"),
        vml_row<kCos>("cos"), vml_row<kTan>("tan"), vml_row<kTanh>("tanh"), vml_row<kAsin>("asin"), vml_row<kAcos>("acos"),
        vml_row<kAtan>("atan"), vml_row<kErf>("erf"), vml_row<kErfc>("erfc")})
    rows.push_back(row);
  rows.insert(
      rows.end(),
      {
          {.op = "expm1",
           .promotion = Promotion::FloatOfInt,
           .types = kFloating,
           .accepts = has_vectors,
           .emit = always_sleef<kExpm1>,
           .how = "vml.h vexpm1: Sleef expm1 u10, tails padded"},
          {.op = "log1p",
           .promotion = Promotion::FloatOfInt,
           .types = kFloating,
           .accepts = has_vectors,
           .emit = always_sleef<kLog1p>,
           .how = "vml.h vlog1p: Sleef log1p u10, tails padded"},
          {.op = "sinh",
           .promotion = Promotion::FloatOfInt,
           .types = kFloating,
           .cut = cut_wide,
           .accepts = has_vectors,
           .emit = either_library<kSinh>,
           .how = "UnaryOpsKernel.cpp sinh_kernel: Sleef u10, tail by the C library"},
          {.op = "cosh",
           .promotion = Promotion::FloatOfInt,
           .types = kFloating,
           .cut = cut_wide,
           .accepts = has_vectors,
           .emit = either_library<kCosh>,
           .how = "UnaryOpsKernel.cpp cosh_kernel: Sleef u10, tail by the C library"},
          {.op = "exp2",
           .promotion = Promotion::FloatOfInt,
           .types = kFloating,
           .cut = cut_wide,
           .accepts = has_vectors,
           .emit = either_library<kExp2>,
           .how = "UnaryOpsKernel.cpp exp2_kernel: Sleef u10, tail by the C library"},
          {.op = "floor", .types = kNumbers, .exact = true, .emit = exact<kFloor>, .how = "UnaryOpsKernel.cpp floor_kernel"},
          {.op = "ceil", .types = kNumbers, .exact = true, .emit = exact<kCeil>, .how = "UnaryOpsKernel.cpp ceil_kernel"},
          {.op = "round",
           .types = kNumbers,
           .exact = true,
           .accepts = without_decimals,
           .emit = exact<kRound>,
           .how = "UnaryOpsKernel.cpp round_kernel: ties to even"},
          {.op = "trunc", .types = kNumbers, .exact = true, .emit = exact<kTrunc>, .how = "UnaryOpsKernel.cpp trunc_kernel"},
          {.op = "sqrt",
           .promotion = Promotion::FloatOfInt,
           .types = kFloating,
           .accepts = [](const Value& v, const Target& target) { return is_half(v.compute) || target.mkl; },
           .emit = [](Emitter& e, const Value& v) { e.set(v, root(e, v)); },
           .array = root_array,
           .how = "UnaryOpsKernel.cpp, vml.h vsqrt: MKL's vm routine, which does not always round correctly; halves in float"},
          {.op = "rsqrt",
           .promotion = Promotion::FloatOfInt,
           .types = kFloating,
           .cut = cut_halves,
           .accepts = rsqrt_accepts,
           .emit = rsqrt,
           .how = "UnaryOpsKernel.cpp rsqrt_kernel: 1 / sqrt; the tail of halves rounds the root"},
          {.op = "reciprocal",
           .promotion = Promotion::FloatOfInt,
           .types = kFloating,
           .exact = true,
           .emit =
               [](Emitter& e, const Value& v) {
                 Ir a = e.arg(v, 0);
                 e.set(v, e.div(e.like(a, 1), a));
               },
           .how = "UnaryOpsKernel.cpp reciprocal_kernel: 1 / a"},
          {.op = "frac",
           .types = kFloating,
           .emit =
               [](Emitter& e, const Value& v) {
                 Ir a = e.arg(v, 0);
                 e.set(v, e.sub(a, e.intrinsic("trunc", {a})));
               },
           .how = "UnaryOpsKernel.cpp frac_kernel: a - trunc(a)"},
          {.op = "neg",
           .types = kNumbers,
           .exact = true,
           .emit = [](Emitter& e, const Value& v) { e.set(v, e.neg(e.arg(v, 0))); },
           .how = "UnaryOpsKernel.cpp neg_kernel"},
          {.op = "abs", .types = kNumbers, .exact = true, .emit = absolute, .how = "UnaryOpsKernel.cpp abs_kernel"},
          {.op = "sign", .types = kAll, .emit = sign, .how = "UnaryOpsKernel.cpp sign_kernel: a NaN gives 0"},
          {.op = "sgn", .types = kAll, .emit = sign, .how = "UnaryOps.cpp sgn: sign for real numbers"},
          {.op = "atan2",
           .promotion = Promotion::FloatOfInt,
           .types = kFloating,
           .cut = cut_wide,
           .accepts = has_vectors,
           .emit = atan2,
           .how = "BinaryOpsKernel.cpp atan2_kernel (AVX-512): Sleef u10, tail by the C library"},
          {.op = "fmod",
           .types = kFloating,
           .cut = cut_narrow,
           .accepts = has_vectors,
           .emit = fmod,
           .how = "BinaryOpsKernel.cpp fmod_kernel (AVX2): Sleef, tail by the C library"},
          {.op = "remainder",
           .types = kFloating,
           .cut = cut_narrow,
           .accepts = has_vectors,
           .emit = remainder,
           .how = "BinaryOpsKernel.cpp remainder_kernel (AVX2): Sleef fmod, tail by the C library"},
      });
}

} // namespace ae::codegen
