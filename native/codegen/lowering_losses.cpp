// Losses without reduction, their gradients, and dropout's.
#include "codegen/rows.h"

namespace ae::codegen {
namespace {

constexpr int64_t kMean = 1;

template <size_t index, bool sum>
bool reduction(const Value& v, const Target&) {
  int64_t kind = v.arguments.size() > index && v.arguments[index].kind == Argument::Kind::Int ? v.arguments[index].number : kMean;
  return kind == 0 || (sum && kind != kMean);
}

void mse_loss(Emitter& e, const Value& v) {
  Ir difference = e.sub(e.arg(v, 0), e.arg(v, 1));
  if (is_half(v.compute))
    difference = e.round(difference, v.compute);
  e.set(v, e.mul(difference, difference));
}

void mse_loss_backward(Emitter& e, const Value& v) {
  Ir difference = e.sub(e.arg(v, 1), e.arg(v, 2));
  e.set(v, e.mul(e.mul(e.like(difference, 2), difference), e.arg(v, 0)));
}

void smooth_l1_loss(Emitter& e, const Value& v) {
  Ir z = e.intrinsic("fabs", {e.sub(e.arg(v, 0), e.arg(v, 1))}), beta = e.opmath_or(v, 3, 1), half = e.like(z, 0.5);
  Ir low = e.div(e.mul(e.mul(half, z), z), beta);
  e.set(v, e.select(e.compare("olt", z, beta), low, e.fnma(half, beta, z)));
}

void huber_loss(Emitter& e, const Value& v) {
  Ir z = e.intrinsic("fabs", {e.sub(e.arg(v, 0), e.arg(v, 1))}), delta = e.opmath_or(v, 3, 1), half = e.like(z, 0.5);
  Ir low = e.mul(e.mul(half, z), z);
  e.set(v, e.select(e.compare("olt", z, delta), low, e.mul(delta, e.fnma(half, delta, z))));
}

// +-1 beyond the bound
Ir side(Emitter& e, const Ir& x) {
  return e.select(e.compare("ogt", x, e.like(x, 0)), e.like(x, 1), e.like(x, -1));
}

void smooth_l1_loss_backward(Emitter& e, const Value& v) {
  Ir grad = e.arg(v, 0), x = e.sub(e.arg(v, 1), e.arg(v, 2)), beta = e.opmath(v, 4);
  if (e.vector()) {
    Ir beyond = e.compare("oge", e.intrinsic("fabs", {x}), beta);
    return e.set(v, e.mul(e.select(beyond, side(e, x), e.div(x, beta)), grad));
  }
  Ir inner = e.div(e.mul(x, grad), beta);
  inner = e.select(e.compare("oge", x, beta), grad, inner);
  e.set(v, e.select(e.compare("ole", x, e.neg(beta)), e.neg(grad), inner));
}

void huber_loss_backward(Emitter& e, const Value& v) {
  Ir grad = e.arg(v, 0), x = e.sub(e.arg(v, 1), e.arg(v, 2)), delta = e.opmath(v, 4);
  Ir beyond = e.compare("oge", e.intrinsic("fabs", {x}), delta);
  e.set(v, e.mul(e.select(beyond, e.mul(side(e, x), delta), x), grad));
}

void native_dropout_backward(Emitter& e, const Value& v) {
  Ir grad = e.arg(v, 0), kept = e.mul(grad, e.convert(e.convert(e.raw(v, 1), Type::Bool), grad.type));
  e.set(v, e.mul(kept, e.opmath(v, 2)));
}

} // namespace

void add_losses(Rows& rows) {
  rows.insert(
      rows.end(),
      {
          {.op = "mse_loss", .types = kFloats | kF16, .accepts = reduction<2, false>, .emit = mse_loss, .how = "BinaryOpsKernel.cpp mse_kernel"},
          {.op = "smooth_l1_loss", .types = kFloats, .accepts = reduction<2, false>, .emit = smooth_l1_loss, .how = "BinaryOpsKernel.cpp smooth_l1_kernel"},
          {.op = "huber_loss", .types = kFloats, .accepts = reduction<2, false>, .emit = huber_loss, .how = "BinaryOpsKernel.cpp huber_kernel"},
          {.op = "mse_loss_backward", .types = kFloats, .accepts = reduction<3, true>, .emit = mse_loss_backward, .how = "PointwiseOpsKernel.cpp mse_backward_cpu_kernel"},
          {.op = "smooth_l1_loss_backward", .types = kFloats, .cut = cut_narrow, .accepts = reduction<3, true>, .emit = smooth_l1_loss_backward, .how = "PointwiseOpsKernel.cpp smooth_l1_backward_cpu_kernel: vector and tail divide in another order"},
          {.op = "huber_loss_backward", .types = kFloats, .accepts = reduction<3, true>, .emit = huber_loss_backward, .how = "PointwiseOpsKernel.cpp huber_backward_cpu_kernel"},
          {.op = "native_dropout_backward", .types = kFloating, .emit = native_dropout_backward, .how = "Dropout.cpp native_dropout_backward: grad * mask * scale"},
      });
}

} // namespace ae::codegen
