// Kernels with the C++ signature of their op, for tables/hot_ops.def: nothing is boxed, no reference is counted. They
// stand before autograd's kernels too, for calls that need no gradient.
#include <ATen/Operators.h>

#include "ops/borrowed.h"
#include "ops/register.h"
#include "recorder/recorder.h"

namespace ae {
namespace {

template <class T, size_t N>
void push(Borrowed<N>& args, const T& value) {
  using V = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<V, at::Tensor> || std::is_same_v<V, std::optional<at::Tensor>>) {
    args.tensor(value);
  } else if constexpr (std::is_same_v<V, at::TensorList> || std::is_same_v<V, at::ITensorListRef>) {
    args.tensors(value);
  } else if constexpr (std::is_same_v<V, at::ArrayRef<at::Scalar>>) {
    c10::impl::GenericList list(c10::NumberType::get());
    list.reserve(value.size());
    for (const at::Scalar& scalar : value) {
      list.push_back(c10::IValue(scalar));
    }
    args.value(std::move(list));
  } else if constexpr (std::is_same_v<V, std::string_view>) {
    args.value(std::string(value));
  } else if constexpr (std::is_same_v<V, std::optional<std::string_view>>) {
    args.value(value ? c10::IValue(std::string(*value)) : c10::IValue());
  } else if constexpr (std::is_same_v<V, at::OptionalIntArrayRef>) {
    args.value(value ? c10::IValue(*value) : c10::IValue());
  } else if constexpr (std::is_same_v<V, at::OptionalSymIntArrayRef>) {
    args.value(value ? c10::IValue(*value) : c10::IValue());
  } else if constexpr (requires { c10::IValue(value); }) {
    args.value(value);
  } else {
    args.value(c10::IValue(c10::impl::GenericList(c10::BoolType::get())));
    static_assert(std::is_same_v<V, ::std::array<bool, 1>> || std::is_same_v<V, ::std::array<bool, 2>> ||
                  std::is_same_v<V, ::std::array<bool, 3>> || std::is_same_v<V, ::std::array<bool, 4>>);
    auto list = args.last().toList();
    for (bool b : value) {
      list.push_back(c10::IValue(b));
    }
  }
}

// The tensor that an in-place op returns: its one argument of type Tensor&.
template <class First, class... Rest>
at::Tensor& written(First&& first, Rest&&... rest) {
  if constexpr (std::is_same_v<First, at::Tensor&>) {
    return first;
  } else {
    return written(std::forward<Rest>(rest)...);
  }
}

bool differentiable(const at::Tensor& tensor, bool grad_mode) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  return impl->autograd_meta() != nullptr && ((grad_mode && impl->requires_grad()) || tensor._fw_grad(0).defined());
}

// Whether autograd has anything to do with the argument, found without a reference taken.
template <class T>
bool differentiable(const T& value, bool grad_mode) {
  if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) {
    return value.has_value() && differentiable(*value, grad_mode);
  } else if constexpr (std::is_same_v<T, at::TensorList> || std::is_same_v<T, at::ITensorListRef>) {
    for (const at::Tensor& tensor : value) {
      if (differentiable(tensor, grad_mode)) {
        return true;
      }
    }
    return false;
  } else {
    static_assert(!std::is_same_v<T, c10::List<std::optional<at::Tensor>>>);
    return false;
  }
}

const uint64_t kDeviceKeys = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1).raw_repr();
const uint64_t kBelowAutograd =
    c10::after_autograd_keyset.raw_repr() & ~(c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView).raw_repr() |
                                              c10::DispatchKeySet(c10::BackendComponent::CPUBit).raw_repr());

// Below autograd, nothing but the device's kernels wants the call: no mode, subclass, lazy conjugation.
bool only_device(c10::DispatchKeySet keys) {
  return (keys.raw_repr() & kBelowAutograd) == kDeviceKeys;
}

// The same op of autograd, which has it under this key too.
c10::DispatchKeySet by_other_key(c10::DispatchKeySet keys) {
  return keys.remove(c10::DispatchKey::AutogradPrivateUse1).add(c10::DispatchKey::AutogradOther);
}

template <class R>
struct Return {
  static R take(Results& results) {
    return std::move(results[0]).toTensor();
  }
};
template <>
struct Return<void> {
  static void take(Results&) {}
};
template <>
struct Return<std::vector<at::Tensor>> {
  static std::vector<at::Tensor> take(Results& results) {
    return std::move(results[0]).toTensorVector();
  }
};
template <class... T>
struct Return<std::tuple<T...>> {
  static std::tuple<T...> take(Results& results) {
    return take(results, std::index_sequence_for<T...>());
  }
  template <size_t... I>
  static std::tuple<T...> take(Results& results, std::index_sequence<I...>) {
    return {std::move(results[I]).toTensor()...};
  }
};

template <class Op, class Schema>
struct Hot;
template <class Op, class R, class... A>
struct Hot<Op, R(A...)> {
  static constexpr bool in_place = std::is_same_v<R, at::Tensor&>;
  inline static const OpTraits* traits = nullptr;
  static R call(A... a) {
    Results results;
    {
      Borrowed<sizeof...(A)> args;
      (push(args, a), ...);
      record(*traits, args.data(), results);
    }
    if constexpr (in_place) {
      return written(std::forward<A>(a)...);
    } else {
      return Return<R>::take(results);
    }
  }

  // Autograd's kernel, for calls that it has nothing to do with. PyTorch's own takes references to find that out, and
  // for a tensor that only Python holds each of them costs the GIL.
  static R autograd(c10::DispatchKeySet keys, A... a) {
    bool grad_mode = c10::GradMode::is_enabled();
    if (!only_device(keys) || (differentiable(a, grad_mode) || ...)) {
      return Op::redispatch(by_other_key(keys), std::forward<A>(a)...);
    }
    if constexpr (in_place) {
      at::Tensor& result = call(std::forward<A>(a)...);
      if (keys.has(c10::DispatchKey::ADInplaceOrView)) {
        result.unsafeGetTensorImpl()->bump_version();
      }
      return result;
    } else {
      return call(std::forward<A>(a)...);
    }
  }
};

template <class Op>
void register_one(torch::Library& kernels, torch::Library& autograd) {
  using H = Hot<Op, typename Op::schema>;
  auto op = c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
  H::traits = &traits_of(op);
  std::string name = std::string(Op::name).substr(std::string("aten::").size());
  if (Op::overload_name[0] != '\0') {
    name += std::string(".") + Op::overload_name;
  }
  kernels.impl(name.c_str(), TORCH_FN(H::call));
  // Only where the kernel that this one stands before does what it does here.
  if (op.hasKernelForDispatchKey(c10::DispatchKey::Autograd) &&
      !op.hasKernelForDispatchKey(c10::DispatchKey::AutogradPrivateUse1) &&
      op.hasKernelForDispatchKey(c10::DispatchKey::ADInplaceOrView) == H::in_place) {
    autograd.impl(name.c_str(), TORCH_FN(H::autograd));
  }
}

} // namespace

void register_hot(torch::Library& kernels, torch::Library& autograd) {
#define RECORD(op) register_one<at::_ops::op>(kernels, autograd);
#define REPLAY(op)
#include "tables/hot_ops.def"
#undef RECORD
#undef REPLAY
}

} // namespace ae
