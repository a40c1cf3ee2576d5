// Quick softmax along the last dimension, and its gradient: ATen's inner kernels on tensors that need no preparation.
#include "runtime/quick_parts.h"

#ifdef AE_ATEN_STUBS
#include <ATen/native/cpu/SoftmaxKernel.h>

namespace ae {
namespace {

template <auto& stub>
struct Softmax final : Quick {
  at::Tensor self, out;

  bool run() override {
    stub(c10::kCPU, out, self);
    return true;
  }
};

template <auto& stub>
struct SoftmaxBackward final : Quick {
  at::Tensor gradient, output, out;

  bool run() override {
    stub(c10::kCPU, out, gradient, output);
    return true;
  }
};

// Contiguous, and along the last of its dimensions.
bool rows(const QuickCall& call, size_t tensors) {
  const at::Tensor& out = call.result();
  for (size_t i = 0; i < tensors; ++i) {
    if (!plain(call.arguments[i]) || !call.tensor(i).is_contiguous() || call.tensor(i).sizes() != out.sizes() ||
        call.tensor(i).scalar_type() != out.scalar_type() || !apart(call.tensor(i), out)) {
      return false;
    }
  }
  const c10::IValue& dim = call.arguments[tensors];
  return dim.isInt() && (dim.toInt() == -1 || dim.toInt() == out.dim() - 1) && out.dim() > 0 && out.numel() > 0 &&
         out.is_contiguous();
}

template <auto& stub>
std::unique_ptr<Quick> softmax(const QuickCall& call) {
  if (!rows(call, 1)) {
    return nullptr;
  }
  auto quick = std::make_unique<Softmax<stub>>();
  quick->self = call.tensor(0);
  quick->out = call.result();
  return quick;
}

template <auto& stub>
std::unique_ptr<Quick> softmax_backward(const QuickCall& call) {
  if (!rows(call, 2)) {
    return nullptr;
  }
  auto quick = std::make_unique<SoftmaxBackward<stub>>();
  quick->gradient = call.tensor(0);
  quick->output = call.tensor(1);
  quick->out = call.result();
  return quick;
}

} // namespace

std::unique_ptr<Quick> quick_softmax(const QuickCall& call) {
  return softmax<at::native::softmax_lastdim_kernel>(call);
}

std::unique_ptr<Quick> quick_log_softmax(const QuickCall& call) {
  return softmax<at::native::log_softmax_lastdim_kernel>(call);
}

std::unique_ptr<Quick> quick_softmax_backward(const QuickCall& call) {
  return softmax_backward<at::native::softmax_backward_lastdim_kernel>(call);
}

std::unique_ptr<Quick> quick_log_softmax_backward(const QuickCall& call) {
  return softmax_backward<at::native::log_softmax_backward_lastdim_kernel>(call);
}

} // namespace ae

#else

namespace ae {

AE_NEVER_QUICK(quick_softmax)
AE_NEVER_QUICK(quick_log_softmax)
AE_NEVER_QUICK(quick_softmax_backward)
AE_NEVER_QUICK(quick_log_softmax_backward)

} // namespace ae
#endif
