// The recorder: one program order for the device, cut into regions.
//
// A call travels like this. Ops that cannot be recorded run directly, after what they depend on. Others are compared
// with the node that the trie predicts (match): the same op, the same metadata, the same data flow between slots;
// numbers are noted as parameters. On a match, outputs are made from the node (emit) and nothing ran. On a mismatch the
// call is described in full, and its node is looked up or, if the op's outputs are known for such arguments, made
// (record_slow). Else the op runs at once and its outputs' metadata is learned (run_now).
//
// One lock guards all of this: it makes the order of calls of different threads the program order. Kernels of a
// region run under it; whoever waits for it gives the GIL up first, so that kernels and storages that need the GIL
// cannot deadlock.
#include "recorder/recorder.h"

#include <ATen/core/List.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "common/gil.h"
#include "common/policy.h"
#include "device/device.h"
#include "ops/alias.h"
#include "ops/direct.h"
#include "recorder/trie.h"
#include "recorder/value_check.h"
#include "runtime/fragment.h"
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

thread_local bool inside = false; // this thread holds the recorder: ops from kernels run directly

class Recorder {
 public:
  Recorder() {
    region_.cursor = &trie_.root();
    region_.slots.reserve(256);
    region_.parameters.reserve(256);
  }

  void record(const OpTraits& traits, Stack& stack);
  std::shared_ptr<const Fault> launch(FlushReason reason, std::vector<Slot>& garbage);
  void flush(FlushReason reason, bool raise);
  void flush_if(FlushReason reason, bool raise, bool (*wanted)(const Region&, const void*), const void* argument);
  void forget(bool metadata);
  void pending_work(uint64_t& ops, uint64_t& bytes);
  std::string explain();
  double bench(int count);

  std::atomic<uint32_t> pending{0};
  std::atomic<uint64_t> epoch{1};

 private:
  friend class Session;

  bool match(const Node& node, const Stack& stack, size_t base);
  bool match_tensor(const c10::TensorImpl* impl, const Leaf& leaf, const Node& node);
  bool match_host(const c10::TensorImpl* impl, const Leaf& leaf);
  bool match_argument(const c10::IValue& iv, const Leaf*& leaf, const Node& node, const OpTraits& traits);
  void emit(Node& node, Stack& stack, size_t base, std::vector<Slot>& garbage);
  void leave(std::unique_lock<std::mutex>& lock, const OpTraits& traits, Stack& stack, size_t base, DirectReason reason,
             std::vector<Slot>& garbage, bool learn);
  bool depends(const OpTraits& traits, const Stack& stack, size_t base) const;
  void learn(const OpTraits& traits, const Stack& stack, size_t base, const Stack& arguments,
             const std::vector<std::vector<int64_t>>& before);

  std::mutex mutex_;
  Region region_;
  Trie trie_;
  MetadataCache metadata_;
  Spec spec_;
  Node* last_end_ = nullptr; // where the previous region ended
  uint64_t rolling_ = 0, rolling_start_ = 0; // hash of the last records; at the region's start
  uint32_t sample_ = 0;
};

Recorder& recorder() {
  static auto* r = new Recorder;
  return *r;
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

bool Recorder::match_tensor(const c10::TensorImpl* impl, const Leaf& leaf, const Node& node) {
  if (!on_neuron(impl) || impl->dim() != leaf.dim || impl->storage_offset() != leaf.value ||
      static_cast<uint16_t>(c10::typeMetaToScalarType(impl->dtype())) != leaf.dtype || !is_plain(impl)) {
    return false;
  }
  const int64_t* words = node.words.data() + leaf.at;
  size_t bytes = size_t(leaf.dim) * sizeof(int64_t);
  if (std::memcmp(impl->sizes().data(), words, bytes) != 0 || std::memcmp(impl->strides().data(), words + leaf.dim, bytes) != 0) {
    return false;
  }
  uint8_t flags = (impl->is_conj() ? kConj : 0) | (impl->is_neg() ? kNeg : 0) | (impl->is_wrapped_number() ? kWrapped : 0);
  if (flags != (leaf.flags & (kConj | kNeg | kWrapped))) {
    return false;
  }
  auto* storage = as_neuron(impl->storage().unsafeGetStorageImpl());
  if (storage == nullptr) {
    return false;
  }
  if (storage->epoch == region_.epoch) {
    return storage->slot == leaf.slot && (!(leaf.flags & kFirstTouch));
  }
  if (!(leaf.flags & kFirstTouch) || storage->fault != nullptr) {
    return false;
  }
  bool fresh = storage->data() == nullptr && storage->nbytes() > 0;
  if (fresh != ((leaf.flags & kFresh) != 0) || (fresh && static_cast<int64_t>(storage->nbytes()) != leaf.bytes)) {
    return false;
  }
  return region_.touch(*storage) == leaf.slot;
}

bool Recorder::match_host(const c10::TensorImpl* impl, const Leaf& leaf) {
  if (impl->dim() != 0 || !impl->device().is_cpu() || static_cast<uint16_t>(c10::typeMetaToScalarType(impl->dtype())) != leaf.dtype ||
      impl->is_wrapped_number() != ((leaf.flags & kWrapped) != 0) || !is_plain(impl) || impl->is_conj() || impl->is_neg() ||
      impl->key_set().has(c10::DispatchKey::ZeroTensor)) {
    return false;
  }
  std::memcpy(region_.parameters[leaf.at].bytes.data(), impl->data(), impl->dtype().itemsize());
  return true;
}

bool Recorder::match_argument(const c10::IValue& iv, const Leaf*& leaf, const Node& node, const OpTraits& traits) {
  const Leaf& l = *leaf++;
  switch (l.kind) {
    case LeafKind::Tensor:
      return iv.isTensor() && iv.unsafeToTensorImpl() != c10::UndefinedTensorImpl::singleton() &&
          match_tensor(iv.unsafeToTensorImpl(), l, node);
    case LeafKind::HostNumber:
      return iv.isTensor() && iv.unsafeToTensorImpl() != c10::UndefinedTensorImpl::singleton() &&
          match_host(iv.unsafeToTensorImpl(), l);
    case LeafKind::None:
      return iv.isNone() || (iv.isTensor() && !iv.toTensor().defined());
    case LeafKind::Number: {
      uint8_t tag;
      auto& parameter = region_.parameters[l.at];
      return number_of(iv, tag, parameter) && tag == l.tag && in_range(tag, parameter, node.low, node.high);
    }
    case LeafKind::Int:
      return l.tag ? iv.isBool() && iv.toBool() == (l.value != 0) : iv.isInt() && iv.toInt() == l.value;
    case LeafKind::Attribute: {
      const int64_t* words = node.words.data() + l.at;
      return same_attribute(iv, words);
    }
    case LeafKind::Generator:
      if (iv.isGenerator() && iv.toGenerator().defined()) {
        if (l.value == 0 || !iv.toGenerator().device().is_privateuseone()) {
          return false;
        }
        region_.generators.push_back(iv.toGenerator());
        return region_.generators.size() == l.at + 1;
      }
      return l.value == 0;
    case LeafKind::Numbers: {
      if (!iv.isList() || static_cast<int64_t>(iv.toListRef().size()) != l.value) {
        return false;
      }
      uint32_t at = l.at;
      for (const c10::IValue& element : iv.toListRef()) {
        uint8_t tag;
        auto& parameter = region_.parameters[at++];
        if (!number_of(element, tag, parameter) || tag != l.tag || !in_range(tag, parameter, node.low, node.high)) {
          return false;
        }
      }
      return true;
    }
    case LeafKind::List: {
      if (!iv.isList() || static_cast<int64_t>(iv.toListRef().size()) != l.value) {
        return false;
      }
      for (const c10::IValue& element : iv.toListRef()) {
        if (!match_argument(element, leaf, node, traits)) {
          return false;
        }
      }
      return true;
    }
  }
  return false;
}

bool Recorder::match(const Node& node, const Stack& stack, size_t base) {
  size_t slots = region_.slots.size();
  size_t parameters = region_.parameters.size();
  size_t generators = region_.generators.size();
  region_.parameters.resize(node.parameters_after);
  const Leaf* leaf = node.leaves.data();
  const OpTraits& traits = *node.traits;
  for (size_t i = 0, n = traits.args.size(); i < n; ++i) {
    if (!match_argument(stack[base + i], leaf, node, traits)) {
      region_.untouch(slots);
      region_.parameters.resize(parameters);
      region_.generators.resize(generators);
      return false;
    }
  }
  return true;
}

// The call is `node`: its results are made without running anything.
void Recorder::emit(Node& node, Stack& stack, size_t base, std::vector<Slot>& garbage) {
  const OpTraits& traits = *node.traits;
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

  size_t count = traits.returns.size();
  if (C10_LIKELY(count == 1 && traits.returns[0].kind == ReturnKind::Fresh)) {
    auto result = make(node.outputs[0]);
    if (C10_UNLIKELY(node.bounded)) {
      region_.slots.back().low = node.bound_low;
      region_.slots.back().high = node.bound_high;
    }
    torch::jit::drop(stack, traits.args.size());
    stack.emplace_back(std::move(result));
  } else {
    c10::SmallVector<c10::IValue, 4> results;
    size_t next = 0, list = 0;
    for (const auto& ret : traits.returns) {
      if (ret.kind == ReturnKind::Argument) {
        results.emplace_back(stack[base + ret.argument]);
      } else if (ret.kind == ReturnKind::Fresh) {
        results.emplace_back(make(node.outputs[next++]));
      } else {
        c10::List<at::Tensor> tensors;
        for (uint32_t i = 0, n = node.list_lengths[list++]; i < n; ++i) {
          tensors.push_back(make(node.outputs[next++]));
        }
        results.emplace_back(std::move(tensors));
      }
    }
    torch::jit::drop(stack, traits.args.size());
    for (auto& result : results) {
      stack.emplace_back(std::move(result));
    }
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
  if (C10_UNLIKELY(ops >= policy(Policy::MinRegionOps))) {
    // The place where this region started is where a loop closes; any other boundary is found by content.
    if (rolling_ == rolling_start_ || rolling_ >> (64 - policy(Policy::BoundaryBits)) == 0) {
      launch(FlushReason::Boundary, garbage);
    } else if (ops >= policy(Policy::MaxRegionOps)) {
      launch(FlushReason::OpLimit, garbage);
    }
  }
  if (C10_UNLIKELY(region_.bytes > static_cast<uint64_t>(policy(Policy::MaxPendingBytes)))) {
    launch(FlushReason::ByteLimit, garbage);
  }
}

std::shared_ptr<const Fault> Recorder::launch(FlushReason reason, std::vector<Slot>& garbage) {
  if (region_.ops == 0) {
    return nullptr;
  }
  uint64_t start = now_ns();
  Node& end = *region_.cursor;
  bool hit = end.fragment != nullptr;
  if (!hit) {
    end.fragment = std::make_unique<Fragment>(&end);
    ++trie_.fragments;
    counters.fragments.store(trie_.fragments, std::memory_order_relaxed);
  }
  bump(hit ? counters.hits : counters.misses);
  Fragment& fragment = *end.fragment;
  auto fault = fragment.launch(region_);
  fragment.used = region_.epoch;
  ++fragment.launches;
  ++end.ends[static_cast<size_t>(reason)];
  counters.launches.fetch_add(1, std::memory_order_relaxed);
  bump(counters.flushes[static_cast<size_t>(reason)]);

  for (auto& slot : region_.slots) {
    if (slot.storage->data() != nullptr && slot.storage->has_materializer()) {
      slot.storage->clear_materializer();
    }
  }
  if (garbage.empty()) {
    garbage.swap(region_.slots);
    region_.slots.reserve(garbage.size());
  } else {
    std::move(region_.slots.begin(), region_.slots.end(), std::back_inserter(garbage));
    region_.slots.clear();
  }
  region_.parameters.clear();
  region_.generators.clear();
  region_.ops = 0;
  region_.bytes = 0;
  region_.random = false;
  ++region_.epoch;
  epoch.store(region_.epoch, std::memory_order_relaxed);
  region_.cursor = &trie_.root();
  last_end_ = &end;
  rolling_start_ = rolling_;
  if (!hit) {
    trie_.trim();
    if (end.used != region_.epoch - 1) { // cannot happen: the newest branch is the last to go
      last_end_ = nullptr;
    }
  }
  trie_.root().next = last_end_ ? last_end_->after : nullptr;
  pending.store(0, std::memory_order_relaxed);
  uint64_t took = now_ns() - start;
  fragment.ns += took;
  bump(counters.launch_ns, took);
  return fault;
}

bool Recorder::depends(const OpTraits& traits, const Stack& stack, size_t base) const {
  if (region_.ops == 0) {
    return false;
  }
  if (traits.random && region_.random) {
    return true;
  }
  auto touched = [&](const at::Tensor& t) {
    if (!t.defined() || !on_neuron(t)) {
      return false;
    }
    if (!is_plain(t.unsafeGetTensorImpl())) {
      return true; // its parts may be pending
    }
    auto* storage = as_neuron(t.storage());
    return storage != nullptr && region_.touches(*storage);
  };
  for (size_t i = 0; i < traits.args.size(); ++i) {
    const auto& iv = stack[base + i];
    if (iv.isTensor()) {
      if (touched(iv.toTensor())) {
        return true;
      }
    } else if (iv.isList() && traits.args[i].kind == ArgKind::TensorList) {
      for (const c10::IValue& element : iv.toListRef()) {
        if (element.isTensor() && touched(element.toTensor())) {
          return true;
        }
      }
    } else if (iv.isCustomClass() || iv.isObject()) {
      return true;
    }
  }
  return false;
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

// The sizes, strides and offset of the tensors that an op writes, to see whether it changed them.
std::vector<std::vector<int64_t>> geometry(const OpTraits& traits, const Stack& stack, size_t base) {
  std::vector<std::vector<int64_t>> all;
  if (!traits.writes) {
    return all;
  }
  auto note = [&](const c10::IValue& iv) {
    if (!iv.isTensor() || !iv.toTensor().defined() || iv.toTensor().layout() != at::kStrided) {
      return;
    }
    const auto& t = iv.toTensor();
    std::vector<int64_t> g(t.sizes().begin(), t.sizes().end());
    g.insert(g.end(), t.strides().begin(), t.strides().end());
    g.push_back(t.storage_offset());
    all.push_back(std::move(g));
  };
  for (size_t i = 0; i < traits.args.size(); ++i) {
    if (!traits.args[i].written) {
      continue;
    }
    const auto& iv = stack[base + i];
    if (iv.isTensor()) {
      note(iv);
    } else if (iv.isList()) {
      for (const c10::IValue& element : iv.toListRef()) {
        note(element);
      }
    }
  }
  return all;
}

// Runs the op by itself, without the lock, after what it depends on.
void Recorder::leave(std::unique_lock<std::mutex>& lock, const OpTraits& traits, Stack& stack, size_t base, DirectReason reason,
                     std::vector<Slot>& garbage, bool learning) {
  if (depends(traits, stack, base)) {
    launch(flush_reason_for(reason), garbage);
  }
  uint64_t content = spec_.content;
  std::vector<int64_t> key;
  Stack arguments;
  std::vector<std::vector<int64_t>> before;
  if (learning) {
    key = spec_.metadata;
    arguments.assign(stack.begin() + static_cast<std::ptrdiff_t>(base), stack.end());
    before = geometry(traits, stack, base);
  }
  inside = false;
  lock.unlock();
  garbage.clear();
  count_direct(traits, reason);
  run_direct(traits, stack, base);
  if (!learning) {
    return;
  }

  Learned learned;
  learned.traits = &traits;
  learned.metadata = std::move(key);
  std::vector<c10::StorageImpl*> known;
  for (const auto& iv : arguments) {
    auto add = [&](const c10::IValue& v) {
      if (v.isTensor() && v.toTensor().defined() && v.toTensor().has_storage()) {
        known.push_back(v.toTensor().storage().unsafeGetStorageImpl());
      }
    };
    if (iv.isTensor()) {
      add(iv);
    } else if (iv.isList()) {
      for (const c10::IValue& element : iv.toListRef()) {
        add(element);
      }
    }
  }
  auto note = [&](const at::Tensor& t) {
    Output output;
    output.defined = t.defined();
    if (t.defined()) {
      auto* impl = t.unsafeGetTensorImpl();
      if (!on_neuron(t) || !is_plain(impl) || impl->is_conj() || impl->is_neg() || impl->is_wrapped_number() ||
          as_neuron(impl->storage()) == nullptr) {
        learned.direct = DirectReason::TensorKind;
        return;
      }
      auto* storage = impl->storage().unsafeGetStorageImpl();
      if (std::find(known.begin(), known.end(), storage) != known.end()) {
        learned.direct = DirectReason::ReturnsAlias;
        return;
      }
      known.push_back(storage);
      output.dtype = impl->dtype();
      output.sizes.assign(impl->sizes().begin(), impl->sizes().end());
      output.strides.assign(impl->strides().begin(), impl->strides().end());
      output.offset = impl->storage_offset();
      output.nbytes = storage->nbytes();
      output.contiguous = impl->is_contiguous() && output.offset == 0;
      if (output.contiguous) { // exact strides, also where a dimension has one element or none
        auto fresh = c10::make_intrusive<c10::TensorImpl>(c10::Storage(make_storage(0)), kNeuronKeys, output.dtype);
        fresh->set_sizes_contiguous(output.sizes);
        output.contiguous = fresh->strides() == impl->strides();
      }
    }
    learned.outputs.push_back(std::move(output));
  };
  for (size_t i = 0; i < traits.returns.size(); ++i) {
    const auto& iv = stack[base + i];
    switch (traits.returns[i].kind) {
      case ReturnKind::Fresh:
        note(iv.toTensor());
        break;
      case ReturnKind::FreshList:
        learned.list_lengths.push_back(static_cast<uint32_t>(iv.toListRef().size()));
        for (const c10::IValue& element : iv.toListRef()) {
          note(element.toTensor());
        }
        break;
      default:
        break;
    }
  }
  if (!learned.direct && traits.writes && geometry(traits, arguments, 0) != before) {
    learned.direct = DirectReason::Resize;
  }
  Session session;
  learned.used = region_.epoch;
  metadata_.insert(content, std::move(learned));
}

void Recorder::record(const OpTraits& traits, Stack& stack) {
  size_t base = stack.size() - traits.args.size();
  Session session;
  if (C10_UNLIKELY(traits.direct.has_value())) {
    return leave(session.lock(), traits, stack, base, *traits.direct, session.garbage, false);
  }
  if (C10_UNLIKELY(traits.check.has_value())) {
    switch (check_values(traits, stack, base, region_)) {
      case Verdict::Good:
        break;
      case Verdict::Bad:
        return leave(session.lock(), traits, stack, base, DirectReason::BadValue, session.garbage, false);
      case Verdict::Unknown:
        return leave(session.lock(), traits, stack, base, DirectReason::UncheckedIndex, session.garbage, false);
      case Verdict::DynamicShape:
        return leave(session.lock(), traits, stack, base, DirectReason::DynamicShape, session.garbage, false);
    }
  }
  bool sampled = C10_UNLIKELY((++sample_ & 63) == 0);
  uint64_t start = sampled ? now_ns() : 0;
  Node* predicted = region_.cursor->next;
  if (C10_LIKELY(predicted != nullptr && predicted->traits == &traits && match(*predicted, stack, base))) {
    if (sampled) {
      bump(counters.record_ns, (now_ns() - start) * 64);
    }
    return emit(*predicted, stack, base, session.garbage);
  }

  describe(traits, stack, base, region_, spec_);
  if (spec_.direct) {
    return leave(session.lock(), traits, stack, base, *spec_.direct, session.garbage, false);
  }
  Node& parent = *region_.cursor;
  Node* node = trie_.find(parent, traits, spec_);
  if (node == nullptr) {
    Learned* learned = metadata_.find(traits, spec_, region_.epoch);
    if (learned == nullptr) {
      return leave(session.lock(), traits, stack, base, DirectReason::FirstSeen, session.garbage, true);
    }
    if (learned->direct) {
      return leave(session.lock(), traits, stack, base, *learned->direct, session.garbage, false);
    }
    node = &trie_.insert(parent, traits, spec_, *learned, stack, base, region_);
  }
  for (auto* storage : spec_.touched) {
    if (C10_UNLIKELY(storage->fault != nullptr)) {
      throw c10::Error({__func__, __FILE__, 0}, storage->fault->message);
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
  emit(*node, stack, base, session.garbage);
}

void Recorder::flush_if(FlushReason reason, bool raise, bool (*wanted)(const Region&, const void*), const void* argument) {
  if (inside || pending.load(std::memory_order_relaxed) == 0) {
    return;
  }
  std::shared_ptr<const Fault> fault;
  {
    Session session;
    if (region_.ops > 0 && wanted(region_, argument)) {
      fault = launch(reason, session.garbage);
    }
    session.unlock();
  }
  if (fault && raise) {
    throw c10::Error({__func__, __FILE__, 0}, fault->message);
  }
}

void Recorder::flush(FlushReason reason, bool raise) {
  flush_if(reason, raise, [](const Region&, const void*) { return true; }, nullptr);
}

void Recorder::forget(bool metadata) {
  Session session;
  if (region_.ops > 0) {
    launch(FlushReason::ModeChange, session.garbage);
  }
  if (metadata) {
    metadata_.clear();
    trie_.clear();
    trie_.root().next = nullptr;
    last_end_ = nullptr;
  }
  session.unlock();
}

void Recorder::pending_work(uint64_t& ops, uint64_t& bytes) {
  Session session;
  ops = region_.ops;
  bytes = region_.bytes;
}

void append_text(std::string& out, const std::string& text) {
  out += '"';
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  out += '"';
}

std::string Recorder::explain() {
  Session session;
  std::vector<const Node*> ends;
  trie_.each([&](const Node& node) {
    if (node.fragment && node.fragment->launches > 0) {
      ends.push_back(&node);
    }
  });
  std::sort(ends.begin(), ends.end(), [](const Node* a, const Node* b) { return a->fragment->ns > b->fragment->ns; });
  std::string out = "{\"regions\": [";
  for (size_t i = 0; i < ends.size(); ++i) {
    const Node& end = *ends[i];
    out += i ? ", {" : "{";
    out += "\"id\": " + std::to_string(end.id) + ", \"launches\": " + std::to_string(end.fragment->launches) +
        ", \"ns\": " + std::to_string(end.fragment->ns) + ", \"ops\": [";
    std::vector<const Node*> path(end.depth);
    for (const Node* n = &end; n->depth > 0; n = n->parent) {
      path[n->depth - 1] = n;
    }
    for (size_t k = 0; k < path.size(); ++k) {
      out += k ? ", " : "";
      append_text(out, path[k]->traits->name);
    }
    out += "], \"ends\": {";
    static constexpr const char* names[] = {
#define X(id, name, text, hint) name,
#include "tables/flush_reasons.def"
#undef X
    };
    bool first = true;
    for (size_t r = 0; r < end.ends.size(); ++r) {
      if (end.ends[r] > 0) {
        out += first ? "" : ", ";
        first = false;
        append_text(out, names[r]);
        out += ": " + std::to_string(end.ends[r]);
      }
    }
    out += "}}";
  }
  out += "], \"direct\": [";
  struct Row {
    const OpTraits* traits;
    size_t reason;
    uint64_t count;
  };
  std::vector<Row> rows;
  for (const auto* traits : all_traits()) {
    for (size_t r = 0; r < traits->direct_counts.size(); ++r) {
      if (auto count = traits->direct_counts[r].load(std::memory_order_relaxed)) {
        rows.push_back({traits, r, count});
      }
    }
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.count > b.count; });
  static constexpr const char* names[] = {
#define X(id, name, text, hint) name,
#include "tables/direct_reasons.def"
#undef X
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    out += i ? ", {\"op\": " : "{\"op\": ";
    append_text(out, rows[i].traits->name);
    out += ", \"reason\": ";
    append_text(out, names[rows[i].reason]);
    out += ", \"count\": " + std::to_string(rows[i].count) + "}";
  }
  out += "]}";
  return out;
}

// Matches one call of add again and again, rolled back each time: recording without output creation.
double Recorder::bench(int count) {
  Session session;
  if (region_.ops > 0) {
    launch(FlushReason::UserFlush, session.garbage);
  }
  const auto& traits = traits_of(c10::Dispatcher::singleton().findSchemaOrThrow("aten::add", "Tensor"));
  auto tensor = [] {
    auto storage = make_storage(64);
    materialize(*storage);
    return make_tensor(std::move(storage), caffe2::TypeMeta::Make<float>(), {16}, {1}, 0);
  };
  Stack stack{tensor(), tensor(), c10::IValue(1)};
  describe(traits, stack, 0, region_, spec_);
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
    good += match(node, stack, 0);
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

} // namespace

void record(const OpTraits& traits, Stack& stack) {
  if (C10_UNLIKELY(!recording.load(std::memory_order_relaxed) || inside)) {
    size_t base = stack.size() - traits.args.size();
    if (current_mode == Mode::Adaptive && !inside) {
      count_direct(traits, DirectReason::Blocking);
    } else {
      count_eager();
    }
    return run_direct(traits, stack, base);
  }
  recorder().record(traits, stack);
}

void flush(FlushReason reason) {
  recorder().flush(reason, raises(reason));
}

void flush_storage(c10::StorageImpl* storage, FlushReason reason) {
  auto* neuron = as_neuron(storage);
  if (neuron == nullptr) {
    return;
  }
  recorder().flush_if(
      reason, false,
      [](const Region& region, const void* s) { return region.touches(*static_cast<const NeuronStorage*>(s)); }, neuron);
}

void flush_random(FlushReason reason) {
  recorder().flush_if(reason, false, [](const Region& region, const void*) { return region.random; }, nullptr);
}

bool work_pending() {
  return recorder().pending.load(std::memory_order_relaxed) > 0;
}

uint64_t current_epoch() {
  return recorder().epoch.load(std::memory_order_relaxed);
}

Mode mode() {
  return current_mode.load(std::memory_order_relaxed);
}

void set_mode(Mode mode) {
  recorder().flush(FlushReason::ModeChange, false);
  current_mode = mode;
  update_recording();
}

bool launch_blocking() {
  return blocking;
}

void set_launch_blocking(bool on) {
  recorder().flush(FlushReason::ModeChange, false);
  blocking = on;
  update_recording();
}

void context_changes(bool relearn) {
  if (current_mode == Mode::Adaptive) {
    recorder().forget(relearn);
  }
}

void shut_down() {
  recorder().flush(FlushReason::Exit, false);
  ended = true;
  update_recording();
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
