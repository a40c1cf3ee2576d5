// GELU and its gradient: oneDNN's kernels, and ATen's own for the approximation by tanh.
#include <bit>

#include "codegen/rows.h"

namespace ae::codegen {
namespace {

using Onednn = Target::Onednn;

Ir constant(Emitter& e, uint32_t bits) {
  return e.number(Type::F32, std::bit_cast<float>(bits));
}

Ir sign_of(Emitter& e, const Ir& a) {
  return e.both(e.bits(a), e.integer_number(Type::I32, std::numeric_limits<int32_t>::min()));
}

Ir with_sign(Emitter& e, const Ir& a, const Ir& sign) {
  return e.from_bits(e.differ(e.bits(a), sign));
}

template <class... Coefficients>
Ir polynomial(Emitter& e, const Ir& a, uint32_t first, Coefficients... others) {
  Ir sum = constant(e, first);
  for (uint32_t coefficient : {static_cast<uint32_t>(others)...})
    sum = e.fma(sum, a, constant(e, coefficient));
  return sum;
}

// Coefficients of erf(a / sqrt(2)), the highest power first, by the piece in which |a| lies. Beyond the table all are 0.
constexpr Emitter::Table kPieces[] = {
    {0x3cb7d80c, 0x3c9b6050, 0x3c978d11, 0x3c92e850, 0x3c8d058b, 0x3c848454, 0x3c6cd623, 0x3c4c824b,
     0x3c2a7935, 0x3be0b390, 0x3b0651ac, 0xbb232f53, 0xbbd42fa0, 0xbc2c5366, 0xbc492c9e, 0xbc2a7aa6,
     0xbbd55d04, 0xba823a76, 0x3b102aa8, 0x3ae25a7e, 0x3a31f792, 0x38b84375, 0x3689bb5a},
    {0xba3d61db, 0x39f097a3, 0x3a5845dc, 0x3ab1fa35, 0x3b0cefb8, 0x3b653ab6, 0x3bcae527, 0x3c221712,
     0x3c6c5840, 0x3cc0a703, 0x3d1dcc19, 0x3d63656d, 0x3d955907, 0x3dbf9910, 0x3dd53f69, 0x3db7dcef,
     0x3d639ebe, 0xba6ede48, 0xbd22be69, 0xbd041cf1, 0xbc64f5ab, 0xbb097a32, 0xb8ebf380},
    {0xbe081a19, 0xbe084570, 0xbe08639b, 0xbe089837, 0xbe08f409, 0xbe09ab95, 0xbe0b66d0, 0xbe0e400a,
     0xbe124df8, 0xbe1bde02, 0xbe2f19c9, 0xbe4931bf, 0xbe685fbc, 0xbe89c95f, 0xbe96cbca, 0xbe8044aa,
     0xbe0550f2, 0x3dcfd6a1, 0x3e94c826, 0x3e79345f, 0x3decec91, 0x3ca46568, 0x3aa1e00a},
    {0xb62173f4, 0x3735e4cf, 0x37f2ff89, 0x388c23be, 0x3917535c, 0x39ab2ab0, 0x3a60fadb, 0x3af9b960,
     0x3b6e5491, 0x3c0a4ec5, 0x3ca5aa8c, 0x3d2138d9, 0x3d8737d4, 0x3ddfb660, 0x3e0f27ab, 0x3d94004b,
     0xbe0efdeb, 0xbf1d96c3, 0xbf89db58, 0xbf6d9897, 0xbef69fb8, 0xbdc4f8a8, 0xbbde6422},
    {0x3f4c422a, 0x3f4c421f, 0x3f4c4207, 0x3f4c41cb, 0x3f4c413b, 0x3f4c3fad, 0x3f4c3a2f, 0x3f4c2d40, 0x3f4c146a,
     0x3f4bc341, 0x3f4ad08c, 0x3f48f8cf, 0x3f45fac7, 0x3f404e07, 0x3f3b980f, 0x3f48dff3, 0x3f78b21b, 0x3fbb0704,
     0x40019c32, 0x3fe536d6, 0x3f81331e, 0x3e6c8684, 0x3c98f936, 0x00000000, 0x3f800000},
    {0xa6f2cb94, 0x32827792, 0x3381cc0c, 0x34523d4a, 0x351ac44d, 0x35f36d88, 0x36ee8229, 0x37b8a3bb, 0x3867a213,
     0x3940033b, 0x3a2a5a1d, 0x3ae35863, 0x3b7828f2, 0x3c08b14b, 0x3c515ed3, 0xbb503236, 0xbd8d8e5e, 0xbe8abcd9,
     0xbf0c19a2, 0xbeccb328, 0x3e176ced, 0x3f470d99, 0x3f7abb28, 0x3f800000, 0x00000000},
};

// oneDNN with AVX-512. A NaN takes the piece that is a itself.
Ir gelu_by_pieces(Emitter& e, const Ir& x) {
  auto n = [&](int64_t number) { return e.integer_number(Type::I32, number); };
  Ir a = e.intrinsic("fabs", {x});
  Ir piece = e.binary("ashr", e.add(e.bits(a), n(static_cast<int32_t>(0xc21fffff))), n(21));
  piece = e.intrinsic("smin", {e.intrinsic("smax", {piece, n(1)}), n(24)});
  piece = e.select(e.compare("ogt", a, constant(e, 0x40b15cee)), n(23), piece);
  Ir sum = e.entry("gelu5", kPieces[0], piece);
  for (int power = 4; power >= 0; --power)
    sum = e.fma(sum, a, e.entry("gelu" + std::to_string(power), kPieces[5 - power], piece));
  Ir twice = e.add(with_sign(e, sum, sign_of(e, x)), e.like(x, 1));
  return e.mul(e.mul(x, twice), e.like(x, 0.5));
}

// oneDNN's exponential, of what is not positive.
Ir onednn_exp(Emitter& e, const Ir& x) {
  Ir low = constant(e, 0xc2aeac50), high = constant(e, 0x42b17218), half = e.like(x, 0.5), one = e.like(x, 1);
  Ir a = e.select(e.compare("olt", x, high), x, high); // a NaN gives the bound
  a = e.select(e.compare("ogt", a, low), a, low);
  Ir whole = e.intrinsic("floor", {e.add(e.mul(a, constant(e, 0x3fb8aa3b)), half)});
  Ir rest = e.fnma(whole, constant(e, 0x3f317218), a);
  Ir scale = e.add(e.truncate(e.sub(whole, one)), e.integer_number(Type::I32, 127));
  scale = e.from_bits(e.binary("shl", scale, e.integer_number(Type::I32, 23)));
  scale = e.select(e.compare("olt", x, low), e.like(x, 0), scale);
  Ir sum = polynomial(e, rest, 0x3c07cfce, 0x3d2b9d0d, 0x3e2aad40, 0x3efffee3, 0x3f7ffffb, 0x3f800000);
  return e.mul(e.mul(sum, scale), e.like(x, 2));
}

// erf(s) of Abramowitz and Stegun, given exp(-s * s).
Ir onednn_erf(Emitter& e, const Ir& s, const Ir& power) {
  Ir one = e.like(s, 1), t = e.div(one, e.fma(constant(e, 0x3ea7ba05), e.intrinsic("fabs", {s}), one));
  Ir sum = polynomial(e, t, 0x3f87dc22, 0xbfba00e3, 0x3fb5f0e3, 0xbe91a98e, 0x3e827906);
  return with_sign(e, e.fma(e.mul(e.neg(power), t), sum, one), sign_of(e, s));
}

// oneDNN with AVX2 and nothing more.
Ir gelu_by_exp(Emitter& e, const Ir& x) {
  Ir s = e.mul(x, constant(e, 0x3f3504f3)), half = e.mul(x, e.like(x, 0.5));
  return e.fma(onednn_erf(e, s, onednn_exp(e, e.neg(e.mul(s, s)))), half, half);
}

Ir gelu_derivative(Emitter& e, const Ir& x) {
  Ir s = e.mul(x, constant(e, 0x3f3504f3)), half = e.like(x, 0.5), power = onednn_exp(e, e.neg(e.mul(s, s)));
  Ir density = e.mul(e.mul(s, constant(e, 0x3f106eba)), power);
  return e.fma(onednn_erf(e, s, power), half, e.add(density, half));
}

// The instruction with which oneDNN rounds to BF16 takes small numbers and gives small results as zeros.
void set_rounded(Emitter& e, const Value& v, const Ir& result) {
  if (v.compute != Type::BF16)
    return e.set(v, result);
  Ir exponent = e.both(e.bits(result), e.integer_number(Type::I32, 0x7f800000));
  Ir small = e.compare("oeq", exponent, e.integer_number(Type::I32, 0));
  e.set(v, e.select(small, e.from_bits(sign_of(e, result)), result));
}

bool is_tanh(Emitter& e, const Value& v, size_t approximate) {
  return e.text(v, approximate) == "tanh";
}

constexpr double kBeta = 1.41421356237309504880 * 1.12837916709551257390 * 0.5, kKappa = 0.044715;

// tanh of ATen's approximation, of x and its square.
Ir inner_tanh(Emitter& e, const Ir& x, const Ir& square) {
  Ir inner = e.mul(e.fma(e.mul(square, x), e.like(x, kKappa), x), e.like(x, kBeta));
  return e.vector() ? e.sleef("tanh", "_u10", {inner}, true) : e.libm("tanh", {inner});
}

void gelu(Emitter& e, const Value& v) {
  Ir x = e.arg(v, 0);
  if (!is_tanh(e, v, 1))
    return set_rounded(e, v, e.target().onednn == Onednn::Avx2 ? gelu_by_exp(e, x) : gelu_by_pieces(e, x));
  e.set(v, e.mul(e.mul(x, e.like(x, 0.5)), e.add(inner_tanh(e, x, e.mul(x, x)), e.like(x, 1))));
}

void gelu_backward(Emitter& e, const Value& v) {
  Ir grad = e.arg(v, 0), x = e.arg(v, 1);
  if (!is_tanh(e, v, 2))
    return set_rounded(e, v, e.mul(gelu_derivative(e, x), grad));
  double three_kappa = x.type == Type::F64 ? 3 * kKappa : 3 * static_cast<float>(kKappa);
  Ir square = e.mul(x, x), t = inner_tanh(e, x, square), one = e.like(x, 1), half = e.like(x, 0.5);
  Ir inner = e.mul(e.fma(square, e.like(x, three_kappa), one), e.like(x, kBeta));
  Ir right = e.mul(e.mul(e.mul(x, half), e.fnma(t, t, one)), inner);
  e.set(v, e.mul(e.fma(e.add(t, one), half, right), grad));
}

template <size_t approximate>
bool by_tanh(const Value& v) {
  return v.arguments.size() > approximate && v.arguments[approximate].text == "tanh";
}

template <size_t approximate>
bool gelu_accepts(const Value& v, const Target& target) {
  if (by_tanh<approximate>(v))
    return has_vectors(v, target);
  Onednn least = v.compute == Type::F32 ? Onednn::Avx2 : v.compute == Type::BF16 ? Onednn::Avx512Bf16 : Onednn::Avx512Fp16;
  return v.compute != Type::F64 && target.onednn >= least && has_vectors(v, target);
}

template <size_t approximate>
uint32_t gelu_cut(const Value& v, const Target& target) {
  return by_tanh<approximate>(v) ? cut_wide(v, target) : 0;
}

template <size_t approximate>
int gelu_onednn(const Value& v) {
  return by_tanh<approximate>(v) ? -1 : static_cast<int>(approximate) - 1;
}

} // namespace

void add_gelu(Rows& rows) {
  rows.insert(
      rows.end(),
      {
          {.op = "gelu",
           .types = kFloating,
           .cut = gelu_cut<1>,
           .accepts = gelu_accepts<1>,
           .emit = gelu,
           .onednn = gelu_onednn<1>,
           .how = "oneDNN's eltwise gelu_erf: erf by a table of polynomials (AVX2: by exp); 'tanh' is Activation.cpp "
                  "gelu_kernel: Sleef tanh u10, contracted, tail tanh of the C library"},
          {.op = "gelu_backward",
           .types = kFloating,
           .cut = gelu_cut<2>,
           .accepts = gelu_accepts<2>,
           .emit = gelu_backward,
           .onednn = gelu_onednn<2>,
           .how = "oneDNN's eltwise gelu_erf, backward: erf by exp; 'tanh' is Activation.cpp gelu_backward_kernel: Sleef tanh "
                  "u10, contracted, tail tanh of the C library"},
      });
}

} // namespace ae::codegen
