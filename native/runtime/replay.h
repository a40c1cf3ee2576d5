// Calls of CPU kernels with prebuilt arguments: unboxed for the ops of tables/hot_ops.def, boxed for the rest.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace ae {

// Calls the kernel with the arguments at `args`; what it returns is dropped (out= and in-place ops).
using Replay = void (*)(c10::IValue* args);

// nullptr where the op has no unboxed call.
Replay find_replay(const c10::OperatorHandle& op);

} // namespace ae
