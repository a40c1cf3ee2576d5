// Activation functions.
#include "codegen/rows.h"

namespace ae::codegen {
namespace {

// The exponential of an activation: Sleef on vectors, the C library in the tail.
Ir exponential(Emitter& e, const Ir& a, const char* name = "exp") {
  return e.vector() ? e.sleef(name, "_u10", {a}, true) : e.libm(name, {a});
}

void sigmoid(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0), one = e.like(a, 1);
  e.set(v, e.div(one, e.add(one, exponential(e, e.neg(a)))));
}

void silu(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0);
  e.set(v, e.div(a, e.add(e.like(a, 1), exponential(e, e.neg(a)))));
}

void softplus(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0), beta = e.opmath_or(v, 1, 1), threshold = e.opmath_or(v, 2, 20), scaled = e.mul(a, beta);
  Ir soft = e.div(exponential(e, exponential(e, scaled), "log1p"), beta);
  e.set(v, e.select(e.compare("ogt", scaled, threshold), a, soft));
}

void mish(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0);
  e.set(v, e.mul(a, exponential(e, exponential(e, exponential(e, a), "log1p"), "tanh")));
}

void elu_of(Emitter& e, const Value& v, const Ir& alpha, const Ir& scale, const Ir& input_scale) {
  Ir a = e.arg(v, 0), low = e.mul(exponential(e, e.mul(a, input_scale), "expm1"), e.mul(alpha, scale));
  e.set(v, e.select(e.compare("oge", a, e.like(a, 0)), e.mul(a, scale), low));
}

void elu(Emitter& e, const Value& v) {
  elu_of(e, v, e.opmath_or(v, 1, 1), e.opmath_or(v, 2, 1), e.opmath_or(v, 3, 1));
}

void selu(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0);
  elu_of(e, v, e.like(a, 1.6732632423543772848170429916717), e.like(a, 1.0507009873554804934193349852946), e.like(a, 1));
}

void celu(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0), one = e.like(a, 1);
  if (!e.has(v, 1))
    return elu_of(e, v, one, one, one);
  Ir wide = e.convert(e.raw(v, 1), Type::F64);
  elu_of(e, v, e.convert(wide, a.type), one, e.convert(e.div(e.number(Type::F64, 1), wide), a.type));
}

void leaky_relu(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0);
  e.set(v, e.select(e.compare("ogt", a, e.like(a, 0)), a, e.mul(a, e.opmath_or(v, 1, 0.01))));
}

// min(max(a + 3, 0), 6), a NaN stays
Ir hard(Emitter& e, const Ir& a) {
  Ir zero = e.like(a, 0), six = e.like(a, 6), b = e.add(a, e.like(a, 3));
  b = e.select(e.compare("olt", b, zero), zero, b);
  return e.select(e.compare("ogt", b, six), six, b);
}

void hardswish(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0);
  e.set(v, e.div(e.mul(a, hard(e, a)), e.like(a, 6)));
}

void hardsigmoid(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0);
  e.set(v, e.div(hard(e, a), e.like(a, 6)));
}

void threshold(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0);
  e.set(v, e.select(e.compare("ole", a, e.opmath(v, 1)), e.arg(v, 2), a));
}

} // namespace

void add_activations(Rows& rows) {
  rows.insert(rows.end(),
              {
                  {.op = "sigmoid",
                   .promotion = Promotion::FloatOfInt,
                   .types = kFloating,
                   .cut = cut_wide,
                   .accepts = has_vectors,
                   .emit = sigmoid,
                   .how = "UnaryOpsKernel.cpp sigmoid_kernel (AVX-512): Sleef exp u10, tail exp of the C library"},
                  {.op = "silu",
                   .types = kFloating,
                   .cut = cut_wide,
                   .accepts = has_vectors,
                   .emit = silu,
                   .how = "Activation.cpp silu_kernel (AVX-512): Sleef exp u10, tail exp of the C library"},
                  {.op = "softplus",
                   .types = kFloating,
                   .cut = cut_wide,
                   .accepts = has_vectors,
                   .emit = softplus,
                   .how = "Activation.cpp softplus_kernel (AVX-512): Sleef exp and log1p u10, tail by the C library"},
                  {.op = "mish",
                   .types = kFloating,
                   .cut = cut_wide,
                   .accepts = has_vectors,
                   .emit = mish,
                   .how = "Activation.cpp mish_kernel (AVX-512): Sleef exp, log1p, tanh u10, tail by the C library"},
                  {.op = "elu",
                   .types = kFloating,
                   .cut = cut_wide,
                   .accepts = has_vectors,
                   .emit = elu,
                   .how = "Elu.h: Sleef expm1 u10, tail expm1 of the C library"},
                  {.op = "selu",
                   .types = kFloating,
                   .cut = cut_wide,
                   .accepts = has_vectors,
                   .emit = selu,
                   .how = "Activation.cpp selu: elu"},
                  {.op = "celu",
                   .types = kFloating,
                   .cut = cut_wide,
                   .accepts = has_vectors,
                   .emit = celu,
                   .how = "Activation.cpp celu: elu with 1 / alpha in double"},
                  {.op = "leaky_relu", .types = kFloating, .emit = leaky_relu, .how = "Activation.cpp leaky_relu_kernel"},
                  {.op = "hardswish", .types = kFloating, .emit = hardswish, .how = "Activation.cpp hardswish_kernel"},
                  {.op = "hardsigmoid", .types = kFloating, .emit = hardsigmoid, .how = "Activation.cpp hardsigmoid_kernel"},
                  {.op = "threshold", .types = kNumbers, .emit = threshold, .how = "Activation.cpp threshold_kernel"},
              });
}

} // namespace ae::codegen
