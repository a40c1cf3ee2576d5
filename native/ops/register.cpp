#include "ops/register.h"

#include "ops/alias.h"
#include "ops/traits.h"
#include "recorder/recorder.h"

namespace ae {
namespace {

// The kernel of every op that the recorder takes: a boxed function that already knows its op.
struct Recording final : c10::OperatorKernel {
  explicit Recording(const OpTraits& t) : traits(t) {}
  const OpTraits& traits;
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    record_boxed(traits, *stack);
  }
};

// For ops registered later or elsewhere: custom ops, sparse tensors.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  record_boxed(traits_of(op), *stack);
}

} // namespace

void register_recorder(torch::Library& m) {
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !recorder_takes(*op) || op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
      continue;
    }
    auto full = name.name.substr(std::string("aten::").size());
    if (!name.overload_name.empty()) {
      full += "." + name.overload_name;
    }
    m.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Recording>(traits_of(*op))));
  }
}

void register_fallbacks() {
  static auto* dense = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  dense->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  static auto* sparse = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::SparsePrivateUse1, __FILE__, __LINE__);
  sparse->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

} // namespace ae
