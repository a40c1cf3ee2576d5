// Quick matrix products: the BLAS call that ATen makes, with the operands that it would choose (addmm_impl_cpu_ and
// bmm_out_or_baddbmm_ in LinearAlgebra.cpp, gemm in CPUBlas.cpp). Operands that it would copy first are left to it.
#include <ATen/Context.h>

#include <algorithm>
#include <climits>
#include <optional>

#include "runtime/quick_parts.h"

// What ATen is linked with. Absent where it has another BLAS.
extern "C" {
[[gnu::weak]] void sgemm_(const char*, const char*, const int*, const int*, const int*, const float*, const float*, const int*,
                          const float*, const int*, const float*, float*, const int*);
[[gnu::weak]] void dgemm_(const char*, const char*, const int*, const int*, const int*, const double*, const double*, const int*,
                          const double*, const int*, const double*, double*, const int*);
[[gnu::weak]] void cblas_sgemm_batch(int, const int*, const int*, const int*, const int*, const int*, const float*, const float**,
                                     const int*, const float**, const int*, const float*, float**, const int*, int, const int*);
[[gnu::weak]] void cblas_dgemm_batch(int, const int*, const int*, const int*, const int*, const int*, const double*, const double**,
                                     const int*, const double**, const int*, const double*, double**, const int*, int, const int*);
}

namespace ae {
namespace {

template <class T>
constexpr bool kFloat = std::is_same_v<T, float>;

template <class T>
auto* gemm_routine() {
  if constexpr (kFloat<T>) {
    return &sgemm_;
  } else {
    return &dgemm_;
  }
}

template <class T>
auto* batch_routine() {
  if constexpr (kFloat<T>) {
    return &cblas_sgemm_batch;
  } else {
    return &cblas_dgemm_batch;
  }
}

// oneDNN multiplies floats in a smaller type if it is asked to. ATen looks at each call.
bool reduced_precision(int64_t m, int64_t n, int64_t k) {
  if (m * n * k <= 16 * 16 * 16) {
    return false;
  }
  auto precision = at::globalContext().float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
  return precision == at::Float32Precision::BF16 || precision == at::Float32Precision::TF32;
}

// One product in BLAS's terms: column-major.
struct Shape {
  bool a_transposed = false, b_transposed = false;
  int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;

  // As gemm does before it calls BLAS. False: it does not call it.
  bool normalize() {
    if (n == 1) {
      ldc = m;
    }
    if (a_transposed) {
      lda = m == 1 ? k : lda;
    } else {
      lda = k == 1 ? m : lda;
    }
    if (b_transposed) {
      ldb = k == 1 ? n : ldb;
    } else {
      ldb = n == 1 ? k : ldb;
    }
    return std::max({m, n, k, lda, ldb, ldc}) <= INT_MAX && lda >= std::max<int64_t>(1, a_transposed ? k : m) &&
           ldb >= std::max<int64_t>(1, b_transposed ? n : k) && ldc >= std::max<int64_t>(1, m);
  }
};

struct Factor {
  const at::Tensor* tensor;
  int64_t rows, columns; // of its strides
  explicit Factor(const at::Tensor& t) : tensor(&t), rows(t.strides()[0]), columns(t.strides()[1]) {}
};

struct Operands {
  Shape shape;
  Place a, b, c;
};

// result = m1 @ m2
std::optional<Operands> operands(const at::Tensor& result, const at::Tensor& mat1, const at::Tensor& mat2) {
  auto sizes = result.sizes();
  auto strides = result.strides();
  Factor first(mat1), second(mat2);
  bool swapped = false;
  if (strides[0] == 1 && (sizes[1] == 1 || strides[1] >= std::max<int64_t>(1, sizes[0]))) {
  } else if (strides[1] == 1 && (sizes[0] == 1 || strides[0] >= std::max<int64_t>(1, sizes[1]))) {
    swapped = true;
    std::swap(first, second);
  } else {
    return std::nullopt;
  }
  Shape s;
  s.m = sizes[swapped ? 1 : 0];
  s.n = sizes[swapped ? 0 : 1];
  s.k = mat1.sizes()[1];
  // The step from row to row and from column to column of the matrix that BLAS sees.
  auto lead = [&](const Factor& f, int64_t rows, int64_t columns, bool& transposed) -> std::optional<int64_t> {
    int64_t down = swapped ? f.columns : f.rows;
    int64_t across = swapped ? f.rows : f.columns;
    if (down == 1 && across >= std::max<int64_t>(1, rows)) {
      transposed = false;
      return across;
    }
    if (across == 1 && down >= std::max<int64_t>(1, columns)) {
      transposed = true;
      return down;
    }
    return std::nullopt;
  };
  auto lda = lead(first, s.m, s.k, s.a_transposed);
  auto ldb = lead(second, s.k, s.n, s.b_transposed);
  if (!lda || !ldb) {
    return std::nullopt;
  }
  s.lda = *lda;
  s.ldb = *ldb;
  s.ldc = strides[swapped ? 0 : 1];
  if (!s.normalize()) {
    return std::nullopt;
  }
  return Operands{s, Place(*first.tensor), Place(*second.tensor), Place(result)};
}

template <class T>
void gemm(const Shape& s, T alpha, const std::byte* a, const std::byte* b, T beta, std::byte* c) {
  char ta = s.a_transposed ? 't' : 'n', tb = s.b_transposed ? 't' : 'n';
  int m = static_cast<int>(s.m), n = static_cast<int>(s.n), k = static_cast<int>(s.k);
  int lda = static_cast<int>(s.lda), ldb = static_cast<int>(s.ldb), ldc = static_cast<int>(s.ldc);
  gemm_routine<T>()(&ta, &tb, &m, &n, &k, &alpha, reinterpret_cast<const T*>(a), &lda, reinterpret_cast<const T*>(b), &ldb, &beta,
                    reinterpret_cast<T*>(c), &ldc);
}

template <class T>
struct Product final : Quick {
  Operands op;
  const c10::IValue* beta = nullptr; // with alpha after it; nullptr: 0 and 1
  StridedCopy bias;
  std::optional<Place> bias_from; // nothing: the result itself is added to

  bool run() override {
    const Shape& s = op.shape;
    if (kFloat<T> && reduced_precision(s.m, s.n, s.k)) {
      return false;
    }
    T by = beta ? beta[0].toScalar().to<T>() : T(0);
    T scale = beta ? beta[1].toScalar().to<T>() : T(1);
    std::byte* c = op.c.data();
    if (bias_from && beta[0].toScalar().to<double>() != 0) {
      bias.run(bias_from->data(), c);
    }
    gemm<T>(s, scale, op.a.data(), op.b.data(), by, c);
    return true;
  }
};

template <class T>
struct Batch final : Quick {
  Shape shape;
  Place a, b, c;
  int64_t a_step = 0, b_step = 0, c_step = 0; // bytes
  std::vector<const T*> as, bs;
  std::vector<T*> cs;

  bool run() override {
    const Shape& s = shape;
    if (kFloat<T> && reduced_precision(s.m, s.n, s.k * static_cast<int64_t>(cs.size()))) {
      return false;
    }
    if (cs.size() == 1) {
      gemm<T>(s, T(1), a.data(), b.data(), T(0), c.data());
      return true;
    }
    for (size_t i = 0; i < cs.size(); ++i) {
      auto at = static_cast<int64_t>(i);
      as[i] = reinterpret_cast<const T*>(a.data() + at * a_step);
      bs[i] = reinterpret_cast<const T*>(b.data() + at * b_step);
      cs[i] = reinterpret_cast<T*>(c.data() + at * c_step);
    }
    constexpr int column_major = 102, plain = 111, transposed = 112;
    int ta = s.a_transposed ? transposed : plain, tb = s.b_transposed ? transposed : plain;
    int m = static_cast<int>(s.m), n = static_cast<int>(s.n), k = static_cast<int>(s.k);
    int lda = static_cast<int>(s.lda), ldb = static_cast<int>(s.ldb), ldc = static_cast<int>(s.ldc);
    int count = static_cast<int>(cs.size());
    T alpha(1), beta(0);
    batch_routine<T>()(column_major, &ta, &tb, &m, &n, &k, &alpha, as.data(), &lda, bs.data(), &ldb, &beta, cs.data(), &ldc, 1,
                       &count);
    return true;
  }
};

// Matrices that a product can be made of: same type, own memory for the result, nothing empty.
bool multiplies(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, int64_t rank) {
  return a.dim() == rank && b.dim() == rank && out.dim() == rank && a.scalar_type() == out.scalar_type() &&
         b.scalar_type() == out.scalar_type() && apart(a, out) && apart(b, out) && a.numel() > 0 && b.numel() > 0 &&
         a.sizes()[rank - 1] == b.sizes()[rank - 2] && out.sizes()[rank - 2] == a.sizes()[rank - 2] &&
         out.sizes()[rank - 1] == b.sizes()[rank - 1] &&
         (rank == 2 || (a.sizes()[0] == out.sizes()[0] && b.sizes()[0] == out.sizes()[0]));
}

#if defined(__x86_64__)
template <class T>
bool available() {
  return gemm_routine<T>() != nullptr;
}
#else
template <class T>
bool available() {
  return false; // other processors' kernels do not end in this call
}
#endif

template <class T>
std::unique_ptr<Quick> product(const at::Tensor& out, const at::Tensor* self, const at::Tensor& mat1, const at::Tensor& mat2,
                               const c10::IValue* beta) {
  if (!available<T>() || !multiplies(out, mat1, mat2, 2)) {
    return nullptr;
  }
  auto op = operands(out, mat1, mat2);
  if (!op) {
    return nullptr;
  }
  auto quick = std::make_unique<Product<T>>();
  quick->op = *op;
  quick->beta = beta;
  if (self != nullptr && self->is_same(out)) {
    quick->reads_written = true;
  } else if (self != nullptr) {
    if (self->scalar_type() != out.scalar_type() || !apart(*self, out) || self->dim() > 2) {
      return nullptr;
    }
    c10::SmallVector<int64_t, 2> from;
    for (int64_t d = 0; d < 2; ++d) {
      int64_t own = d - 2 + self->dim();
      bool spread = own < 0 || self->sizes()[own] == 1;
      if (!spread && self->sizes()[own] != out.sizes()[d]) {
        return nullptr;
      }
      from.push_back(spread ? 0 : self->strides()[own]);
    }
    quick->bias = StridedCopy(out.sizes(), from, out.strides(), static_cast<int64_t>(sizeof(T)));
    quick->bias_from = Place(*self);
  }
  return quick;
}

template <class T>
std::unique_ptr<Quick> batch(const at::Tensor& out, const at::Tensor& mat1, const at::Tensor& mat2) {
  if (!available<T>() || batch_routine<T>() == nullptr || !at::hasMKL() || !multiplies(out, mat1, mat2, 3) ||
      !out.is_contiguous()) {
    return nullptr;
  }
  auto fits = [](const at::Tensor& t) {
    auto sizes = t.sizes();
    auto strides = t.strides();
    return (strides[2] == 1 && (sizes[1] == 1 || strides[1] >= sizes[2])) ||
           (strides[1] == 1 && (sizes[2] == 1 || strides[2] >= sizes[1]));
  };
  if (!fits(mat1) || !fits(mat2) || mat1.sizes()[2] * out.sizes()[1] * out.sizes()[2] < 400) {
    return nullptr;
  }
  auto transposed = [](const at::Tensor& t) { return t.strides()[1] == 1 && t.strides()[2] >= t.sizes()[1]; };
  auto quick = std::make_unique<Batch<T>>();
  Shape& s = quick->shape;
  s.a_transposed = transposed(mat2);
  s.b_transposed = transposed(mat1);
  s.m = out.sizes()[2];
  s.n = out.sizes()[1];
  s.k = mat2.sizes()[1];
  s.lda = mat2.strides()[s.a_transposed ? 2 : 1];
  s.ldb = mat1.strides()[s.b_transposed ? 2 : 1];
  s.ldc = out.strides()[1];
  if (!s.normalize()) {
    return nullptr;
  }
  auto item = static_cast<int64_t>(sizeof(T));
  auto count = static_cast<size_t>(out.sizes()[0]);
  quick->a = Place(mat2);
  quick->b = Place(mat1);
  quick->c = Place(out);
  quick->a_step = mat2.strides()[0] * item;
  quick->b_step = mat1.strides()[0] * item;
  quick->c_step = out.strides()[0] * item;
  quick->as.resize(count);
  quick->bs.resize(count);
  quick->cs.resize(count);
  return quick;
}

} // namespace

// mm(self, mat2)
std::unique_ptr<Quick> quick_mm(const QuickCall& call) {
  if (!plain(call.arguments[0]) || !plain(call.arguments[1])) {
    return nullptr;
  }
  const at::Tensor& out = call.result();
  return out.scalar_type() == c10::kFloat    ? product<float>(out, nullptr, call.tensor(0), call.tensor(1), nullptr)
         : out.scalar_type() == c10::kDouble ? product<double>(out, nullptr, call.tensor(0), call.tensor(1), nullptr)
                                             : nullptr;
}

// addmm(self, mat1, mat2, beta, alpha)
std::unique_ptr<Quick> quick_addmm(const QuickCall& call) {
  if (!plain(call.arguments[0]) || !plain(call.arguments[1]) || !plain(call.arguments[2])) {
    return nullptr;
  }
  const at::Tensor& out = call.result();
  const auto* beta = call.arguments + 3;
  return out.scalar_type() == c10::kFloat    ? product<float>(out, &call.tensor(0), call.tensor(1), call.tensor(2), beta)
         : out.scalar_type() == c10::kDouble ? product<double>(out, &call.tensor(0), call.tensor(1), call.tensor(2), beta)
                                             : nullptr;
}

// bmm(self, mat2)
std::unique_ptr<Quick> quick_bmm(const QuickCall& call) {
  if (!plain(call.arguments[0]) || !plain(call.arguments[1])) {
    return nullptr;
  }
  const at::Tensor& out = call.result();
  return out.scalar_type() == c10::kFloat    ? batch<float>(out, call.tensor(0), call.tensor(1))
         : out.scalar_type() == c10::kDouble ? batch<double>(out, call.tensor(0), call.tensor(1))
                                             : nullptr;
}

} // namespace ae
