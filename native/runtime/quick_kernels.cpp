// Quick steps that call ATen's inner kernels: those behind its dispatch stubs.
#if defined(__x86_64__) // the instruction sets that PyTorch's binaries have kernels for: the stubs' interface depends on it
#define HAVE_AVX2_CPU_DEFINITION
#define HAVE_AVX512_CPU_DEFINITION
#include <ATen/TensorIterator.h>
#include <ATen/native/ReduceOps.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/layer_norm.h>

#include <optional>

#include "runtime/quick_parts.h"

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

// The iterator is made once, when there is memory; afterwards only addresses change.
struct Sum final : Quick {
  at::Tensor self, out;
  c10::DimVector dims;
  bool keepdim = false;
  std::optional<at::TensorIterator> iterator;

  bool run() override {
    if (!iterator) {
      iterator.emplace(at::meta::make_reduction(self, out, c10::IntArrayRef(dims), keepdim, out.scalar_type()));
    }
    iterator->unsafe_replace_operand(0, Place(out).data());
    iterator->unsafe_replace_operand(1, Place(self).data());
    at::native::sum_stub(c10::kCPU, *iterator);
    return true;
  }
};

} // namespace

// native_layer_norm(input, normalized_shape, weight, bias, eps)
std::unique_ptr<Quick> quick_layer_norm(const QuickCall& call) {
  c10::SmallVector<int64_t, 5> shape;
  if (call.result_count != 3 || !plain(call.arguments[0]) || !read_ints(call.arguments[1], shape)) {
    return nullptr;
  }
  auto quick = std::make_unique<LayerNorm>();
  auto parameter = [&](const c10::IValue& value, at::Tensor& to) {
    if (value.isNone() || (value.isTensor() && !value.toTensor().defined())) {
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

// sum(self, dim, keepdim, dtype)
std::unique_ptr<Quick> quick_sum(const QuickCall& call) {
  if (!plain(call.arguments[0]) || !call.arguments[2].isBool()) {
    return nullptr;
  }
  auto quick = std::make_unique<Sum>();
  quick->self = call.tensor(0);
  quick->out = call.result();
  quick->keepdim = call.arguments[2].toBool();
  c10::ScalarType type = quick->self.scalar_type();
  if ((type != c10::kFloat && type != c10::kDouble) || quick->out.scalar_type() != type || quick->self.numel() == 0 ||
      quick->self.numel() >= quick_limit() || !apart(quick->self, quick->out)) {
    return nullptr;
  }
  if (!call.arguments[1].isNone() && !read_ints(call.arguments[1], quick->dims)) {
    return nullptr;
  }
  return quick;
}

} // namespace ae

#else
#include "runtime/quick_parts.h"

namespace ae {

std::unique_ptr<Quick> quick_layer_norm(const QuickCall&) {
  return nullptr;
}
std::unique_ptr<Quick> quick_sum(const QuickCall&) {
  return nullptr;
}

} // namespace ae
#endif
