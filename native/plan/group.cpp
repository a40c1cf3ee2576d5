// A level is the length of the longest chain of loops and opaque ops that lead to a step. An item that depends on others
// only element for element joins their level and their loop; any other dependence puts it on a higher one. Two steps of
// one level therefore depend on each other only within a loop, and loops of one level are independent of each other.
#include "plan/group.h"

#include <algorithm>
#include <map>

#include "common/parallel.h"

namespace ae {
namespace {

constexpr size_t kMaxItems = 48;    // of a loop: compile time grows with it
constexpr size_t kMaxAccesses = 24; // beyond the registers for addresses a loop reloads them at each step

class Grouper {
 public:
  Grouper(const PlanInput& input, const Items& items, std::vector<bool>& fusable, int threads)
      : input_(input), items_(items), fusable_(fusable), threads_(threads) {
    out_.group_of.assign(items.items.size(), -1);
    out_.level_of.assign(input.steps.size(), 0);
  }

  std::optional<Groups> run() {
    bool good = true;
    const auto& all = items_.items;
    for (uint32_t begin = 0, end; begin < all.size(); begin = end) {
      end = begin + 1;
      while (end < all.size() && all[end].step == all[begin].step) {
        ++end;
      }
      if (!place(begin, end)) {
        fusable_[all[begin].step] = false;
        good = false;
      }
    }
    return good ? std::optional(std::move(out_)) : std::nullopt;
  }

 private:
  uint32_t step_of(uint32_t item) const {
    return items_.items[item].step;
  }

  // The items of one step. False: they cannot be loops.
  bool place(uint32_t begin, uint32_t end) {
    uint32_t step = step_of(begin);
    bool opaque = items_.items[begin].op == nullptr;
    uint32_t level = 0;
    for (uint32_t i = begin; i < end; ++i) {
      for (const auto& d : items_.dependences[i]) {
        if (step_of(d.on) == step) {
          if (!d.aligned) {
            return false; // its own elements overlap
          }
          continue;
        }
        level = std::max(level, out_.level_of[step_of(d.on)] + (opaque || !d.aligned ? 1 : 0));
      }
    }
    if (opaque) {
      out_.level_of[step] = level;
      return true;
    }
    for (uint32_t i = begin; i < end; ++i) {
      std::optional<Group> all = alone(i);
      for (int32_t g : partners(i, level, begin)) {
        all = all ? merged(*all, out_.groups[g]) : std::nullopt;
      }
      if (!all) {
        ++level;
        break;
      }
    }
    out_.level_of[step] = level;
    for (uint32_t i = begin; i < end; ++i) {
      std::optional<Group> all = alone(i);
      if (!all) {
        return false;
      }
      auto others = partners(i, level, begin);
      all->level = level;
      for (int32_t g : others) {
        all = merged(*all, out_.groups[g]);
        if (!all) {
          return false; // two elements each fit, not both
        }
      }
      share(*all, others);
      commit(std::move(*all), others);
    }
    return true;
  }

  // Groups on this level that the item depends on.
  std::vector<int32_t> partners(uint32_t item, uint32_t level, uint32_t first_of_step) const {
    std::vector<int32_t> found;
    for (const auto& d : items_.dependences[item]) {
      int32_t g = d.on >= first_of_step || out_.level_of[step_of(d.on)] == level ? out_.group_of[d.on] : -1;
      if (g >= 0 && std::find(found.begin(), found.end(), g) == found.end()) {
        found.push_back(g);
      }
    }
    return found;
  }

  // Joins groups of the level that read the same memory, where the loop stays good.
  void share(Group& group, std::vector<int32_t>& others) {
    for (size_t a = 0; a < group.accesses.size() && a < kMaxAccesses; ++a) {
      const auto& access = group.accesses[a];
      if (access.dims.size() == 1 && access.dims[0].stride == 0) {
        continue;
      }
      auto found = readers_.find(key(group.level, access));
      if (found == readers_.end()) {
        continue;
      }
      int32_t other = root(found->second);
      if (std::find(others.begin(), others.end(), other) != others.end() || out_.groups[other].numel != group.numel) {
        continue;
      }
      bool reads = std::find(out_.groups[other].accesses.begin(), out_.groups[other].accesses.end(), access) !=
                   out_.groups[other].accesses.end();
      if (auto both = reads ? merged(group, out_.groups[other]) : std::nullopt) {
        group = std::move(*both);
        others.push_back(other);
        a = 0;
      }
    }
  }

  static std::pair<uint32_t, uint64_t> key(uint32_t level, const Access& access) {
    uint64_t hash = access.slot;
    hash = (hash ^ static_cast<uint64_t>(access.begin)) * 0x9E3779B97F4A7C15ull;
    for (const auto& dim : access.dims) {
      hash = (hash ^ static_cast<uint64_t>(dim.size)) * 0x9E3779B97F4A7C15ull;
      hash = (hash ^ static_cast<uint64_t>(dim.stride)) * 0x9E3779B97F4A7C15ull;
    }
    return {level, hash};
  }

  int32_t root(int32_t group) const {
    while (out_.groups[group].items.empty()) {
      group = merged_into_[group];
    }
    return group;
  }

  void commit(Group group, const std::vector<int32_t>& others) {
    auto id = static_cast<int32_t>(out_.groups.size());
    for (int32_t g : others) {
      merged_into_[g] = id;
      out_.groups[g] = Group{};
    }
    std::sort(group.items.begin(), group.items.end());
    for (uint32_t item : group.items) {
      out_.group_of[item] = id;
    }
    for (const auto& access : group.accesses) {
      readers_[key(group.level, access)] = id;
    }
    out_.groups.push_back(std::move(group));
    merged_into_.push_back(id);
  }

  std::optional<Group> alone(uint32_t item) const {
    const auto& op = *items_.items[item].op;
    Group group;
    group.items = {item};
    group.numel = op.numel;
    group.cut = op.cut;
    for (const auto& access : items_.items[item].reads) {
      add(group, access);
    }
    add(group, op.output);
    for (const auto& input : op.inputs) {
      group.numbers += !input.access;
    }
    return fitting(std::move(group));
  }

  static void add(Group& group, const Access& access) {
    if (std::find(group.accesses.begin(), group.accesses.end(), access) == group.accesses.end()) {
      group.accesses.push_back(access);
    }
  }

  std::optional<Group> merged(const Group& a, const Group& b) const {
    if (a.numel != b.numel || (a.cut != 0 && b.cut != 0 && a.cut != b.cut) || a.items.size() + b.items.size() > kMaxItems) {
      return std::nullopt;
    }
    Group group = a;
    group.items.insert(group.items.end(), b.items.begin(), b.items.end());
    group.cut = std::max(a.cut, b.cut);
    group.numbers += b.numbers;
    for (const auto& access : b.accesses) {
      add(group, access);
    }
    return fitting(std::move(group));
  }

  // With its space, if there is one.
  std::optional<Group> fitting(Group group) const {
    if (group.accesses.size() + group.numbers > kMaxAccesses + 16 || group.accesses.size() > kMaxAccesses) {
      return std::nullopt;
    }
    group.space.clear();
    for (const auto& access : group.accesses) {
      auto refined = refine(group.space, access);
      if (!refined) {
        return std::nullopt;
      }
      group.space = std::move(*refined);
    }
    if (group.cut != 0 && group.space.size() > 1 && !cut_divides(group)) {
      return std::nullopt;
    }
    return group;
  }

  // Whether every row, and every thread's share, is a multiple of the cut: then there is no scalar tail anywhere, in
  // this loop or in ATen's.
  bool cut_divides(const Group& group) const {
    int64_t inner = group.space.back();
    if (inner % group.cut != 0) {
      return false;
    }
    for (const auto& access : group.accesses) {
      int64_t stride = strides_in(group.space, access).back();
      if (stride != access.item && stride != 0) {
        return false;
      }
    }
    return thread_share(group.numel, threads_) % inner == 0;
  }

  const PlanInput& input_;
  const Items& items_;
  std::vector<bool>& fusable_;
  int threads_;
  Groups out_;
  std::vector<int32_t> merged_into_;
  std::map<std::pair<uint32_t, uint64_t>, int32_t> readers_;
};

} // namespace

std::optional<Groups> group(const PlanInput& input, const Items& items, std::vector<bool>& fusable, int threads) {
  return Grouper(input, items, fusable, threads).run();
}

} // namespace ae
