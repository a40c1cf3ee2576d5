// Gradients of activation functions.
#include "codegen/rows.h"

namespace ae::codegen {
namespace {

Ir exponential(Emitter& e, const Ir& a, const char* name = "exp") {
  return e.vector() ? e.sleef(name, "_u10", {a}, true) : e.libm(name, {a});
}

Ir sigmoid_of(Emitter& e, const Ir& a) {
  Ir one = e.like(a, 1);
  return e.div(one, e.add(one, exponential(e, e.neg(a))));
}

void threshold_backward(Emitter& e, const Value& v) {
  Ir grad = e.arg(v, 0);
  e.set(v, e.select(e.compare("ole", e.arg(v, 1), e.opmath(v, 2)), e.like(grad, 0), grad));
}

void sigmoid_backward(Emitter& e, const Value& v) {
  Ir grad = e.arg(v, 0), b = e.arg(v, 1);
  auto step = [&](const Ir& a) { return v.compute == Type::F16 ? e.round(a, v.compute) : a; };
  e.set(v, e.mul(step(e.mul(grad, step(e.sub(e.like(b, 1), b)))), b));
}

void tanh_backward(Emitter& e, const Value& v) {
  Ir grad = e.arg(v, 0), b = e.arg(v, 1);
  e.set(v, e.mul(grad, e.fnma(b, b, e.like(b, 1))));
}

void silu_backward(Emitter& e, const Value& v) {
  Ir grad = e.arg(v, 0), a = e.arg(v, 1), one = e.like(a, 1), s = sigmoid_of(e, a);
  e.set(v, e.mul(e.mul(grad, s), e.fma(a, e.sub(one, s), one)));
}

void mish_backward(Emitter& e, const Value& v) {
  Ir grad = e.arg(v, 0), a = e.arg(v, 1), one = e.like(a, 1), s = sigmoid_of(e, a);
  Ir t = exponential(e, exponential(e, exponential(e, a), "log1p"), "tanh");
  e.set(v, e.mul(grad, e.fma(e.mul(a, s), e.fnma(t, t, one), t)));
}

void softplus_backward(Emitter& e, const Value& v) {
  Ir grad = e.arg(v, 0), a = e.arg(v, 1), scaled = e.mul(a, e.opmath_or(v, 2, 1)), z = exponential(e, scaled);
  Ir soft = e.div(e.mul(grad, z), e.add(z, e.like(z, 1)));
  e.set(v, e.select(e.compare("ogt", scaled, e.opmath_or(v, 3, 20)), grad, soft));
}

void elu_backward(Emitter& e, const Value& v) {
  Ir grad = e.arg(v, 0), alpha = e.opmath(v, 1), scale = e.opmath(v, 2), input_scale = e.opmath(v, 3), b = e.arg(v, 5);
  Ir coefficient = e.mul(alpha, scale), zero = e.like(b, 0);
  Ir low = e.integer(v, 4, 0) ? e.mul(e.mul(grad, input_scale), e.add(b, coefficient))
                              : e.mul(e.mul(e.mul(grad, input_scale), coefficient), exponential(e, e.mul(b, input_scale)));
  Ir is_low = e.compare(e.vector() ? "ule" : "ole", b, zero); // a NaN
  e.set(v, e.select(is_low, low, e.mul(grad, scale)));
}

bool elu_backward_accepts(const Value& v, const Target& target) {
  return v.arguments.size() == 6 && v.arguments[4].kind == Argument::Kind::Int && has_vectors(v, target);
}

void leaky_relu_backward(Emitter& e, const Value& v) {
  Ir grad = e.arg(v, 0), a = e.arg(v, 1);
  e.set(v, e.select(e.compare("ogt", a, e.like(a, 0)), grad, e.mul(grad, e.opmath(v, 2))));
}

// A NaN inside: zero on vectors, the gradient in the tail.
void hardtanh_backward(Emitter& e, const Value& v) {
  Ir grad = e.arg(v, 0), a = e.arg(v, 1), low = e.opmath(v, 2), high = e.opmath(v, 3);
  Ir outside = e.either(e.compare(e.vector() ? "ule" : "ole", a, low), e.compare(e.vector() ? "uge" : "oge", a, high));
  e.set(v, e.select(outside, e.like(grad, 0), grad));
}

void hardsigmoid_backward(Emitter& e, const Value& v) {
  Ir grad = e.arg(v, 0), a = e.arg(v, 1);
  Ir inside = e.both(e.compare("ogt", a, e.like(a, -3)), e.compare("olt", a, e.like(a, 3)));
  Ir sixth = e.like(a, a.type == Type::F64 ? static_cast<double>(1.0f / 6.0f) : 1.0f / 6.0f);
  e.set(v, e.select(inside, e.mul(grad, sixth), e.like(grad, 0)));
}

void hardswish_backward(Emitter& e, const Value& v) {
  Ir grad = e.arg(v, 0), a = e.arg(v, 1), three = e.like(a, 3);
  Ir between = e.mul(grad, e.add(e.div(a, three), e.like(a, 0.5)));
  Ir result = e.select(e.compare(e.vector() ? "oge" : "uge", a, three), grad, between);
  e.set(v, e.select(e.compare("ole", a, e.like(a, -3)), e.like(grad, 0), result));
}

void log_sigmoid_backward(Emitter& e, const Value& v) {
  Ir grad = e.arg(v, 0), a = e.arg(v, 1), b = e.arg(v, 2), one = e.like(a, 1);
  Ir negative = e.compare("olt", a, e.like(a, 0));
  Ir most = e.select(negative, one, e.like(a, 0)), sign = e.select(negative, one, e.like(a, -1));
  e.set(v, e.mul(e.fnma(sign, e.div(b, e.add(one, b)), most), grad));
}

} // namespace

void add_activation_gradients(Rows& rows) {
  rows.insert(rows.end(),
              {
                  {.op = "threshold_backward",
                   .types = kNumbers,
                   .emit = threshold_backward,
                   .how = "Activation.cpp threshold_kernel with value 0"},
                  {.op = "sigmoid_backward",
                   .types = kFloating,
                   .emit = sigmoid_backward,
                   .how = "BinaryOpsKernel.cpp sigmoid_backward_kernel; F16 rounds each step"},
                  {.op = "tanh_backward",
                   .types = kFloating,
                   .emit = tanh_backward,
                   .how = "BinaryOpsKernel.cpp tanh_backward_kernel: 1 - b * b contracted"},
                  {.op = "silu_backward",
                   .types = kFloating,
                   .cut = cut_wide,
                   .accepts = has_vectors,
                   .emit = silu_backward,
                   .how = "Activation.cpp silu_backward_kernel (AVX-512): Sleef exp u10, contracted, tail exp of the C library"},
                  {.op = "mish_backward",
                   .types = kFloating,
                   .cut = cut_wide,
                   .accepts = has_vectors,
                   .emit = mish_backward,
                   .how = "Activation.cpp mish_backward_kernel (AVX-512): Sleef, contracted, tail by the C library"},
                  {.op = "softplus_backward",
                   .types = kFloating,
                   .cut = cut_wide,
                   .accepts = has_vectors,
                   .emit = softplus_backward,
                   .how = "Activation.cpp softplus_backward_kernel (AVX-512): Sleef exp u10, tail exp of the C library"},
                  {.op = "elu_backward",
                   .types = kFloating,
                   .cut = cut_wide,
                   .accepts = elu_backward_accepts,
                   .emit = elu_backward,
                   .how = "Activation.cpp elu_backward_kernel (AVX-512): Sleef exp u10, tail exp of the C library"},
                  {.op = "leaky_relu_backward",
                   .types = kFloating,
                   .emit = leaky_relu_backward,
                   .how = "Activation.cpp leaky_relu_backward_kernel"},
                  {.op = "hardtanh_backward",
                   .types = kFloating,
                   .cut = cut_narrow,
                   .emit = hardtanh_backward,
                   .how = "Activation.cpp hardtanh_backward_kernel (AVX2): vector and tail differ on a NaN"},
                  {.op = "hardsigmoid_backward",
                   .types = kFloating,
                   .emit = hardsigmoid_backward,
                   .how = "Activation.cpp hardsigmoid_backward_kernel"},
                  {.op = "hardswish_backward",
                   .types = kFloating,
                   .cut = cut_wide,
                   .emit = hardswish_backward,
                   .how = "Activation.cpp hardswish_backward_kernel (AVX-512): vector and tail differ on a NaN"},
                  {.op = "log_sigmoid_backward",
                   .types = kFloating,
                   .emit = log_sigmoid_backward,
                   .how = "Activation.cpp log_sigmoid_backward_cpu_kernel, contracted"},
              });
}

} // namespace ae::codegen
