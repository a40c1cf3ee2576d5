#include "runtime/replay.h"

#include <ATen/Operators.h>

#include <unordered_map>

namespace ae {
namespace {

constexpr c10::DispatchKeySet kCpu{c10::DispatchKey::CPU};

// An argument of type T out of its IValue; tensors by reference.
template <class T>
struct Unpack {
  static constexpr bool known = false;
};
#define UNPACK(type, expression)                 \
  template <>                                    \
  struct Unpack<type> {                          \
    static constexpr bool known = true;          \
    static decltype(auto) get(c10::IValue& iv) { \
      return expression;                         \
    }                                            \
  };
UNPACK(const at::Tensor&, iv.toTensor())
UNPACK(at::Tensor&, iv.toTensor())
UNPACK(const at::Scalar&, iv.toScalar())
UNPACK(double, iv.toDouble())
UNPACK(int64_t, iv.toInt())
UNPACK(bool, iv.toBool())
UNPACK(c10::SymInt, c10::SymInt(iv.toInt()))
UNPACK(std::string_view, iv.toStringView())
UNPACK(std::optional<double>, iv.toOptional<double>())
UNPACK(std::optional<int64_t>, iv.toOptional<int64_t>())
UNPACK(std::optional<bool>, iv.toOptional<bool>())
UNPACK(std::optional<at::ScalarType>, iv.toOptional<at::ScalarType>())
UNPACK(std::optional<at::Generator>, iv.toOptional<at::Generator>())
UNPACK(at::IntArrayRef, iv.toDimVector())
#undef UNPACK

template <class Op, class Schema>
struct Call;
template <class Op, class R, class... A>
struct Call<Op, R(A...)> {
  static constexpr bool known = (Unpack<A>::known && ...);
  static const c10::TypedOperatorHandle<R(A...)>& handle() {
    static const auto h = c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name).template typed<R(A...)>();
    return h;
  }
  template <size_t... I>
  static void run(c10::IValue* args, std::index_sequence<I...>) {
    handle().redispatch(kCpu, Unpack<A>::get(args[I])...);
  }
  static void replay(c10::IValue* args) {
    run(args, std::index_sequence_for<A...>());
  }
};

template <class Op>
void add_one(std::unordered_map<c10::OperatorName, Replay>& map) {
  using C = Call<Op, typename Op::schema>;
  if constexpr (C::known) {
    map.emplace(c10::OperatorName(Op::name, Op::overload_name), &C::replay);
  }
}

const std::unordered_map<c10::OperatorName, Replay>& replays() {
  static const auto* map = [] {
    auto* m = new std::unordered_map<c10::OperatorName, Replay>;
#define RECORD(op)
#define REPLAY(op) add_one<at::_ops::op>(*m);
#include "tables/hot_ops.def"
#undef RECORD
#undef REPLAY
    return m;
  }();
  return *map;
}

} // namespace

Replay find_replay(const c10::OperatorHandle& op) {
  auto found = replays().find(op.operator_name());
  return found == replays().end() ? nullptr : found->second;
}

} // namespace ae
