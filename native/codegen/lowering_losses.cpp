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

// ATen's own arithmetic on a half type: each step is rounded.
class Steps {
 public:
  Steps(Emitter& e, const Value& v, bool rounds) : e_(e), type_(v.compute), rounds_(rounds && is_half(v.compute)) {}
  Ir add(const Ir& a, const Ir& b) {
    return round(e_.add(a, b));
  }
  Ir sub(const Ir& a, const Ir& b) {
    return round(e_.sub(a, b));
  }
  Ir mul(const Ir& a, const Ir& b) {
    return round(e_.mul(a, b));
  }
  Ir div(const Ir& a, const Ir& b) {
    return round(e_.div(a, b));
  }

 private:
  Ir round(const Ir& a) {
    return rounds_ ? e_.round(a, type_) : a;
  }
  Emitter& e_;
  Type type_;
  bool rounds_;
};

void mse_loss(Emitter& e, const Value& v) {
  Ir difference = Steps(e, v, true).sub(e.arg(v, 0), e.arg(v, 1));
  e.set(v, e.mul(difference, difference));
}

void mse_loss_backward(Emitter& e, const Value& v) {
  Steps steps(e, v, true);
  Ir difference = steps.sub(e.arg(v, 1), e.arg(v, 2));
  e.set(v, e.mul(steps.mul(e.like(difference, 2), difference), e.arg(v, 0)));
}

// z - bound / 2: the half of the bound is exact, so a contraction does not show.
void smooth_l1_loss(Emitter& e, const Value& v) {
  Steps steps(e, v, v.compute == Type::F16);
  Ir z = e.intrinsic("fabs", {steps.sub(e.arg(v, 0), e.arg(v, 1))}), half = e.like(z, 0.5);
  Ir beta = v.compute == Type::F16 ? e.arg_or(v, 3, 1) : e.opmath_or(v, 3, 1);
  Ir low = steps.div(steps.mul(steps.mul(half, z), z), beta);
  e.set(v, e.select(e.compare("olt", z, beta), low, e.sub(z, steps.mul(half, beta))));
}

void huber_loss(Emitter& e, const Value& v) {
  Steps steps(e, v, true);
  Ir z = e.intrinsic("fabs", {steps.sub(e.arg(v, 0), e.arg(v, 1))}), delta = e.arg_or(v, 3, 1), half = e.like(z, 0.5);
  Ir low = steps.mul(steps.mul(half, z), z);
  e.set(v, e.select(e.compare("olt", z, delta), low, e.mul(delta, steps.sub(z, steps.mul(half, delta)))));
}

// +-1 beyond the bound
Ir side(Emitter& e, const Ir& x) {
  return e.select(e.compare("ogt", x, e.like(x, 0)), e.like(x, 1), e.like(x, -1));
}

// In the tail ATen's bound is a double, and so is what is computed with it.
struct Tail {
  Ir bound, high, low, grad;
};
Tail tail_of(Emitter& e, const Value& v, const Ir& x, const Ir& grad) {
  Ir bound = e.convert(e.raw(v, 4), Type::F64), wide = e.convert(x, Type::F64);
  return {bound, e.compare("oge", wide, bound), e.compare("ole", wide, e.neg(bound)), e.convert(grad, Type::F64)};
}

void smooth_l1_loss_backward(Emitter& e, const Value& v) {
  Ir grad = e.arg(v, 0), x = e.sub(e.arg(v, 1), e.arg(v, 2));
  if (e.vector()) {
    Ir beta = e.opmath(v, 4), beyond = e.compare("oge", e.intrinsic("fabs", {x}), beta);
    return e.set(v, e.mul(e.select(beyond, side(e, x), e.div(x, beta)), grad));
  }
  Tail tail = tail_of(e, v, x, grad);
  Ir inner = e.convert(e.div(e.convert(e.mul(x, grad), Type::F64), tail.bound), x.type);
  e.set(v, e.select(tail.low, e.neg(grad), e.select(tail.high, grad, inner)));
}

void huber_loss_backward(Emitter& e, const Value& v) {
  Ir grad = e.arg(v, 0), x = e.sub(e.arg(v, 1), e.arg(v, 2));
  if (e.vector()) {
    Ir delta = e.opmath(v, 4), beyond = e.compare("oge", e.intrinsic("fabs", {x}), delta);
    return e.set(v, e.mul(e.select(beyond, e.mul(side(e, x), delta), x), grad));
  }
  Tail tail = tail_of(e, v, x, grad);
  Ir outer = e.convert(e.mul(tail.grad, tail.bound), x.type);
  e.set(v, e.select(tail.low, e.neg(outer), e.select(tail.high, outer, e.mul(x, grad))));
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
          {.op = "mse_loss",
           .types = kFloating,
           .accepts = reduction<2, false>,
           .emit = mse_loss,
           .how = "BinaryOpsKernel.cpp mse_kernel"},
          {.op = "smooth_l1_loss",
           .types = kFloating,
           .accepts = reduction<2, false>,
           .emit = smooth_l1_loss,
           .how = "BinaryOpsKernel.cpp smooth_l1_kernel"},
          {.op = "huber_loss",
           .types = kFloats | kBF16,
           .accepts = reduction<2, false>,
           .emit = huber_loss,
           .how = "BinaryOpsKernel.cpp huber_kernel"},
          {.op = "mse_loss_backward",
           .types = kFloating,
           .accepts = reduction<3, true>,
           .emit = mse_loss_backward,
           .how = "PointwiseOpsKernel.cpp mse_backward_cpu_kernel"},
          {.op = "smooth_l1_loss_backward",
           .types = kFloating,
           .cut = cut_narrow,
           .accepts = reduction<3, true>,
           .emit = smooth_l1_loss_backward,
           .how =
               "PointwiseOpsKernel.cpp smooth_l1_backward_cpu_kernel: vector and tail divide in another order, the tail in double"},
          {.op = "huber_loss_backward",
           .types = kFloats,
           .cut = cut_narrow,
           .accepts = reduction<3, true>,
           .emit = huber_loss_backward,
           .how = "PointwiseOpsKernel.cpp huber_backward_cpu_kernel: the tail multiplies by delta in double"},
          {.op = "native_dropout_backward",
           .types = kFloating,
           .emit = native_dropout_backward,
           .how = "Dropout.cpp native_dropout_backward: grad * mask * scale"},
      });
}

} // namespace ae::codegen
