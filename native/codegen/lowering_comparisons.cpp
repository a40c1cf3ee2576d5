// Comparisons and logic.
#include "codegen/rows.h"

namespace ae::codegen {
namespace {

constexpr char kEq[] = "oeq", kNe[] = "une", kLt[] = "olt", kLe[] = "ole", kGt[] = "ogt", kGe[] = "oge";

template <const char* predicate>
void comparison(Emitter& e, const Value& v) {
  e.set(v, e.compare(predicate, e.arg(v, 0), e.arg(v, 1)));
}

constexpr char kAnd[] = "and", kOr[] = "or", kXor[] = "xor";

template <const char* name>
void logical(Emitter& e, const Value& v) {
  e.set(v, e.binary(name, e.convert(e.arg(v, 0), Type::Bool), e.convert(e.arg(v, 1), Type::Bool)));
}

void where(Emitter& e, const Value& v) {
  e.set(v, e.select(e.convert(e.raw(v, 0), Type::Bool), e.arg(v, 1), e.arg(v, 2)));
}

void masked_fill(Emitter& e, const Value& v) {
  e.set(v, e.select(e.convert(e.raw(v, 1), Type::Bool), e.arg(v, 2), e.arg(v, 0)));
}

void nan_to_num(Emitter& e, const Value& v) {
  Ir a = e.arg(v, 0);
  if (!is_float(a.type))
    return e.set(v, a);
  double infinity = std::numeric_limits<double>::infinity();
  double most = v.compute == Type::F64    ? std::numeric_limits<double>::max()
                : v.compute == Type::F32  ? std::numeric_limits<float>::max()
                : v.compute == Type::BF16 ? 0x1.fep127
                                          : 65504.0;
  Ir result = e.select(e.compare("oeq", a, e.like(a, -infinity)), e.arg_or(v, 3, -most), a);
  result = e.select(e.compare("oeq", a, e.like(a, infinity)), e.arg_or(v, 2, most), result);
  e.set(v, e.select(e.is_nan(a), e.arg_or(v, 1, 0), result));
}

} // namespace

void add_comparisons(Rows& rows) {
  rows.insert(
      rows.end(),
      {
          {.op = "eq", .types = kAll, .exact = true, .emit = comparison<kEq>, .how = "BinaryOpsKernel.cpp eq_kernel"},
          {.op = "ne", .types = kAll, .exact = true, .emit = comparison<kNe>, .how = "BinaryOpsKernel.cpp ne_kernel"},
          {.op = "lt", .types = kAll, .exact = true, .emit = comparison<kLt>, .how = "BinaryOpsKernel.cpp lt_kernel"},
          {.op = "le", .types = kAll, .exact = true, .emit = comparison<kLe>, .how = "BinaryOpsKernel.cpp le_kernel"},
          {.op = "gt", .types = kAll, .exact = true, .emit = comparison<kGt>, .how = "BinaryOpsKernel.cpp gt_kernel"},
          {.op = "ge", .types = kAll, .exact = true, .emit = comparison<kGe>, .how = "BinaryOpsKernel.cpp ge_kernel"},
          {.op = "logical_and",
           .types = kAll,
           .exact = true,
           .emit = logical<kAnd>,
           .how = "BinaryOpsKernel.cpp logical_and_kernel"},
          {.op = "logical_or", .types = kAll, .exact = true, .emit = logical<kOr>, .how = "BinaryOpsKernel.cpp logical_or_kernel"},
          {.op = "logical_xor",
           .types = kAll,
           .exact = true,
           .emit = logical<kXor>,
           .how = "BinaryOpsKernel.cpp logical_xor_kernel"},
          {.op = "logical_not",
           .types = kAll,
           .exact = true,
           .emit = [](Emitter& e,
                      const Value& v) { e.set(v, e.differ(e.convert(e.arg(v, 0), Type::Bool), e.number(Type::Bool, 1))); },
           .how = "UnaryOpsKernel.cpp logical_not_kernel"},
          {.op = "isnan",
           .types = kAll,
           .exact = true,
           .emit = [](Emitter& e,
                      const Value& v) { e.set(v, is_float(v.compute) ? e.is_nan(e.arg(v, 0)) : e.number(Type::Bool, 0)); },
           .how = "TensorCompare.cpp isnan: self != self"},
          {.op = "isinf",
           .types = kAll,
           .exact = true,
           .emit =
               [](Emitter& e, const Value& v) {
                 Ir a = e.arg(v, 0);
                 e.set(v, is_float(a.type)
                              ? e.compare("oeq", e.intrinsic("fabs", {a}), e.like(a, std::numeric_limits<double>::infinity()))
                              : e.number(Type::Bool, 0));
               },
           .how = "TensorCompare.cpp isinf: abs(self) == inf"},
          {.op = "where", .types = kAll, .exact = true, .emit = where, .how = "TensorCompareKernel.cpp where_kernel_impl"},
          {.op = "masked_fill",
           .promotion = Promotion::First,
           .types = kAll,
           .exact = true,
           .emit = masked_fill,
           .how = "IndexKernel.cpp cpu_masked_fill_kernel"},
          {.op = "nan_to_num", .types = kAll, .emit = nan_to_num, .how = "UnaryOpsKernel.cpp nan_to_num_kernel"},
      });
}

} // namespace ae::codegen
