// Batch norm of contiguous float32 images in training, and its gradient.
//
// ATen adds up a channel in one chain of double additions, and a row of gradients in one of float vectors: each addition
// waits for the one before. Here several chains, each in ATen's order, go on side by side. Nothing else differs, down to
// where ATen's build contracts a * b + c and where it does not.
#include "runtime/quick_parts.h"

#ifdef AE_ATEN_STUBS
#include <ATen/native/batch_norm.h>
#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "common/parallel.h"
#include "plan/pointwise.h"

#define AE_AVX2 __attribute__((target("avx2"))) // nothing is contracted in these
#define AE_FMA __attribute__((target("avx2,fma")))
#define AE_INLINE __attribute__((always_inline)) inline

namespace ae {
namespace {

constexpr int64_t kLanes = 8; // of ATen's vectors: it has no wider build of these kernels
constexpr int kSide = 4;      // gradients' channels side by side

struct Images {
  int64_t batch = 0, channels = 0, size = 0;

  int64_t each() const { // elements of a channel
    return batch * size;
  }
  int64_t row(int64_t image, int64_t channel) const {
    return (image * channels + channel) * size;
  }
};

// The sums of eight channels, a channel to a lane.
struct Sums {
  __m256d low, high;
};

AE_AVX2 AE_INLINE void add(Sums& sums, __m256 values) {
  sums.low = _mm256_add_pd(sums.low, _mm256_cvtps_pd(_mm256_castps256_ps128(values)));
  sums.high = _mm256_add_pd(sums.high, _mm256_cvtps_pd(_mm256_extractf128_ps(values, 1)));
}

AE_AVX2 AE_INLINE __m256 narrow(__m256d low, __m256d high) {
  return _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low));
}

// Adds up the channels from `first` on, or their squared differences from `means`. Lanes past the last channel repeat it.
template <bool differences>
AE_AVX2 AE_INLINE Sums sum_channels(const float* x, const Images& images, int64_t first, __m256 means) {
  auto map = [means](__m256 v) AE_AVX2 {
    __m256 difference = _mm256_sub_ps(v, means);
    return differences ? _mm256_mul_ps(difference, difference) : v;
  };
  Sums sums{_mm256_setzero_pd(), _mm256_setzero_pd()};
  for (int64_t n = 0; n < images.batch; ++n) {
    const float* row[kLanes];
    for (int64_t k = 0; k < kLanes; ++k) {
      row[k] = x + images.row(n, std::min(first + k, images.channels - 1));
    }
    int64_t i = 0;
    for (; i + 4 <= images.size; i += 4) { // four elements of each row, transposed
      __m256 r[4];
      for (int k = 0; k < 4; ++k) {
        r[k] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(row[k] + i)), _mm_loadu_ps(row[k + 4] + i), 1);
      }
      __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(r[0], r[1])), b = _mm256_castps_pd(_mm256_unpacklo_ps(r[2], r[3]));
      __m256d c = _mm256_castps_pd(_mm256_unpackhi_ps(r[0], r[1])), d = _mm256_castps_pd(_mm256_unpackhi_ps(r[2], r[3]));
      add(sums, map(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b))));
      add(sums, map(_mm256_castpd_ps(_mm256_unpackhi_pd(a, b))));
      add(sums, map(_mm256_castpd_ps(_mm256_unpacklo_pd(c, d))));
      add(sums, map(_mm256_castpd_ps(_mm256_unpackhi_pd(c, d))));
    }
    for (; i < images.size; ++i) {
      add(sums, map(_mm256_setr_ps(row[0][i], row[1][i], row[2][i], row[3][i], row[4][i], row[5][i], row[6][i], row[7][i])));
    }
  }
  return sums;
}

// Eight channels' means and sums of squared differences from them: batch_norm_cpu_collect_stats_contiguous_impl.
AE_AVX2 void statistics(const float* x, const Images& images, int64_t first, float* mean, float* squares) {
  alignas(32) float lanes[kLanes];
  int64_t count = std::min(kLanes, images.channels - first);

  Sums sums = sum_channels<false>(x, images, first, _mm256_setzero_ps());
  __m256d each = _mm256_set1_pd(static_cast<double>(images.each()));
  __m256 means = narrow(_mm256_div_pd(sums.low, each), _mm256_div_pd(sums.high, each));
  _mm256_store_ps(lanes, means);
  std::copy_n(lanes, count, mean + first);

  sums = sum_channels<true>(x, images, first, means);
  _mm256_store_ps(lanes, narrow(sums.low, sums.high));
  std::copy_n(lanes, count, squares + first);
}

// The lanes' sum, in vec::vec_reduce_all's order.
AE_AVX2 AE_INLINE float fold(__m256 v) {
  v = _mm256_add_ps(_mm256_permute2f128_ps(v, v, 0x01), v);
  v = _mm256_add_ps(_mm256_permute_ps(v, 0x4E), v);
  v = _mm256_add_ps(_mm256_permute_ps(v, 0xB1), v);
  return _mm256_cvtss_f32(v);
}

AE_AVX2 AE_INLINE __m256i first_lanes(int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// a * b, which is not contracted with what it is added to.
template <typename T>
AE_FMA AE_INLINE T product(T a, T b) {
  a *= b;
  asm("" : "+x"(a));
  return a;
}

struct GradientSums {
  double dy = 0, dot = 0; // of the gradients, and of their products with x - mean
};

// Adds up the rows of `count` channels of an image: vec::reduce_all and vec::map2_reduce_all.
template <int count>
AE_FMA void add_rows(const float* x, const float* dy, int64_t size, const float* mean, GradientSums* sums) {
  if (size < kLanes) {
    for (int c = 0; c < count; ++c, x += size, dy += size) {
      float sum = dy[0], dot = product(x[0] - mean[c], dy[0]);
      for (int64_t i = 1; i < size; ++i) {
        sum += dy[i];
        dot += product(x[i] - mean[c], dy[i]);
      }
      sums[c].dy += sum;
      sums[c].dot += dot;
    }
    return;
  }
  __m256 m[count], sum[count], dot[count];
  for (int c = 0; c < count; ++c) {
    m[c] = _mm256_set1_ps(mean[c]);
    sum[c] = _mm256_loadu_ps(dy + c * size);
    dot[c] = product(_mm256_sub_ps(_mm256_loadu_ps(x + c * size), m[c]), sum[c]);
  }
  int64_t i = kLanes;
  for (; i + kLanes <= size; i += kLanes) {
    for (int c = 0; c < count; ++c) {
      __m256 g = _mm256_loadu_ps(dy + c * size + i);
      sum[c] = _mm256_add_ps(sum[c], g);
      dot[c] = _mm256_add_ps(dot[c], product(_mm256_sub_ps(_mm256_loadu_ps(x + c * size + i), m[c]), g));
    }
  }
  if (i < size) { // the rest is contracted
    __m256i some = first_lanes(size - i);
    for (int c = 0; c < count; ++c) {
      __m256 g = _mm256_maskload_ps(dy + c * size + i, some);
      __m256 q = _mm256_sub_ps(_mm256_maskload_ps(x + c * size + i, some), m[c]);
      sum[c] = _mm256_blendv_ps(sum[c], _mm256_add_ps(sum[c], g), _mm256_castsi256_ps(some));
      dot[c] = _mm256_blendv_ps(dot[c], _mm256_fmadd_ps(q, g, dot[c]), _mm256_castsi256_ps(some));
    }
  }
  for (int c = 0; c < count; ++c) {
    sums[c].dy += fold(sum[c]);
    sums[c].dot += fold(dot[c]);
  }
}

struct Gradient {
  const float *x, *dy, *weight, *mean, *invstd;
  float *dx, *dweight, *dbias;
};

// The channels [first, first + count) of batch_norm_cpu_backward_contiguous_impl. False: not all of it is finite.
template <int count>
AE_FMA bool gradients(const Gradient& g, const Images& images, int64_t first) {
  GradientSums sums[count];
  for (int64_t n = 0; n < images.batch; ++n) {
    int64_t at = images.row(n, first);
    add_rows<count>(g.x + at, g.dy + at, images.size, g.mean + first, sums);
  }
  float k[count], dy_mean[count], weight[count];
  for (int c = 0; c < count; ++c) {
    float invstd = g.invstd[first + c];
    weight[c] = g.weight ? g.weight[first + c] : 1;
    if (!std::isfinite(sums[c].dy) || !std::isfinite(sums[c].dot) || !std::isfinite(invstd) || !std::isfinite(weight[c])) {
      return false;
    }
    k[c] = static_cast<float>(sums[c].dot) * invstd * invstd / static_cast<float>(images.each());
    dy_mean[c] = static_cast<float>(sums[c].dy / static_cast<double>(images.each()));
    g.dweight[first + c] = static_cast<float>(sums[c].dot * static_cast<double>(invstd));
    g.dbias[first + c] = static_cast<float>(sums[c].dy);
  }
  for (int64_t n = 0; n < images.batch; ++n) {
    for (int c = 0; c < count; ++c) {
      __m256 m = _mm256_set1_ps(g.mean[first + c]), s = _mm256_set1_ps(g.invstd[first + c]);
      __m256 w = _mm256_set1_ps(weight[c]), kk = _mm256_set1_ps(k[c]), d = _mm256_set1_ps(dy_mean[c]);
      auto gradient = [=](__m256 x, __m256 dy) AE_FMA {
        __m256 dx = _mm256_fnmadd_ps(_mm256_sub_ps(x, m), kk, _mm256_sub_ps(dy, d));
        return _mm256_mul_ps(_mm256_mul_ps(dx, s), w);
      };
      const float *x = g.x + images.row(n, first + c), *dy = g.dy + images.row(n, first + c);
      float* dx = g.dx + images.row(n, first + c);
      int64_t i = 0;
      for (; i + kLanes <= images.size; i += kLanes) {
        _mm256_storeu_ps(dx + i, gradient(_mm256_loadu_ps(x + i), _mm256_loadu_ps(dy + i)));
      }
      if (i < images.size) {
        __m256i some = first_lanes(images.size - i);
        _mm256_maskstore_ps(dx + i, some, gradient(_mm256_maskload_ps(x + i, some), _mm256_maskload_ps(dy + i, some)));
      }
    }
  }
  return true;
}

// Calls body(unit) for each, on ATen's threads if it is much work.
template <typename Body>
void share(int64_t units, int64_t elements, const Body& body) {
  auto each = [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      body(unit);
    }
  };
  if (elements < at::internal::GRAIN_SIZE || at::get_num_threads() == 1) {
    return each(0, units);
  }
  on_threads(units, 1, each);
}

// Values that are not finite are the kernel's: which of two NaNs a sum is depends on instructions.
struct BatchNorm final : Quick {
  at::Tensor input, weight, bias, running_mean, running_var, out, mean, invstd;
  const c10::IValue *momentum = nullptr, *eps = nullptr;
  Images images;
  std::vector<float> squares;

  bool run() override {
    auto* x = input.const_data_ptr<float>();
    auto* means = mean.mutable_data_ptr<float>();
    share((images.channels + kLanes - 1) / kLanes, input.numel(),
          [&](int64_t group) { statistics(x, images, group * kLanes, means, squares.data()); });
    if (!std::all_of(means, means + images.channels, [](float m) { return std::isfinite(m); })) {
      return false;
    }
    update();
    at::native::batch_norm_cpu_stub(c10::kCPU, out, input, weight, bias, mean, invstd, running_mean, running_var, true,
                                    eps->toDouble());
    return true;
  }

  // batch_norm_cpu_update_stats_template
  void update() {
    auto* means = mean.const_data_ptr<float>();
    auto* invstds = invstd.mutable_data_ptr<float>();
    float* running = running_mean.defined() ? running_mean.mutable_data_ptr<float>() : nullptr;
    float* running_variance = running_var.defined() ? running_var.mutable_data_ptr<float>() : nullptr;
    auto part = static_cast<float>(momentum->toDouble());
    double epsilon = eps->toDouble();
    int64_t each = images.each();
    for (size_t c = 0; c < squares.size(); ++c) {
      double variance = squares[c] / static_cast<float>(each);
      invstds[c] = variance != 0 || epsilon != 0 ? static_cast<float>(1 / std::sqrt(variance + epsilon)) : 0;
      if (running) {
        running[c] = part * means[c] + (1 - part) * running[c];
      }
      if (running_variance) {
        double unbiased = squares[c] / static_cast<float>(each - 1);
        running_variance[c] = static_cast<float>(part * unbiased + (1 - part) * running_variance[c]);
      }
    }
  }
};

struct BatchNormBackward final : Quick {
  at::Tensor dy, input, weight, mean, invstd, dx, dweight, dbias;
  Images images;

  bool run() override {
    Gradient gradient{input.const_data_ptr<float>(),
                      dy.const_data_ptr<float>(),
                      weight.defined() ? weight.const_data_ptr<float>() : nullptr,
                      mean.const_data_ptr<float>(),
                      invstd.const_data_ptr<float>(),
                      dx.mutable_data_ptr<float>(),
                      dweight.mutable_data_ptr<float>(),
                      dbias.mutable_data_ptr<float>()};
    std::atomic<bool> finite = true;
    share((images.channels + kSide - 1) / kSide, input.numel(), [&](int64_t group) {
      int64_t first = group * kSide, end = std::min(first + kSide, images.channels);
      bool all = true;
      if (end - first == kSide) {
        all = gradients<kSide>(gradient, images, first);
      } else {
        for (int64_t c = first; c < end; ++c) {
          all &= gradients<1>(gradient, images, c);
        }
      }
      if (!all) {
        finite = false;
      }
    });
    return finite;
  }
};

bool dense(const c10::IValue& value) {
  return plain(value) && value.toTensor().scalar_type() == c10::kFloat && value.toTensor().is_contiguous();
}

// One number a channel.
bool read_channels(const c10::IValue& value, const Images& images, at::Tensor& to) {
  bool fits = dense(value) && value.toTensor().dim() == 1 && value.toTensor().numel() == images.channels;
  to = fits ? value.toTensor() : at::Tensor();
  return fits;
}

bool read_channels_if_any(const c10::IValue& value, const Images& images, at::Tensor& to) {
  return absent(value) || read_channels(value, images, to);
}

// One element an image is another kernel's.
bool read_images(const c10::IValue& value, Images& images, at::Tensor& to) {
  if (!dense(value) || value.toTensor().dim() < 3 || value.toTensor().numel() == 0) {
    return false;
  }
  to = value.toTensor();
  images = {to.size(0), to.size(1), to.numel() / to.size(0) / to.size(1)};
  return images.size > 1;
}

bool avx2() {
  return codegen_target().vectors();
}

} // namespace

// native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)
std::unique_ptr<Quick> quick_batch_norm(const QuickCall& call) {
  auto quick = std::make_unique<BatchNorm>();
  Images& images = quick->images;
  if (!avx2() || call.result_count != 3 || !call.arguments[5].isBool() || !call.arguments[5].toBool() ||
      !read_images(call.arguments[0], images, quick->input) || !read_channels_if_any(call.arguments[1], images, quick->weight) ||
      !read_channels_if_any(call.arguments[2], images, quick->bias) ||
      !read_channels_if_any(call.arguments[3], images, quick->running_mean) ||
      !read_channels_if_any(call.arguments[4], images, quick->running_var) ||
      !read_channels(call.results[1], images, quick->mean) || !read_channels(call.results[2], images, quick->invstd) ||
      !dense(call.results[0]) || call.result().sizes() != quick->input.sizes() || !apart(quick->input, call.result())) {
    return nullptr;
  }
  quick->out = call.result();
  quick->momentum = call.arguments + 6;
  quick->eps = call.arguments + 7;
  quick->squares.resize(static_cast<size_t>(images.channels));
  for (const auto& running : {quick->running_mean, quick->running_var}) {
    if (running.defined()) {
      quick->written.push_back(running);
      quick->reads_written = true;
    }
  }
  return quick;
}

// native_batch_norm_backward(grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, mask)
std::unique_ptr<Quick> quick_batch_norm_backward(const QuickCall& call) {
  auto quick = std::make_unique<BatchNormBackward>();
  Images& images = quick->images;
  if (!avx2() || call.result_count != 3 || !call.arguments[7].isBool() || !call.arguments[7].toBool() ||
      !read_images(call.arguments[1], images, quick->input) || !dense(call.arguments[0]) ||
      call.tensor(0).sizes() != quick->input.sizes() || !read_channels_if_any(call.arguments[2], images, quick->weight) ||
      !read_channels(call.arguments[5], images, quick->mean) || !read_channels(call.arguments[6], images, quick->invstd) ||
      !dense(call.results[0]) || call.result().sizes() != quick->input.sizes() ||
      !read_channels(call.results[1], images, quick->dweight) || !read_channels(call.results[2], images, quick->dbias) ||
      !apart(quick->input, call.result()) || !apart(call.tensor(0), call.result())) {
    return nullptr;
  }
  quick->dy = call.tensor(0);
  quick->dx = call.result();
  return quick;
}

} // namespace ae

#else

namespace ae {

AE_NEVER_QUICK(quick_batch_norm)
AE_NEVER_QUICK(quick_batch_norm_backward)

} // namespace ae
#endif
