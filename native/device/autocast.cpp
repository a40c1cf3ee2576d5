// Autocast with the cast policies of torch.autocast("cpu"): the same dtypes, hence the same bits.
//
// The lists are those of aten/src/ATen/autocast_mode.cpp for AutocastCPU; tests/test_autocast.py compares them with what
// the installed torch registers.
#include "device/runtime.h"
#include "device/storage.h"

#include <ATen/autocast_mode.h>

namespace ae {
namespace {

// clang-format off
#define LOWER_PRECISION_OPS(_) \
  _(conv1d) _(conv1d, padding) _(conv2d) _(conv2d, padding) _(conv3d) _(conv3d, padding) _(bmm) _(mm) \
  _(linalg_vecdot) _(baddbmm) _(addmm) _(_addmm_activation) _(addbmm) _(linear) _(_convolution, deprecated) _(matmul) \
  _(conv_tbc) _(mkldnn_rnn_layer) _(conv_transpose1d) _(conv_transpose2d, input) _(conv_transpose3d, input) _(prelu) \
  _(scaled_dot_product_attention) _(_native_multi_head_attention)

#define FP32_OPS(_) \
  _(_grid_sampler_2d_cpu_fallback) _(_lu_with_info) _(adaptive_avg_pool3d) _(adaptive_max_pool3d) _(avg_pool3d) \
  _(binary_cross_entropy) _(binary_cross_entropy_with_logits) _(cdist) _(cholesky) _(cholesky_inverse) \
  _(cholesky_solve) _(cosine_embedding_loss) _(cross_entropy_loss) _(ctc_loss, IntList) _(ctc_loss, Tensor) \
  _(fake_quantize_per_tensor_affine) _(fft_fft) _(fft_fft2) _(fft_fftn) _(fft_hfft) _(fft_ifft) _(fft_ifft2) \
  _(fft_ifftn) _(fft_ihfft) _(fft_irfft) _(fft_irfft2) _(fft_irfftn) _(fft_rfft) _(fft_rfft2) _(fft_rfftn) \
  _(fractional_max_pool2d) _(fractional_max_pool3d) _(geqrf) _(grid_sampler) _(grid_sampler_2d) _(grid_sampler_3d) \
  _(hinge_embedding_loss) _(huber_loss) _(inverse) _(kl_div) _(l1_loss) _(linalg_cholesky) _(linalg_cholesky_ex) \
  _(linalg_cond) _(linalg_cond, p_str) _(linalg_eig) _(linalg_eigh) _(linalg_eigvals) _(linalg_eigvalsh) \
  _(linalg_householder_product) _(linalg_inv) _(linalg_inv_ex) _(linalg_lstsq) _(linalg_matrix_rank) \
  _(linalg_matrix_rank, atol_rtol_float) _(linalg_matrix_rank, atol_rtol_tensor) _(linalg_matrix_rank, tol_tensor) \
  _(linalg_qr) _(linalg_solve) _(linalg_svd) _(linalg_svdvals) _(linalg_tensorinv) _(linalg_tensorsolve) _(lu_solve) \
  _(margin_ranking_loss) _(max_pool3d) _(max_unpool2d) _(max_unpool3d) _(mse_loss) _(multi_margin_loss) \
  _(multilabel_margin_loss) _(multilabel_margin_loss_forward) _(nanquantile) _(nanquantile, scalar) _(nll_loss) \
  _(nll_loss2d) _(orgqr) _(ormqr) _(pinverse) _(poisson_nll_loss) _(polar) _(prod) _(prod, dim_int) _(qr) _(quantile) \
  _(quantile, scalar) _(reflection_pad1d) _(reflection_pad2d) _(replication_pad1d) _(replication_pad2d) \
  _(replication_pad3d) _(smooth_l1_loss) _(soft_margin_loss) _(stft) _(stft, center) _(svd) _(trace) \
  _(triangular_solve) _(triplet_margin_loss) _(view_as_complex)

#define PROMOTED_OPS(_) \
  _(stack) _(cat) _(index_copy)
// clang-format on

} // namespace

void register_autocast() {
  static auto& rest = *new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  rest.fallback(torch::CppFunction::makeFallthrough());

  static auto& m = *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
#define LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define PROMOTED(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  LOWER_PRECISION_OPS(LOWER_PRECISION)
  FP32_OPS(FP32)
  PROMOTED_OPS(PROMOTED)
#undef PROMOTED
#undef FP32
#undef LOWER_PRECISION

  // Torch keeps the default per thread, so this is the main thread's.
  at::autocast::set_autocast_dtype(kNeuron, at::kBFloat16);
}

} // namespace ae
