// Quick steps that call ATen's inner kernels, those behind its dispatch stubs, on tensors that need no preparation.
#include "runtime/quick_parts.h"

#ifdef AE_ATEN_STUBS
#include <ATen/TensorIterator.h>
#include <ATen/native/ReduceOps.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/layer_norm.h>
#include <ATen/native/transformers/attention.h>

#include <optional>

namespace ae {
namespace {

struct LayerNorm final : Quick {
  at::Tensor input, weight, bias, out, mean, rstd;
  int64_t rows = 0, columns = 0;
  const c10::IValue* eps = nullptr;

  bool run() override {
    at::native::LayerNormKernel(c10::kCPU, input, weight, bias, rows, columns, eps->toDouble(), &out, &mean, &rstd);
    return true;
  }
};

struct Attention final : Quick {
  at::Tensor query, key, value, out, logsumexp; // the results with heads and positions swapped
  const c10::IValue *dropout = nullptr, *scale = nullptr;
  bool causal = false;
  std::optional<at::Tensor> mask;

  bool run() override {
    if (dropout->toDouble() != 0) {
      return false;
    }
    at::native::flash_attention_kernel(c10::kCPU, out, logsumexp, query, key, value, 0.0, causal, mask,
                                       scale->toOptional<double>());
    return true;
  }
};

// The iterator is made once, when there is memory; afterwards only addresses change.
template <auto& stub>
struct Reduction final : Quick {
  at::Tensor self, out;
  c10::DimVector dims;
  bool keepdim = false;
  std::optional<at::TensorIterator> iterator;

  bool run() override {
    if (!iterator) {
      iterator.emplace(at::meta::make_reduction(self, out, c10::IntArrayRef(dims), keepdim, self.scalar_type()));
    }
    iterator->unsafe_replace_operand(0, Place(out).data());
    iterator->unsafe_replace_operand(1, Place(self).data());
    stub(c10::kCPU, *iterator);
    return true;
  }
};

// reduce(self, dims, keepdim, ...)
template <auto& stub>
std::unique_ptr<Reduction<stub>> reduction(const QuickCall& call, c10::ScalarType type) {
  if (!plain(call.arguments[0]) || !call.arguments[2].isBool()) {
    return nullptr;
  }
  auto quick = std::make_unique<Reduction<stub>>();
  quick->self = call.tensor(0);
  quick->out = call.result();
  quick->keepdim = call.arguments[2].toBool();
  bool floats = quick->self.scalar_type() == c10::kFloat || quick->self.scalar_type() == c10::kDouble;
  if (!floats || quick->out.scalar_type() != type || quick->self.numel() == 0 || quick->self.numel() >= quick_limit() ||
      !apart(quick->self, quick->out) || (!call.arguments[1].isNone() && !read_ints(call.arguments[1], quick->dims))) {
    return nullptr;
  }
  return quick;
}

} // namespace

// native_layer_norm(input, normalized_shape, weight, bias, eps)
std::unique_ptr<Quick> quick_layer_norm(const QuickCall& call) {
  c10::SmallVector<int64_t, 5> shape;
  if (call.result_count != 3 || !plain(call.arguments[0]) || !read_ints(call.arguments[1], shape)) {
    return nullptr;
  }
  auto quick = std::make_unique<LayerNorm>();
  auto parameter = [&](const c10::IValue& value, at::Tensor& to) {
    if (absent(value)) {
      return true;
    }
    to = plain(value) ? value.toTensor() : at::Tensor();
    return to.defined() && to.is_contiguous() && to.sizes() == c10::IntArrayRef(shape);
  };
  quick->input = call.tensor(0);
  quick->out = call.result(0);
  quick->mean = call.result(1);
  quick->rstd = call.result(2);
  quick->eps = call.arguments + 4;
  quick->columns = c10::multiply_integers(shape);
  if (!parameter(call.arguments[2], quick->weight) || !parameter(call.arguments[3], quick->bias) || quick->columns == 0 ||
      !quick->input.is_contiguous() || !quick->out.is_contiguous() || !quick->mean.is_contiguous() ||
      !quick->rstd.is_contiguous()) {
    return nullptr;
  }
  quick->rows = quick->input.numel() / quick->columns;
  if (quick->rows == 0 || quick->mean.numel() != quick->rows || quick->rstd.numel() != quick->rows) {
    return nullptr;
  }
  return quick;
}

// _scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p, is_causal, attn_mask, scale)
std::unique_ptr<Quick> quick_attention(const QuickCall& call) {
  if (call.result_count != 2 || !plain(call.arguments[0]) || !plain(call.arguments[1]) || !plain(call.arguments[2]) ||
      !call.arguments[4].isBool() || (!absent(call.arguments[5]) && !plain(call.arguments[5])) || call.result(0).dim() != 4 ||
      call.result(1).dim() != 3 || call.result(0).numel() == 0 || call.tensor(1).numel() == 0) {
    return nullptr;
  }
  auto quick = std::make_unique<Attention>();
  quick->query = call.tensor(0);
  quick->key = call.tensor(1);
  quick->value = call.tensor(2);
  quick->dropout = call.arguments + 3;
  quick->causal = call.arguments[4].toBool();
  if (!absent(call.arguments[5])) {
    quick->mask = call.tensor(5);
  }
  quick->scale = call.arguments + 6;
  auto swapped = [](const at::Tensor& tensor) {
    c10::SmallVector<int64_t, 4> sizes(tensor.sizes().begin(), tensor.sizes().end());
    c10::SmallVector<int64_t, 4> strides(tensor.strides().begin(), tensor.strides().end());
    std::swap(sizes[1], sizes[2]);
    std::swap(strides[1], strides[2]);
    auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(tensor.storage()), tensor.key_set(), tensor.dtype());
    impl->set_sizes_and_strides(sizes, strides, tensor.storage_offset());
    return at::Tensor(std::move(impl));
  };
  quick->out = swapped(call.result(0));
  quick->logsumexp = swapped(call.result(1));
  return quick;
}

// sum(self, dim, keepdim, dtype)
std::unique_ptr<Quick> quick_sum(const QuickCall& call) {
  return plain(call.arguments[0]) ? reduction<at::native::sum_stub>(call, call.tensor(0).scalar_type()) : nullptr;
}

// argmax(self, dim, keepdim)
std::unique_ptr<Quick> quick_argmax(const QuickCall& call) {
  auto quick = reduction<at::native::argmax_stub>(call, c10::kLong);
  if (!quick || quick->dims.size() != 1 || quick->self.dim() == 0) {
    return nullptr; // of all elements: of a copy
  }
  int64_t dim = quick->dims[0] < 0 ? quick->dims[0] + quick->self.dim() : quick->dims[0];
  return dim >= 0 && dim < quick->self.dim() && quick->self.sizes()[dim] > 1 ? std::move(quick) : nullptr;
}

} // namespace ae

#else

namespace ae {

AE_NEVER_QUICK(quick_layer_norm)
AE_NEVER_QUICK(quick_attention)
AE_NEVER_QUICK(quick_sum)
AE_NEVER_QUICK(quick_argmax)

} // namespace ae
#endif
