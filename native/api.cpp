// The C ABI: thin functions over the library's parts.
#include "adaptive_eager.h"

#include "common/error.h"
#include "common/json.h"
#include "common/policy.h"
#include "device/device.h"
#include "device/storage.h"
#include "ops/register.h"
#include "plan/pointwise.h"
#include "recorder/recorder.h"
#include "runtime/fragment.h"
#include "runtime/kernel.h"
#include "runtime/routines.h"
#include "runtime/stats.h"

using namespace ae;

namespace {

struct Text {
  const char *name, *text, *hint;
};
constexpr Text kFlush[] = {
#define X(id, name, text, hint) {name, text, hint},
#include "tables/flush_reasons.def"
#undef X
};
constexpr Text kDirect[] = {
#define X(id, name, text, hint) {name, text, hint},
#include "tables/direct_reasons.def"
#undef X
};

template <size_t N>
int describe_reason(const Text (&table)[N], const std::array<std::atomic<uint64_t>, N>& counts, int index, ae_reason* out) {
  if (index < 0 || index >= static_cast<int>(N)) {
    set_last_error("no reason has this index");
    return -1;
  }
  *out = {table[index].name, table[index].text, table[index].hint, counts[index].load(std::memory_order_relaxed)};
  return 0;
}

} // namespace

extern "C" {

int ae_init(void) {
  return guarded([] {
    static bool done = false;
    if (done) {
      return;
    }
    register_device();
    using torch::Library;
    // Never destroyed: at exit the dispatcher may be gone before the library.
    auto* kernels = new Library(Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    auto* autograd = new Library(Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
    register_factories(*kernels);
    register_views(*kernels);
    register_copies(*kernels);
    register_composites(*kernels, *autograd);
    register_rnn(*kernels, *autograd);
    register_hot(*kernels, *autograd);
    register_recorder(*kernels);
    register_fallbacks();
    done = true;
  });
}

void ae_shutdown(void) {
  guarded([] {
    shut_down();
    close_queue();
  });
}

int ae_mode(void) {
  return static_cast<int>(mode());
}

int ae_set_mode(int wanted) {
  return guarded([&] {
    TORCH_CHECK(wanted == 0 || wanted == 1, "mode is ", wanted, ", expected 0 (eager) or 1 (adaptive)");
    set_mode(static_cast<Mode>(wanted));
  });
}

int ae_launch_blocking(void) {
  return launch_blocking();
}

void ae_set_launch_blocking(int on) {
  guarded([&] { set_launch_blocking(on != 0); });
}

int ae_flush(int reason) {
  return guarded([&] {
    TORCH_CHECK(reason >= 0 && reason < static_cast<int>(FlushReason::Count), "no flush reason has the index ", reason);
    flush(static_cast<FlushReason>(reason));
  });
}

int ae_synchronize(void) {
  return guarded([] { flush(FlushReason::Synchronize); });
}

int ae_context_changes(int relearn) {
  return guarded([&] { context_changes(relearn != 0); });
}

void ae_get_stats(ae_stats* out) {
  auto get = [](const std::atomic<uint64_t>& c) { return c.load(std::memory_order_relaxed); };
  *out = {get(counters.recorded),
          get(counters.direct),
          get(counters.launches),
          get(counters.compiled),
          get(counters.fragments),
          get(counters.hits),
          get(counters.misses),
          get(counters.evictions),
          get(counters.compile_ns),
          get(counters.record_ns),
          get(counters.launch_ns),
          0,
          0};
  pending_work(out->pending_ops, out->pending_bytes);
}

void ae_reset_stats(void) {
  for (auto* c : {&counters.recorded, &counters.direct, &counters.launches, &counters.compiled, &counters.hits, &counters.misses,
                  &counters.evictions, &counters.compile_ns, &counters.record_ns, &counters.launch_ns}) {
    c->store(0, std::memory_order_relaxed);
  }
  for (auto& c : counters.flushes) {
    c.store(0, std::memory_order_relaxed);
  }
  for (auto& c : counters.directs) {
    c.store(0, std::memory_order_relaxed);
  }
  for (const auto* traits : all_traits()) {
    for (auto& c : traits->direct_counts) {
      c.store(0, std::memory_order_relaxed);
    }
  }
}

int ae_flush_reason_count(void) {
  return static_cast<int>(FlushReason::Count);
}

int ae_flush_reason(int index, ae_reason* out) {
  return describe_reason(kFlush, counters.flushes, index, out);
}

int ae_direct_reason_count(void) {
  return static_cast<int>(DirectReason::Count);
}

int ae_direct_reason(int index, ae_reason* out) {
  return describe_reason(kDirect, counters.directs, index, out);
}

char* ae_explain(void) {
  char* text = nullptr;
  guarded([&] { text = copy_text(explain()); });
  return text;
}

char* ae_describe_ops(void) {
  std::string out = "[";
  for (const auto& row : op_exceptions()) {
    out += out.size() > 1 ? ", {\"op\": " : "{\"op\": ";
    append_json(out, row.op);
    out += ", \"rule\": ";
    append_json(out, rule_name(row.rule));
    out += ", \"argument\": " + std::to_string(row.argument) + ", \"why\": ";
    append_json(out, row.why);
    out += "}";
  }
  return copy_text(out + "]");
}

char* ae_describe_lowerings(int everything) {
  using codegen::Target;
  constexpr Target all{Target::Level::Avx512, true, Target::Onednn::Avx512Fp16};
  return copy_text(codegen::describe_lowerings(everything != 0 ? all : codegen_target()));
}

int ae_compile_next(int timeout_ms, ae_compile_job* out) {
  int found = -1;
  guarded([&] {
    std::string name, ir;
    int64_t id = next_kernel(timeout_ms, name, ir);
    found = id > 0 ? 1 : static_cast<int>(id);
    if (id > 0) {
      *out = {static_cast<uint64_t>(id), copy_text(name), copy_text(ir)};
    }
  });
  return found;
}

int ae_compile_done(uint64_t id, uint64_t address, uint64_t ns, int cached) {
  return guarded([&] { finish_kernel(id, address, ns, cached != 0); });
}

int ae_compile_failed(uint64_t id, const char* why) {
  return guarded([&] { fail_kernel(id, why); });
}

uint64_t ae_compile_pending(void) {
  return kernels_pending();
}

uint64_t ae_routine_address(const char* name) {
  return reinterpret_cast<uint64_t>(routine(name));
}

char* ae_describe_kernels(void) {
  char* text = nullptr;
  guarded([&] { text = copy_text(describe_kernels()); });
  return text;
}

double ae_bench_record(int count) {
  double ns = -1;
  guarded([&] { ns = bench_record(count); });
  return ns;
}

void ae_bench_execution(int on) {
  flush(FlushReason::Synchronize);
  bench_execution = on != 0;
}

} // extern "C"
