// The recorder: one program order for the device, cut into regions.
//
// A call travels like this. Ops that cannot be recorded run directly, after what they depend on. Others are compared
// with the node that the trie predicts (match): the same op, the same metadata, the same data flow between slots;
// numbers are noted as parameters. On a match, outputs are made from the node (emit) and nothing ran. On a mismatch the
// call is described in full (describe), and its node is looked up or, if the op's outputs are known for such arguments,
// made. Else the op runs at once and its outputs' metadata is learned (leave).
//
// One lock guards all of this: it makes the order of calls of different threads the program order. Kernels of a
// region run under it; whoever waits for it gives the GIL up first, so that kernels and storages that need the GIL
// cannot deadlock.
#include "recorder/recorder.h"

#include <ATen/Parallel.h>
#include <ATen/core/List.h>
#include <c10/core/AutogradState.h>

#include <pthread.h>
#include <sched.h>
#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>

#include "common/gil.h"
#include "common/policy.h"
#include "device/device.h"
#include "ops/alias.h"
#include "ops/direct.h"
#include "recorder/explain.h"
#include "recorder/learning.h"
#include "recorder/match.h"
#include "recorder/trie.h"
#include "recorder/value_check.h"
#include "runtime/arena.h"
#include "runtime/device_thread.h"
#include "runtime/fragment.h"
#include "runtime/kernel.h"
#include "runtime/stats.h"

namespace ae {
namespace {

using torch::jit::Stack;

std::atomic<Mode> current_mode{Mode::Eager};
std::atomic<bool> blocking{false};
// Whether ops are recorded: adaptive mode, not blocking, not shutting down.
std::atomic<bool> recording{false};
std::atomic<bool> ended{false};

void update_recording() {
  recording = current_mode == Mode::Adaptive && !blocking && !ended;
}

// A region that waited longer for a processor than waking a thread takes: the next ones run where they are launched, twice
// as many each time that it happens in a row.
constexpr uint64_t kLateNs = 250000;
constexpr uint32_t kKeptBack = 4, kMostDoublings = 6;

thread_local bool inside = false; // this thread holds the recorder: ops from kernels run directly
thread_local bool greeted = false;

// The first op of a thread. Backward passes stay on the thread that calls them, as on the CPU: the autograd engine would
// hand them to a thread of the device, whose kernels would start a second team of OpenMP threads.
void greet() {
  greeted = true;
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

class Recorder;
Recorder& recorder();
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();
bool worth_handing_over(const Variant& variant);

// Those that this process may use.
int processors() {
  static const int count = [] {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency());
  }();
  return count;
}

class Recorder {
 public:
  Recorder() {
    region_.cursor = &trie_.root();
    region_.slots.reserve(256);
    region_.parameters.reserve(256);
  }

  void record(const OpTraits& traits, const c10::IValue* args, Results& results);
  std::shared_ptr<const Fault> launch(FlushReason reason, std::vector<Slot>& garbage, bool may_hand_over = false);
  void flush(FlushReason reason, bool raise);
  void flush_random(FlushReason reason);
  void finish_epoch(uint64_t epoch, FlushReason reason);
  void flush_storage(const NeuronStorage& storage, FlushReason reason);
  void stop();
  void after_fork();
  void settle(std::vector<Slot>& garbage) {
    drain(garbage);
  }
  void forget(bool metadata);
  void drop_scratch();
  void pending_work(uint64_t& ops, uint64_t& bytes);
  std::string explain();
  double bench(int count);

  // Recorded and not launched, or handed over and not known to have run.
  bool unfinished() const {
    return pending.load(std::memory_order_relaxed) > 0 || in_flight.load(std::memory_order_relaxed);
  }

  std::atomic<uint32_t> pending{0};
  std::atomic<bool> in_flight{false};
  std::atomic<uint64_t> epoch{1};

 private:
  friend class Session;
  friend void ae::wait_for_device();

  void emit(Node& node, const c10::IValue* args, Results& results, std::vector<Slot>& garbage);
  void leave(std::unique_lock<std::mutex>& lock, const OpTraits& traits, const c10::IValue* args, Results& results,
             DirectReason reason, std::vector<Slot>& garbage, bool first);
  enum class Needs : uint8_t { Nothing, InFlight, Pending };
  Needs needs(const OpTraits& traits, const c10::IValue* args) const;
  bool hand_over(Fragment& fragment, Variant& variant, std::vector<Slot>& garbage);
  void take_back(std::vector<Slot>& garbage, std::shared_ptr<const Fault>& fault);
  std::shared_ptr<const Fault> drain(std::vector<Slot>& garbage);
  void release(std::vector<Slot>& slots, std::vector<Slot>& garbage);
  void next_region();
  template <class Wanted>
  void flush_if(FlushReason reason, bool raise, Wanted&& wanted);

  std::mutex mutex_;
  DeviceThread device_;
  Region region_;
  Trie trie_;
  MetadataCache metadata_;
  Spec spec_;
  Node* last_end_ = nullptr;                 // where the previous region ended
  uint64_t rolling_ = 0, rolling_start_ = 0; // hash of the last records; at the region's start
  uint32_t sample_ = 0;
  uint32_t late_ = 0;      // how often in a row
  uint32_t kept_back_ = 0; // launches that are not handed over, since somebody else needs the processors
};

Recorder& recorder() {
  static auto* r = [] {
    auto* made = new Recorder;
    pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child);
    return made;
  }();
  return *r;
}

// Whether the device's thread should run it: it has a processor, and it outweighs the hand-over.
bool worth_handing_over(const Variant& variant) {
  if (policy(Policy::DeviceThread) == 0) {
    return false;
  }
  uint64_t ns = std::min(variant.plain_ns, variant.fused_ns);
  return ns != ~uint64_t(0) && ns >= static_cast<uint64_t>(policy(Policy::HandOverNs)) && at::get_num_threads() < processors();
}

// Holds the recorder. Storages that the region let go are released after the lock: their release may run Python.
class Session {
 public:
  Session() : lock_(recorder().mutex_, std::defer_lock) {
    if (!lock_.try_lock()) {
      GilRelease gil;
      lock_.lock();
    }
    inside = true;
  }
  ~Session() {
    unlock();
  }
  void unlock() {
    if (lock_.owns_lock()) {
      inside = false;
      lock_.unlock();
    }
  }
  std::unique_lock<std::mutex>& lock() {
    return lock_;
  }
  std::vector<Slot> garbage; // destroyed last, so declared first

 private:
  std::unique_lock<std::mutex> lock_;
};

// A fork finds nothing in flight and every lock free for the child. Forks may be the C library's, without Python's hooks.
Session* fork_session = nullptr;

void before_fork() {
  if (inside) { // a kernel that forks: nothing can be done
    return;
  }
  fork_session = new Session;
  recorder().settle(fork_session->garbage);
  lock_traits();
  lock_queue();
}

void after_fork(bool in_child) {
  if (fork_session != nullptr) {
    unlock_queue(in_child);
    unlock_traits();
    delete std::exchange(fork_session, nullptr);
  }
}

void after_fork_in_parent() {
  after_fork(false);
}

void after_fork_in_child() {
  recorder().after_fork();
  after_fork(true);
}

// The call is `node`: its results are made without running anything.
void Recorder::emit(Node& node, const c10::IValue* args, Results& results, std::vector<Slot>& garbage) {
  const OpTraits& traits = *node.traits;
  std::optional<Bounds> bounds;
  if (C10_UNLIKELY(node.bounded_by_input)) {
    bounds = known_bounds(args[traits.bounds_argument], region_);
  } else if (C10_UNLIKELY(node.bounded)) {
    bounds = Bounds{node.bound_low, node.bound_high};
  }
  for (uint32_t slot : node.written) {
    auto& s = region_.slots[slot];
    s.written = true;
    s.low = 1;
    s.high = 0;
  }
  auto make = [&](const Output& output) {
    if (!output.defined) {
      return at::Tensor();
    }
    auto storage = make_storage(output.nbytes);
    region_.touch(*storage);
    region_.slots.back().written = true;
    auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(storage)), kNeuronKeys, output.dtype);
    if (output.contiguous) {
      if (output.sizes.size() != 1 || output.sizes[0] != 0) {
        impl->set_sizes_contiguous(output.sizes);
      }
    } else {
      impl->set_sizes_and_strides(output.sizes, output.strides, output.offset);
    }
    return at::Tensor(std::move(impl));
  };

  size_t next = 0, list = 0;
  for (const auto& ret : traits.returns) {
    if (C10_LIKELY(ret.kind == ReturnKind::Fresh)) {
      results.emplace_back(make(node.outputs[next++]));
    } else if (ret.kind == ReturnKind::FreshList) {
      c10::List<at::Tensor> tensors;
      for (uint32_t i = 0, n = node.list_lengths[list++]; i < n; ++i) {
        tensors.push_back(make(node.outputs[next++]));
      }
      results.emplace_back(std::move(tensors));
    }
  }
  if (C10_UNLIKELY(bounds.has_value())) {
    auto& slot = region_.slots[node.outputs.empty() ? node.written[0] : node.outputs[0].slot];
    slot.low = bounds->low;
    slot.high = bounds->high;
    slot.type = node.outputs.empty() ? args[0].toTensor().scalar_type() : c10::typeMetaToScalarType(node.outputs[0].dtype);
  }

  node.used = region_.epoch;
  region_.cursor = &node;
  region_.random |= traits.random;
  region_.bytes += node.out_bytes;
  ++region_.ops;
  bump(counters.recorded);
  pending.store(region_.ops, std::memory_order_relaxed);
  rolling_ = (rolling_ << 8) + node.content;
  auto ops = static_cast<int64_t>(region_.ops);
  if (C10_UNLIKELY(ops >= policy(Policy::MaxRegionOps))) {
    launch(FlushReason::OpLimit, garbage, true);
  } else if (C10_UNLIKELY(ops >= policy(Policy::MinRegionOps))) {
    // The place where this region started is where a loop closes; any other boundary is found by content.
    if (rolling_ == rolling_start_ || rolling_ >> (64 - policy(Policy::BoundaryBits)) == 0) {
      launch(FlushReason::Boundary, garbage, true);
    }
  }
  auto most = static_cast<uint64_t>(policy(Policy::MaxPendingBytes));
  if (C10_UNLIKELY(region_.bytes > most || region_.touched_bytes > most)) {
    if (region_.bytes + region_.held_bytes() > most) {
      launch(FlushReason::ByteLimit, garbage, true);
    } else {
      region_.touched_bytes = 0; // look again after as much again
    }
  }
}

// Storages leave a region that has run.
void Recorder::release(std::vector<Slot>& slots, std::vector<Slot>& garbage) {
  for (auto& slot : slots) {
    auto& storage = *slot.storage;
    if (storage.in_flight == 0 && !region_.touches(storage) && storage.data() != nullptr && storage.has_materializer()) {
      storage.clear_materializer();
    }
  }
  if (garbage.empty()) {
    garbage.swap(slots);
    slots.reserve(garbage.size());
  } else {
    std::move(slots.begin(), slots.end(), std::back_inserter(garbage));
    slots.clear();
  }
}

// What the device's thread has done comes back: references are released by the host.
void Recorder::take_back(std::vector<Slot>& garbage, std::shared_ptr<const Fault>& fault) {
  while (Job* job = device_.done()) {
    for (auto& slot : job->region.slots) {
      --slot.storage->in_flight;
      slot.storage->written_in_flight -= slot.written;
    }
    release(job->region.slots, garbage);
    job->region.parameters.clear();
    job->region.generators.clear();
    job->fragment->ns += job->ns;
    if (C10_UNLIKELY(job->late_ns > kLateNs)) {
      kept_back_ = kKeptBack << late_;
      late_ = std::min(late_ + 1, kMostDoublings);
    } else {
      late_ = 0;
    }
    bump(counters.launch_ns, job->ns);
    if (job->fault && !fault) {
      fault = job->fault;
    }
    device_.took();
  }
  in_flight.store(device_.busy(), std::memory_order_relaxed);
}

std::shared_ptr<const Fault> Recorder::drain(std::vector<Slot>& garbage) {
  std::shared_ptr<const Fault> fault;
  if (device_.busy()) {
    device_.wait();
    take_back(garbage, fault);
  }
  return fault;
}

// The region goes to the device's thread if it is worth it. The current region is then empty.
bool Recorder::hand_over(Fragment& fragment, Variant& variant, std::vector<Slot>& garbage) {
  if (!device_.busy()) {
    if (!worth_handing_over(variant)) {
      return false;
    }
    if (C10_UNLIKELY(kept_back_ > 0)) {
      --kept_back_;
      return false;
    }
  }
  auto most = static_cast<uint64_t>(policy(Policy::MaxPendingBytes));
  while (device_.full() || (device_.busy() && device_.bytes() + region_.bytes > most)) {
    std::shared_ptr<const Fault> fault; // its results carry it
    device_.wait_for_one();
    take_back(garbage, fault);
  }
  Job& job = device_.next();
  job.fragment = &fragment;
  job.variant = &variant;
  job.bytes = region_.bytes;
  for (auto& slot : region_.slots) {
    ++slot.storage->in_flight;
    if (slot.written) {
      ++slot.storage->written_in_flight;
      slot.storage->low = slot.low;
      slot.storage->high = slot.high;
      slot.storage->type = slot.type;
    }
  }
  uint64_t now = region_.epoch;
  std::swap(job.region, region_);
  region_.epoch = now;
  device_.submit();
  in_flight.store(true, std::memory_order_relaxed);
  return true;
}

void Recorder::next_region() {
  region_.parameters.clear();
  region_.generators.clear();
  region_.ops = 0;
  region_.bytes = 0;
  region_.touched_bytes = 0;
  region_.random = false;
  ++region_.epoch;
  epoch.store(region_.epoch, std::memory_order_relaxed);
  region_.cursor = &trie_.root();
  pending.store(0, std::memory_order_relaxed);
}

std::shared_ptr<const Fault> Recorder::launch(FlushReason reason, std::vector<Slot>& garbage, bool may_hand_over) {
  if (region_.ops == 0) {
    return nullptr;
  }
  uint64_t start = now_ns();
  Node& end = *region_.cursor;
  bool hit = end.fragment != nullptr;
  // Which results live on is seen before anything that was in flight is released.
  bool ready = false;
  Variant* variant = hit ? end.fragment->find(region_, ready) : nullptr;
  std::shared_ptr<const Fault> fault;
  bool handed = may_hand_over && variant != nullptr && ready && hand_over(*end.fragment, *variant, garbage);
  if (!handed) {
    if (!hit) {
      end.fragment = std::make_unique<Fragment>(&end);
      ++trie_.fragments;
      counters.fragments.store(trie_.fragments, std::memory_order_relaxed);
    }
    std::vector<uint64_t> live;
    if (variant == nullptr) {
      live = end.fragment->live(region_);
    }
    fault = drain(garbage);
    if (variant == nullptr) {
      variant = &end.fragment->add(live, region_.epoch);
    }
    auto own = end.fragment->launch(region_, *variant);
    fault = fault ? fault : own;
  }
  Fragment& fragment = *end.fragment;
  bump(hit ? counters.hits : counters.misses);
  fragment.used = region_.epoch;
  ++fragment.launches;
  ++end.ends[static_cast<size_t>(reason)];
  counters.launches.fetch_add(1, std::memory_order_relaxed);
  bump(counters.flushes[static_cast<size_t>(reason)]);
  auto slots = std::move(region_.slots);
  next_region();
  release(slots, garbage);
  region_.slots = std::move(slots);
  last_end_ = &end;
  rolling_start_ = rolling_;
  if (!hit) {
    trie_.trim(end.used);
  }
  trie_.root().next = end.after;
  if (!handed) {
    uint64_t took = now_ns() - start;
    fragment.ns += took;
    bump(counters.launch_ns, took);
  }
  return fault;
}

// What has to have run before the op can run by itself.
Recorder::Needs Recorder::needs(const OpTraits& traits, const c10::IValue* args) const {
  bool busy = device_.busy();
  if (region_.ops == 0 && !busy) {
    return Needs::Nothing;
  }
  if (traits.random && region_.random) {
    return Needs::Pending;
  }
  Needs most = traits.random && busy ? Needs::InFlight : Needs::Nothing;
  auto look = [&](const at::Tensor& t) {
    if (!t.defined() || !on_neuron(t)) {
      return;
    }
    auto* storage = is_plain(t.unsafeGetTensorImpl()) ? as_neuron(t.storage()) : nullptr;
    if (storage == nullptr || region_.touches(*storage)) { // its parts, or memory of others, may be pending
      most = Needs::Pending;
    } else if (storage->in_flight > 0) {
      most = std::max(most, Needs::InFlight);
    }
  };
  for (size_t i = 0; i < traits.args.size(); ++i) {
    const auto& iv = args[i];
    if (iv.isTensor()) {
      look(iv.toTensor());
    } else if (iv.isList() && traits.args[i].kind == ArgKind::TensorList) {
      for (const c10::IValue& element : iv.toListRef()) {
        if (element.isTensor()) {
          look(element.toTensor());
        }
      }
    } else if (iv.isCustomClass() || iv.isObject()) {
      most = Needs::Pending;
    }
  }
  return most;
}

FlushReason flush_reason_for(DirectReason reason) {
  switch (reason) {
    case DirectReason::DynamicShape:
      return FlushReason::DynamicShape;
    case DirectReason::ReturnsValue:
      return FlushReason::ValueRead;
    case DirectReason::UncheckedIndex:
      return FlushReason::UncheckedIndex;
    default:
      return FlushReason::DirectOp;
  }
}

// Runs the op by itself, without the lock, after what it depends on.
void Recorder::leave(std::unique_lock<std::mutex>& lock, const OpTraits& traits, const c10::IValue* args, Results& results,
                     DirectReason reason, std::vector<Slot>& garbage, bool first) {
  switch (needs(traits, args)) {
    case Needs::Pending:
      launch(flush_reason_for(reason), garbage);
      drain(garbage);
      break;
    case Needs::InFlight:
      drain(garbage);
      break;
    case Needs::Nothing:
      break;
  }
  std::optional<Learning> learning;
  uint64_t content = spec_.content;
  if (first) {
    learning.emplace(traits, spec_.metadata, args);
  }
  inside = false;
  lock.unlock();
  garbage.clear();
  count_direct(traits, reason);
  run_direct(traits, args, results);
  if (!first) {
    return;
  }

  auto learned = learning->finish(args, results);
  Session session;
  learned.used = region_.epoch;
  metadata_.insert(content, std::move(learned));
}

// The op runs at its call, since nothing is recorded in this mode or by this thread now.
void run_now(const OpTraits& traits, const c10::IValue* args, Results& results) {
  if (!inside) {
    recorder().flush(FlushReason::ModeChange, false); // what another thread recorded while the mode changed
  }
  if (current_mode == Mode::Adaptive && !inside) {
    count_direct(traits, DirectReason::Blocking);
  } else {
    count_eager();
  }
  run_direct(traits, args, results);
}

void Recorder::record(const OpTraits& traits, const c10::IValue* args, Results& results) {
  Session session;
  if (C10_UNLIKELY(!recording.load(std::memory_order_relaxed))) { // the mode changed while this thread waited
    session.unlock();
    return run_now(traits, args, results);
  }
  if (C10_UNLIKELY(traits.direct.has_value())) {
    return leave(session.lock(), traits, args, results, *traits.direct, session.garbage, false);
  }
  if (C10_UNLIKELY(traits.check.has_value())) {
    switch (check_values(traits, args, region_)) {
      case Verdict::Good:
        break;
      case Verdict::Bad:
        return leave(session.lock(), traits, args, results, DirectReason::BadValue, session.garbage, false);
      case Verdict::Unknown:
        return leave(session.lock(), traits, args, results, DirectReason::UncheckedIndex, session.garbage, false);
      case Verdict::DynamicShape:
        return leave(session.lock(), traits, args, results, DirectReason::DynamicShape, session.garbage, false);
    }
  }
  bool sampled = C10_UNLIKELY((++sample_ & 63) == 0);
  uint64_t start = sampled ? now_ns() : 0;
  Node* predicted = region_.cursor->next;
  if (C10_LIKELY(predicted != nullptr && predicted->traits == &traits && match(*predicted, args, region_))) {
    if (sampled) {
      bump(counters.record_ns, (now_ns() - start) * 64);
    }
    return emit(*predicted, args, results, session.garbage);
  }

  describe(traits, args, region_, spec_);
  if (spec_.direct) {
    return leave(session.lock(), traits, args, results, *spec_.direct, session.garbage, false);
  }
  Node& parent = *region_.cursor;
  Node* node = trie_.find(parent, traits, spec_);
  if (node == nullptr) {
    Learned* learned = metadata_.find(traits, spec_, region_.epoch);
    if (learned == nullptr) {
      return leave(session.lock(), traits, args, results, DirectReason::FirstSeen, session.garbage, true);
    }
    if (learned->direct) {
      return leave(session.lock(), traits, args, results, *learned->direct, session.garbage, false);
    }
    node = &trie_.insert(parent, traits, spec_, *learned, args, region_);
  }
  for (auto* storage : spec_.touched) {
    if (C10_UNLIKELY(storage->written_in_flight == 0 && storage->fault != nullptr)) {
      storage->fault->raise();
    }
  }
  for (auto* storage : spec_.touched) {
    region_.touch(*storage);
  }
  region_.parameters.insert(region_.parameters.end(), spec_.parameters.begin(), spec_.parameters.end());
  region_.generators.insert(region_.generators.end(), spec_.generators.begin(), spec_.generators.end());
  parent.next = node;
  if (&parent == &trie_.root() && last_end_ != nullptr) {
    last_end_->after = node;
  }
  if (sampled) {
    bump(counters.record_ns, (now_ns() - start) * 64);
  }
  emit(*node, args, results, session.garbage);
}

// `wanted` says what has to run: of the region, and of what is in flight (which runs before any region).
template <class Wanted>
void Recorder::flush_if(FlushReason reason, bool raise, Wanted&& wanted) {
  if (inside || !unfinished()) {
    return;
  }
  std::shared_ptr<const Fault> fault;
  {
    Session session;
    Needs what = wanted();
    if (what == Needs::Pending && region_.ops > 0) {
      fault = launch(reason, session.garbage);
    } else if (what != Needs::Nothing) {
      fault = drain(session.garbage);
    }
    session.unlock();
  }
  if (fault && raise) {
    fault->raise();
  }
}

void Recorder::flush(FlushReason reason, bool raise) {
  flush_if(reason, raise, [] { return Needs::Pending; });
}

void Recorder::flush_random(FlushReason reason) {
  flush_if(reason, false, [&] { return region_.random ? Needs::Pending : Needs::InFlight; });
}

void Recorder::flush_storage(const NeuronStorage& storage, FlushReason reason) {
  flush_if(reason, false, [&] {
    return region_.touches(storage) ? Needs::Pending : storage.in_flight > 0 ? Needs::InFlight : Needs::Nothing;
  });
}

void Recorder::finish_epoch(uint64_t wanted, FlushReason reason) {
  flush_if(reason, true, [&] { return wanted >= region_.epoch ? Needs::Pending : Needs::InFlight; });
}

void Recorder::stop() {
  flush(FlushReason::Exit, false);
  Session session;
  device_.stop();
}

void Recorder::after_fork() {
  device_.forget_thread();
}

void Recorder::forget(bool metadata) {
  Session session;
  if (region_.ops > 0) {
    launch(FlushReason::ModeChange, session.garbage);
  }
  drain(session.garbage);
  if (metadata) {
    metadata_.clear();
    trie_.clear();
    last_end_ = nullptr;
  }
  session.unlock();
}

void Recorder::drop_scratch() {
  if (!inside) {
    Session session;
    drain(session.garbage);
    drop_arena();
    session.unlock();
  }
}

void Recorder::pending_work(uint64_t& ops, uint64_t& bytes) {
  Session session;
  ops = region_.ops;
  bytes = region_.bytes;
}

std::string Recorder::explain() {
  Session session;
  drain(session.garbage);
  return explain_regions(trie_);
}

// Matches one call of add again and again, rolled back each time: recording without output creation.
double Recorder::bench(int count) {
  Session session;
  if (region_.ops > 0) {
    launch(FlushReason::UserFlush, session.garbage);
  }
  drain(session.garbage);
  const auto& traits = traits_of(c10::Dispatcher::singleton().findSchemaOrThrow("aten::add", "Tensor"));
  auto tensor = [] {
    auto storage = make_storage(64);
    materialize(*storage);
    return make_tensor(std::move(storage), caffe2::TypeMeta::Make<float>(), {16}, {1}, 0);
  };
  Stack stack{tensor(), tensor(), c10::IValue(1)};
  describe(traits, stack.data(), region_, spec_);
  Node node;
  node.traits = &traits;
  node.leaves = spec_.leaves;
  node.words = spec_.words;
  node.low = spec_.low;
  node.high = spec_.high;
  node.parameters_after = static_cast<uint32_t>(spec_.parameters.size());
  size_t good = 0;
  uint64_t start = now_ns();
  for (int i = 0; i < count; ++i) {
    good += match(node, stack.data(), region_);
    rolling_ = (rolling_ << 8) + node.content;
    region_.untouch(0);
    region_.parameters.clear();
  }
  uint64_t took = now_ns() - start;
  TORCH_CHECK(good == static_cast<size_t>(count), "the benchmark's op did not match its own record");
  return count > 0 ? double(took) / count : 0;
}

bool raises(FlushReason reason) {
  return reason == FlushReason::Synchronize || reason == FlushReason::UserFlush;
}

void bump_versions(const OpTraits& traits, const c10::IValue* args) {
  for (size_t i = 0; i < traits.args.size(); ++i) {
    if (traits.args[i].written && args[i].isList()) {
      for (const c10::IValue& element : args[i].toListRef()) {
        if (element.isTensor() && !element.toTensor().is_inference()) {
          element.unsafeToTensorImpl()->bump_version();
        }
      }
    }
  }
}

} // namespace

void wait_for_device() {
  recorder().device_.wait();
}

void enter_device_thread() {
  inside = true;
  greeted = true;
}

void record(const OpTraits& traits, const c10::IValue* args, Results& results) {
  if (C10_UNLIKELY(!greeted)) {
    greet();
  }
  if (C10_LIKELY(recording.load(std::memory_order_relaxed) && !inside)) {
    recorder().record(traits, args, results);
  } else {
    run_now(traits, args, results);
  }
  if (C10_UNLIKELY(traits.bumps_versions)) {
    bump_versions(traits, args);
  }
}

void record_boxed(const OpTraits& traits, Stack& stack) {
  size_t base = stack.size() - traits.args.size();
  Results results;
  record(traits, stack.data() + base, results);
  c10::SmallVector<c10::IValue, 4> returned;
  auto next = results.begin();
  for (const auto& ret : traits.returns) {
    if (ret.kind == ReturnKind::Argument && stack[base + ret.argument].isTensor()) {
      returned.push_back(stack[base + ret.argument]);
    } else {
      returned.push_back(std::move(*next++));
    }
  }
  stack.resize(base);
  for (auto& iv : returned) {
    stack.push_back(std::move(iv));
  }
}

void flush(FlushReason reason) {
  recorder().flush(reason, raises(reason));
}

void flush_storage(c10::StorageImpl* storage, FlushReason reason) {
  auto* neuron = as_neuron(storage);
  if (neuron == nullptr) { // memory of others may be that of a pending tensor
    return recorder().flush(reason, false);
  }
  recorder().flush_storage(*neuron, reason);
}

void flush_random(FlushReason reason) {
  recorder().flush_random(reason);
}

void drop_scratch() {
  recorder().drop_scratch();
}

bool work_pending() {
  return recorder().unfinished();
}

void finish_epoch(uint64_t epoch) {
  recorder().finish_epoch(epoch, FlushReason::Synchronize);
}

uint64_t current_epoch() {
  return recorder().epoch.load(std::memory_order_relaxed);
}

Mode mode() {
  return current_mode.load(std::memory_order_relaxed);
}

void set_mode(Mode mode) {
  current_mode = mode;
  update_recording();
  recorder().flush(FlushReason::ModeChange, false);
}

bool launch_blocking() {
  return blocking;
}

void set_launch_blocking(bool on) {
  blocking = on;
  update_recording();
  recorder().flush(FlushReason::ModeChange, false);
}

void context_changes(bool relearn) {
  recorder().forget(relearn);
}

void shut_down() {
  ended = true;
  update_recording();
  recorder().stop();
}

void pending_work(uint64_t& ops, uint64_t& bytes) {
  recorder().pending_work(ops, bytes);
}

std::string explain() {
  return recorder().explain();
}

double bench_record(int count) {
  return recorder().bench(count);
}

} // namespace ae
