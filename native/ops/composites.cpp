// Ops whose composition in PyTorch asks for the device. Each takes the CPU's way here, so that its bits are the CPU's.
#include <ATen/ATen.h>
#include <ATen/native/transformers/attention.h>

#include "ops/alias.h"
#include "ops/register.h"

namespace ae {
namespace {

using at::Tensor;
template <class T>
using Opt = std::optional<T>;

// The CPU tensor of the same metadata with no memory behind it, for asking what the CPU would do.
Tensor shadow(const Tensor& t) {
  if (!t.defined() || !on_neuron(t)) {
    return t;
  }
  static const auto* empty =
      new c10::Storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, c10::Device(at::kCPU)), nullptr, false);
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(*empty), kCpuKeys, t.dtype());
  impl->set_sizes_and_strides(t.sizes(), t.strides(), 0);
  Tensor result(std::move(impl));
  if (t.requires_grad()) {
    result.set_requires_grad(true);
  }
  return result;
}

int64_t sdp_choice(const Tensor& query, const Tensor& key, const Tensor& value, const Opt<Tensor>& mask, double dropout,
                   bool causal, Opt<double> scale, bool gqa) {
  Opt<Tensor> shadow_mask;
  if (mask && mask->defined()) {
    shadow_mask = shadow(*mask);
  }
  return at::_fused_sdp_choice(shadow(query), shadow(key), shadow(value), shadow_mask, dropout, causal, scale, gqa);
}

using Overrideable = std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

Overrideable sdp_overrideable(const Tensor& query, const Tensor& key, const Tensor& value, const Opt<Tensor>& bias, double dropout,
                              bool causal, bool, Opt<double> scale) {
  auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, causal, bias, scale);
  return {out, logsumexp, Tensor(), Tensor(), query.sym_size(2), key.sym_size(2), Tensor(), Tensor(), Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> sdp_overrideable_backward(const Tensor& grad, const Tensor& query, const Tensor& key,
                                                                     const Tensor& value, const Tensor& bias,
                                                                     std::array<bool, 4> mask, const Tensor& out,
                                                                     const Tensor& logsumexp, const Tensor&, const Tensor&,
                                                                     c10::SymInt, c10::SymInt, double dropout, bool causal,
                                                                     const Tensor&, const Tensor&, Opt<double> scale) {
  TORCH_CHECK(!mask[3], "_scaled_dot_product_fused_attention_overrideable_backward: attn_bias has no gradient on CPU or neuron");
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad, query, key, value, out, logsumexp, dropout, causal, bias.defined() ? Opt<Tensor>(bias) : std::nullopt, scale);
  return {dq, dk, dv, Tensor()};
}

Tensor convolution_overrideable(const Tensor& input, const Tensor& weight, const Opt<Tensor>& bias, c10::SymIntArrayRef stride,
                                c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
                                c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  return at::convolution_symint(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward_overrideable(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                                                     c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                                                                     c10::SymIntArrayRef dilation, bool transposed,
                                                                     c10::SymIntArrayRef output_padding, c10::SymInt groups,
                                                                     std::array<bool, 3> mask) {
  // The bias has one element an output channel, which is where grad keeps its channels.
  std::vector<c10::SymInt> bias_sizes{grad.sym_size(1)};
  return at::convolution_backward_symint(grad, input, weight, c10::SymIntArrayRef(bias_sizes), stride, padding, dilation,
                                         transposed, output_padding, groups, mask);
}

// dropout: CPU draws a mask in the input's dtype and divides it by the keeping probability; native_dropout, which
// PyTorch would take for this device, rounds differently.
Tensor dropout_mask(const Tensor& input, double p) {
  return at::empty_like(input).bernoulli_(1 - p).div_(1 - p);
}

void check_probability(double p) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
}

Tensor dropout(const Tensor& input, double p, bool train) {
  check_probability(p);
  if (p == 0 || !train || input.sym_numel() == 0) {
    return input;
  }
  if (p == 1) {
    return input.mul(at::zeros({}, input.options()));
  }
  return input * dropout_mask(input, p);
}

Tensor& dropout_(Tensor& input, double p, bool train) {
  check_probability(p);
  if (p == 0 || !train || input.sym_numel() == 0) {
    return input;
  }
  if (p == 1) {
    return input.mul_(at::zeros({}, input.options()));
  }
  return input.mul_(dropout_mask(input, p));
}

} // namespace

void register_composites(torch::Library& m, torch::Library& autograd) {
  m.impl("_fused_sdp_choice",
         [](const Tensor& q, const Tensor& k, const Tensor& v, const Opt<Tensor>& mask, double dropout, bool causal,
            Opt<double> scale, bool gqa) { return sdp_choice(q, k, v, mask, dropout, causal, scale, gqa); });
  m.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(sdp_overrideable));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(sdp_overrideable_backward));
  m.impl("convolution_overrideable", TORCH_FN(convolution_overrideable));
  m.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward_overrideable));
  for (auto* library : {&m, &autograd}) {
    library->impl("dropout", TORCH_FN(dropout));
    library->impl("dropout_", TORCH_FN(dropout_));
  }
}

} // namespace ae

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &ae::sdp_choice)
} // namespace at::native
