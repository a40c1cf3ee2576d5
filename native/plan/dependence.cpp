#include "plan/dependence.h"

#include <algorithm>

namespace ae {
namespace {

constexpr uint32_t kNothing = ~0u;

// What an op that is no loop touches of a tensor.
Access opaque_access(const Leaf& leaf, const Node& node) {
  c10::IntArrayRef sizes{node.words.data() + leaf.at, leaf.dim};
  return make_access(leaf.slot, static_cast<c10::ScalarType>(leaf.dtype), leaf.value, sizes,
                     {node.words.data() + leaf.at + leaf.dim, leaf.dim}, sizes);
}

void add_opaque(const Node& node, Item& item) {
  auto add = [&](const Leaf& leaf) {
    auto access = opaque_access(leaf, node);
    if (access.numel() > 0) {
      (leaf.flags & kWritten ? item.writes : item.reads).push_back(access);
      if (leaf.flags & kWritten) {
        item.reads.push_back(std::move(access));
      }
    }
  };
  for (const auto& leaf : node.leaves) {
    if (leaf.kind == LeafKind::Tensor) {
      add(leaf);
    }
  }
  for (const auto& output : node.outputs) {
    if (output.defined) {
      Access access;
      access.slot = output.slot;
      access.type = c10::kByte;
      access.item = 1;
      access.dims.push_back({static_cast<int64_t>(output.nbytes), 1});
      if (output.nbytes > 0) {
        item.writes.push_back(std::move(access));
      }
    }
  }
}

struct History {
  struct Entry {
    uint32_t item;
    Access access;
  };
  std::vector<Entry> reads, writes;
};

bool covers(const Access& whole, const Access& part) {
  return whole == part || (whole.dense() && whole.begin <= part.begin && part.end() <= whole.end());
}

} // namespace

bool touches_nothing(const Leaf& leaf, const Node& node) {
  const int64_t* sizes = node.words.data() + leaf.at;
  return std::find(sizes, sizes + leaf.dim, 0) != sizes + leaf.dim;
}

Items analyse(const PlanInput& input, const std::vector<bool>& fusable) {
  Items result;
  result.ops.resize(input.steps.size());
  for (uint32_t step = 0; step < input.steps.size(); ++step) {
    if (input.skipped[step]) {
      continue;
    }
    const Node& node = *input.steps[step];
    if (fusable[step]) {
      result.ops[step] = pointwise_ops(node, input.numbers);
    }
    if (result.ops[step].empty()) {
      Item item;
      item.step = step;
      add_opaque(node, item);
      result.items.push_back(std::move(item));
      continue;
    }
    for (auto& op : result.ops[step]) {
      Item item;
      item.step = step;
      item.op = &op;
      for (const auto& in : op.inputs) {
        if (in.access) {
          item.reads.push_back(*in.access);
        }
      }
      item.writes.push_back(op.output);
      result.items.push_back(std::move(item));
    }
  }

  std::vector<bool> written(input.slots.size(), false);
  for (const auto& item : result.items) {
    for (const auto& access : item.writes) {
      written[access.slot] = true;
    }
  }
  std::vector<History> history(input.slots.size());
  result.dependences.resize(result.items.size());
  uint32_t last_random = kNothing;
  for (uint32_t at = 0; at < result.items.size(); ++at) {
    const Item& item = result.items[at];
    auto& dependences = result.dependences[at];
    auto depend = [&](const History::Entry& entry, const Access& access, bool flow) {
      if (entry.item == at || !may_overlap(entry.access, access)) {
        return;
      }
      bool aligned = item.op != nullptr && result.items[entry.item].op != nullptr && entry.access == access;
      for (auto& known : dependences) {
        if (known.on == entry.item) {
          known.aligned &= aligned;
          known.flow |= flow;
          return;
        }
      }
      dependences.push_back({entry.item, aligned, flow});
    };
    for (const auto& access : item.reads) {
      if (written[access.slot]) {
        for (const auto& entry : history[access.slot].writes) {
          depend(entry, access, true);
        }
      }
    }
    for (const auto& access : item.writes) {
      auto& h = history[access.slot];
      for (const auto& entry : h.writes) {
        depend(entry, access, false);
      }
      for (const auto& entry : h.reads) {
        depend(entry, access, false);
      }
    }
    if (input.steps[item.step]->traits->random) {
      if (last_random != kNothing) {
        dependences.push_back({last_random, false, false});
      }
      last_random = at;
    }
    // What this item covers is behind it for everything that follows.
    for (const auto& access : item.writes) {
      auto& h = history[access.slot];
      auto gone = [&](const History::Entry& entry) { return entry.item != at && covers(access, entry.access); };
      std::erase_if(h.reads, gone);
      std::erase_if(h.writes, gone);
      h.writes.push_back({at, access});
    }
    for (const auto& access : item.reads) {
      if (written[access.slot]) {
        history[access.slot].reads.push_back({at, access});
      }
    }
  }
  return result;
}

} // namespace ae
