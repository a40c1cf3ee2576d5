#include "ops/direct.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/List.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include "device/device.h"
#include "ops/alias.h"

namespace ae {

using torch::jit::Stack;

BelowEverything::BelowEverything() : saved_(c10::impl::tls_local_dispatch_key_set()) {
  static const c10::DispatchKeySet excluded =
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::default_excluded_set | c10::autocast_dispatch_keyset;
  c10::impl::PODLocalDispatchKeySet pod;
  pod.set_included(c10::default_included_set);
  pod.set_excluded(excluded);
  c10::impl::_force_tls_local_dispatch_key_set(c10::impl::LocalDispatchKeySet(pod));
}

BelowEverything::~BelowEverything() {
  c10::impl::_force_tls_local_dispatch_key_set(saved_);
}

void DefaultGeneratorSwap::exchange() {
  auto* cpu = at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
  auto* own = at::check_generator<at::CPUGeneratorImpl>(cpu_generator_of({}));
  std::scoped_lock lock(cpu->mutex_, own->mutex_);
  auto engine = cpu->engine();
  auto next_float = cpu->next_float_normal_sample();
  auto next_double = cpu->next_double_normal_sample();
  cpu->set_engine(own->engine());
  cpu->set_next_float_normal_sample(own->next_float_normal_sample());
  cpu->set_next_double_normal_sample(own->next_double_normal_sample());
  own->set_engine(engine);
  own->set_next_float_normal_sample(next_float);
  own->set_next_double_normal_sample(next_double);
}
DefaultGeneratorSwap::DefaultGeneratorSwap() {
  exchange();
}
DefaultGeneratorSwap::~DefaultGeneratorSwap() {
  exchange();
}

namespace {

// The arguments' device tensors beside their aliases, in order, with those that are written marked.
struct Pair {
  at::Tensor original, alias;
  bool written;
};
using Pairs = c10::SmallVector<Pair, 6>;

at::Tensor aliased(const at::Tensor& tensor, bool written, Pairs& pairs, bool keeps) {
  if (!tensor.defined() || !on_neuron(tensor)) {
    return tensor;
  }
  // One tensor given twice stays one tensor: kernels compare identities (an in-place op may not broadcast itself).
  for (auto& pair : pairs) {
    if (pairs.size() <= 8 && pair.original.is_same(tensor)) {
      pair.written |= written;
      return pair.alias;
    }
  }
  pairs.push_back({tensor, cpu_alias(tensor, keeps), written});
  return pairs.back().alias;
}

[[noreturn]] void wrong_device(const OpTraits& traits, size_t argument, const at::Tensor& tensor) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, neuron:0 and ",
              tensor.device(), "! (when checking argument for argument ", traits.op.schema().arguments()[argument].name(),
              " in method ", traits.name, ")");
}

void check_devices(const OpTraits& traits, const c10::IValue* args, bool any_neuron) {
  if (!any_neuron || traits.host_operands || !traits.aten) {
    return;
  }
  auto check = [&](const at::Tensor& t, size_t i) {
    if (t.defined() && !on_neuron(t) && (t.dim() > 0 || !t.device().is_cpu())) {
      wrong_device(traits, i, t);
    }
  };
  for (size_t i = 0; i < traits.args.size(); ++i) {
    const auto& iv = args[i];
    if (iv.isTensor()) {
      check(iv.toTensor(), i);
    } else if (traits.args[i].kind == ArgKind::TensorList && iv.isList()) {
      for (const c10::IValue& element : iv.toListRef()) {
        if (element.isTensor()) {
          check(element.toTensor(), i);
        }
      }
    }
  }
}

c10::IValue cpu_argument(const ArgTraits& arg, const c10::IValue& iv, Pairs& pairs, bool random, bool keeps) {
  if (iv.isTensor()) {
    return aliased(iv.toTensor(), arg.written, pairs, keeps);
  }
  if (arg.kind == ArgKind::TensorList && iv.isList()) {
    c10::impl::GenericList copy(iv.toList().elementType());
    copy.reserve(iv.toListRef().size());
    for (const c10::IValue& element : iv.toListRef()) {
      copy.push_back(element.isTensor() ? c10::IValue(aliased(element.toTensor(), arg.written, pairs, keeps)) : element);
    }
    return copy;
  }
  if (arg.kind == ArgKind::Device && iv.isDevice() && iv.toDevice().is_privateuseone()) {
    return c10::IValue(c10::Device(c10::DeviceType::CPU));
  }
  if (arg.kind == ArgKind::Generator && random) {
    if (iv.isNone() || !iv.toGenerator().defined()) {
      return c10::IValue(cpu_generator_of({}));
    }
    return c10::IValue(cpu_generator_of(iv.toGenerator()));
  }
  return iv;
}

c10::IValue neuron_return(const c10::IValue& iv, const Pairs& pairs) {
  if (iv.isTensor()) {
    const auto& t = iv.toTensor();
    for (const auto& pair : pairs) {
      if (t.is_same(pair.alias)) {
        return pair.original;
      }
    }
    return neuron_result(t);
  }
  if (iv.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& element : iv.toListRef()) {
      list.push_back(neuron_return(element, pairs).toTensor());
    }
    return list;
  }
  return iv;
}

} // namespace

void run_direct(const OpTraits& traits, const c10::IValue* args, Results& results) {
  Pairs pairs;
  size_t count = traits.args.size();
  Stack inner;
  inner.reserve(count + 2);
  bool device_argument = false;
  for (size_t i = 0; i < count; ++i) {
    const c10::IValue& iv = args[i];
    device_argument |= traits.args[i].kind == ArgKind::Device && iv.isDevice() && iv.toDevice().is_privateuseone();
    inner.push_back(cpu_argument(traits.args[i], iv, pairs, traits.random, !traits.aten));
  }
  check_devices(traits, args, !pairs.empty() || device_argument);
  auto carry = [&] {
    for (const auto& pair : pairs) {
      if (pair.written) {
        carry_back(pair.alias, pair.original);
      }
    }
  };
  try {
    BelowEverything below;
    std::optional<DefaultGeneratorSwap> swap;
    if (C10_UNLIKELY(traits.random && !traits.random_argument)) {
      swap.emplace();
    }
    bool sparse = false;
    for (const auto& pair : pairs) {
      sparse |= !is_plain(pair.alias.unsafeGetTensorImpl());
    }
    if (C10_LIKELY(!sparse)) {
      traits.op.redispatchBoxed(kCpuKeys, &inner);
    } else {
      traits.op.callBoxed(&inner);
    }
  } catch (...) {
    carry(); // an op that fails may have resized its output before
    throw;
  }
  carry();
  for (size_t i = 0; i < inner.size(); ++i) {
    const auto& ret = traits.returns[i];
    if (ret.kind != ReturnKind::Argument || !args[ret.argument].isTensor()) {
      results.push_back(neuron_return(inner[i], pairs));
    }
  }
}

} // namespace ae
