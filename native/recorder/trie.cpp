#include "recorder/trie.h"

#include <algorithm>

#include "common/policy.h"
#include "runtime/fragment.h"
#include "runtime/stats.h"

namespace ae {

Trie::Trie() = default;

Node* Trie::find(const Node& parent, const OpTraits& traits, const Spec& spec) {
  auto [first, last] = nodes_.equal_range(child_key(parent, spec.key));
  for (; first != last; ++first) {
    Node& node = *first->second;
    if (node.parent == &parent && node.traits == &traits && node.leaves == spec.leaves && node.words == spec.words) {
      return &node;
    }
  }
  return nullptr;
}

Node& Trie::insert(Node& parent, const OpTraits& traits, const Spec& spec, const Learned& learned, const c10::IValue* args,
                   const Region& region) {
  auto made = std::make_unique<Node>();
  Node& node = *made;
  node.traits = &traits;
  node.parent = &parent;
  node.id = next_id_++;
  node.content = spec.content;
  node.key = spec.key;
  node.leaves = spec.leaves;
  node.words = spec.words;
  node.outputs = learned.outputs;
  node.list_lengths = learned.list_lengths;
  node.written = spec.written;
  node.depth = parent.depth + 1;
  node.slots_before = static_cast<uint32_t>(region.slots.size());
  node.parameters_before = static_cast<uint32_t>(region.parameters.size());
  node.parameters_after = static_cast<uint32_t>(region.parameters.size() + spec.parameters.size());
  node.low = spec.low;
  node.high = spec.high;
  node.ranged = spec.ranged;
  node.attributes.resize(traits.args.size());
  size_t leaf = 0;
  for (size_t i = 0; i < traits.args.size(); ++i) {
    const Leaf& l = spec.leaves[leaf++];
    if (l.kind == LeafKind::Attribute) {
      c10::IValue value = args[i];
      if (value.isDevice() && value.toDevice().is_privateuseone()) {
        value = c10::Device(c10::DeviceType::CPU);
      } else if (value.isList()) {
        value = value.deepcopy(); // the caller may keep and change its list
      }
      node.attributes[i] = std::move(value);
    } else if (l.kind == LeafKind::List) {
      leaf += static_cast<size_t>(l.value);
    }
  }
  auto slot = static_cast<uint32_t>(region.slots.size() + spec.touched.size());
  for (auto& output : node.outputs) {
    if (output.defined) {
      output.slot = slot++;
      node.out_bytes += output.nbytes;
    }
  }
  if (traits.bounds == Rule::BoundedByInput) {
    if (!node.outputs.empty()) {
      node.bounded_by_input = at::isIntegralType(c10::typeMetaToScalarType(node.outputs[0].dtype), false);
    } else if (traits.bounds_argument == 1) { // copy_: the whole storage has to be written
      const auto& target = args[0].toTensor();
      node.bounded_by_input = at::isIntegralType(target.scalar_type(), false) && target.storage_offset() == 0 &&
                              target.is_non_overlapping_and_dense() && target.nbytes() == target.storage().nbytes() &&
                              args[1].toTensor().scalar_type() == target.scalar_type();
    }
  } else if (traits.bounds && !node.outputs.empty()) {
    if (*traits.bounds == Rule::BoundedByDim) {
      const auto& self = args[0].toTensor();
      const auto& dim = args[traits.bounds_argument];
      int64_t size = dim.isInt() ? (self.dim() == 0 ? 1 : self.size(dim.toInt())) : self.numel();
      node.bounded = size > 0;
      node.bound_high = size - 1;
    } else { // arange(end), arange(start, end), arange(start, end, step): whole numbers only
      std::vector<int64_t> numbers;
      bool whole = true;
      for (size_t i = 0; i < traits.args.size() && traits.args[i].kind == ArgKind::Scalar; ++i) {
        whole &= args[i].isInt();
        numbers.push_back(args[i].isInt() ? args[i].toInt() : 0);
      }
      if (whole && !numbers.empty() && c10::typeMetaToScalarType(node.outputs[0].dtype) == at::kLong) {
        int64_t start = numbers.size() == 1 ? 0 : numbers[0];
        int64_t end = numbers.size() == 1 ? numbers[0] : numbers[1];
        bool up = start <= end;
        node.bounded = start != end;
        node.bound_low = up ? start : end + 1;
        node.bound_high = up ? end - 1 : start;
      }
    }
  }
  nodes_.emplace(child_key(parent, spec.key), std::move(made));
  return node;
}

template <class F>
void Trie::erase_if(F&& gone) {
  auto forget = [&](Node& node) {
    if (node.next && gone(*node.next)) {
      node.next = nullptr;
    }
    if (node.after && gone(*node.after)) {
      node.after = nullptr;
    }
  };
  forget(root_);
  for (auto& [key, node] : nodes_) {
    if (!gone(*node)) {
      forget(*node);
    }
  }
  std::erase_if(nodes_, [&](const auto& entry) {
    const Node& node = *entry.second;
    if (!gone(node)) {
      return false;
    }
    if (node.fragment) {
      --fragments;
      bump(counters.evictions);
    }
    return true;
  });
}

void Trie::trim(uint64_t newest) {
  if (nodes_.size() > static_cast<size_t>(policy(Policy::MaxNodes))) {
    // A node is never older than its descendants, so that what is older than a limit is whole subtrees.
    std::vector<uint64_t> ages;
    ages.reserve(nodes_.size());
    for (const auto& [key, node] : nodes_) {
      ages.push_back(node->used);
    }
    auto middle = ages.begin() + static_cast<std::ptrdiff_t>(ages.size() / 2);
    std::nth_element(ages.begin(), middle, ages.end());
    uint64_t limit = *middle;
    erase_if([&](const Node& node) { return node.used <= limit && node.used < newest; });
  }
  auto most = static_cast<size_t>(policy(Policy::MaxFragments));
  if (fragments > most) {
    std::vector<Node*> owners;
    for (auto& [key, node] : nodes_) {
      if (node->fragment) {
        owners.push_back(node.get());
      }
    }
    size_t drop = owners.size() - most / 2 - 1;
    std::nth_element(owners.begin(), owners.begin() + static_cast<std::ptrdiff_t>(drop), owners.end(),
                     [](const Node* a, const Node* b) { return a->fragment->used < b->fragment->used; });
    for (size_t i = 0; i < drop; ++i) {
      owners[i]->fragment.reset();
      --fragments;
      bump(counters.evictions);
    }
  }
  counters.fragments.store(fragments, std::memory_order_relaxed);
}

void Trie::clear() {
  erase_if([](const Node&) { return true; });
  counters.fragments.store(fragments, std::memory_order_relaxed);
}

} // namespace ae
