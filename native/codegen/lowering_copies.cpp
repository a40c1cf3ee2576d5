// Copies, conversions and fills.
#include "codegen/rows.h"

namespace ae::codegen {
namespace {

template <size_t index>
void convert(Emitter& e, const Value& v) {
  e.set(v, e.raw(v, index));
}

template <int number>
void constant(Emitter& e, const Value& v) {
  e.set(v, e.number(v.type == Type::Bool ? Type::Bool : is_float(v.type) ? Type::F64 : v.type, number));
}

} // namespace

void add_copies(Rows& rows) {
  const Lowering row{.op = "", .promotion = Promotion::Result, .types = kAll, .exact = true};
  auto add = [&](std::string_view op, decltype(row.emit) emit, const char* how) {
    Lowering copy = row;
    copy.op = op;
    copy.emit = emit;
    copy.how = how;
    rows.push_back(copy);
  };
  add("copy", convert<1>, "CopyKernel.cpp copy_kernel: c10::convert; floating to integer as x86 converts");
  add("_to_copy", convert<0>, "CopyKernel.cpp copy_kernel");
  add("clone", convert<0>, "CopyKernel.cpp copy_kernel");
  add("fill", convert<1>, "FillKernel.cpp fill_kernel");
  add("full_like", convert<1>, "FillKernel.cpp fill_kernel");
  add("zero", constant<0>, "FillKernel.cpp fill_kernel");
  add("zeros_like", constant<0>, "FillKernel.cpp fill_kernel");
  add("ones_like", constant<1>, "FillKernel.cpp fill_kernel");
}

} // namespace ae::codegen
