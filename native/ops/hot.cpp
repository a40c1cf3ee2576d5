// Kernels with the C++ signature of their op, for tables/hot_ops.def: nothing is boxed, no reference is counted.
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
at::Tensor& written() {
  TORCH_INTERNAL_ASSERT(false);
}
template <class First, class... Rest>
at::Tensor& written(First&& first, Rest&&... rest) {
  if constexpr (std::is_same_v<First, at::Tensor&>) {
    return first;
  } else {
    return written(std::forward<Rest>(rest)...);
  }
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
  inline static const OpTraits* traits = nullptr;
  static R call(A... a) {
    Results results;
    {
      Borrowed<sizeof...(A)> args;
      (push(args, a), ...);
      record(*traits, args.data(), results);
    }
    if constexpr (std::is_same_v<R, at::Tensor&>) {
      return written(std::forward<A>(a)...);
    } else {
      return Return<R>::take(results);
    }
  }
};

template <class Op>
void register_one(torch::Library& m) {
  using H = Hot<Op, typename Op::schema>;
  auto op = c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
  H::traits = &traits_of(op);
  std::string name = std::string(Op::name).substr(std::string("aten::").size());
  if (Op::overload_name[0] != '\0') {
    name += std::string(".") + Op::overload_name;
  }
  m.impl(name.c_str(), TORCH_FN(H::call));
}

} // namespace

void register_hot(torch::Library& m) {
#define RECORD(op) register_one<at::_ops::op>(m);
#define REPLAY(op)
#include "tables/hot_ops.def"
#undef RECORD
#undef REPLAY
}

} // namespace ae
