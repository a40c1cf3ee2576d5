#include "plan/tiles.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "common/parallel.h"
#include "common/policy.h"
#include "plan/plan.h"
#include "plan/row_form.h"
#include "recorder/spec.h"

namespace ae {
namespace {

constexpr int64_t kFewestRows = 4;
constexpr int64_t kLine = 64;        // bytes
constexpr int64_t kProductShare = 4; // a product's own blocks are smaller: its tiles may be larger than the nearest cache

// What a unit does to a slot, in rows.
struct Touch {
  uint32_t slot = 0;
  bool read = false, written = false;
  bool at_end = false;                     // after the last row
  bool rows = false;                       // row r touches nothing outside of [begin + r * step, begin + r * step + extent)
  int64_t begin = 0, step = 0, extent = 0; // bytes
};

struct Found {
  std::vector<Touch> touches;
  std::vector<Access> results;
};

// The loop's operands, its iteration space cut into `rows` equal parts, outermost first.
bool loop_touches(const Loop& loop, int64_t rows, std::vector<Touch>& touches) {
  if (loop.numel % rows != 0) {
    return false;
  }
  int64_t within = loop.numel / rows, inner = 1;
  size_t dims = loop.sizes.size(), operands = loop.operands.size(), d = 0;
  while (d < dims && within % (inner * loop.sizes[d]) == 0) {
    inner *= loop.sizes[d++];
  }
  int64_t part = within / inner; // of dimension d
  if (part > 1 && (d == dims || loop.sizes[d] % part != 0)) {
    return false;
  }
  for (size_t i = 0; i < operands; ++i) {
    const auto& operand = loop.operands[i];
    if (operand.number) {
      continue;
    }
    auto stride = [&](size_t dim) { return loop.strides[dim * operands + i]; };
    Touch touch;
    touch.slot = operand.index;
    touch.read = operand.loaded;
    touch.written = operand.stored;
    touch.begin = operand.begin;
    touch.extent = static_cast<int64_t>(codegen::size_of(loop.kernel->program.operands[i].type));
    for (size_t k = 0; k < d; ++k) {
      touch.extent += (loop.sizes[k] - 1) * stride(k);
    }
    int64_t count = 1;
    touch.rows = true;
    if (d < dims) {
      touch.extent += (part - 1) * stride(d);
      touch.step = stride(d) * part;
      count = loop.sizes[d] / part;
      for (size_t k = d + 1; k < dims; ++k) {
        touch.rows = touch.rows && stride(k) == touch.step * count;
        count *= loop.sizes[k];
      }
    }
    touch.rows = touch.rows && count == rows && touch.step >= touch.extent;
    touches.push_back(touch);
  }
  return true;
}

// The step's operands, `each` of its own rows being one.
void step_touches(const Node& node, const RowForm& form, int64_t each, Found& found) {
  auto add = [&](uint32_t slot, c10::ScalarType type, int64_t offset, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                 const Rows& as, bool written) {
    auto access = make_access(slot, type, offset, sizes, strides, sizes);
    Touch touch;
    touch.slot = slot;
    touch.read = !written;
    touch.written = written;
    touch.rows = as.lead != Rows::kWhole;
    touch.at_end = written && form.sum;
    touch.begin = access.begin;
    touch.step = as.step * each * access.item;
    touch.extent = (each - 1) * as.step * access.item + access.item;
    for (size_t d = touch.rows ? static_cast<size_t>(as.lead) : 0; d < sizes.size(); ++d) {
      touch.extent += (sizes[d] - 1) * strides[d] * access.item;
    }
    found.touches.push_back(touch);
    if (written) {
      found.results.push_back(std::move(access));
    }
  };
  for (size_t i = 0; i < form.arguments.size(); ++i) {
    const Leaf& leaf = node.leaves[i];
    if (leaf.kind == LeafKind::Tensor) {
      const int64_t* words = node.words.data() + leaf.at;
      add(leaf.slot, static_cast<c10::ScalarType>(leaf.dtype), leaf.value, {words, leaf.dim}, {words + leaf.dim, leaf.dim},
          form.arguments[i], false);
    }
  }
  for (size_t i = 0; i < form.outputs.size(); ++i) {
    const Output& output = node.outputs[i];
    add(output.slot, output.dtype.toScalarType(), output.offset, output.sizes, output.strides, form.outputs[i], true);
  }
}

class Finder {
 public:
  Finder(Plan& plan, const PlanInput& input) : plan_(plan), input_(input), last_(input.slots.size(), 0) {
    for (uint32_t u = 0; u < plan.units.size(); ++u) {
      const auto& unit = plan.units[u];
      auto touch = [&](uint32_t slot) {
        last_[slot] = u;
        first_.try_emplace(slot, u);
      };
      for (uint32_t step : unit.steps) {
        input.steps[step]->each_slot(touch);
      }
      forms_.push_back(unit.loops.empty() ? row_form(node_of(u)) : std::nullopt);
    }
  }

  void run() {
    if (!any_large()) {
      return;
    }
    for (uint32_t u = 0; u + 1 < plan_.units.size();) {
      auto tiles = from(u);
      u += tiles ? tiles->count : 1;
      if (tiles) {
        guard(*tiles);
        plan_.tiles.push_back(std::move(*tiles));
      }
    }
  }

 private:
  // Whether anything is written that is large enough to be passed on in blocks. Its rows span all but the gap after the last,
  // so at least half of what they take together.
  bool any_large() const {
    int64_t large = policy(Policy::TileFromBytes) / 2;
    for (uint32_t u = 0; u < plan_.units.size(); ++u) {
      for (const auto& loop : plan_.units[u].loops) {
        for (const auto& store : loop.stores) {
          if (store.end() - store.begin >= large) {
            return true;
          }
        }
      }
      if (forms_[u]) {
        for (const auto& output : node_of(u).outputs) {
          if (static_cast<int64_t>(output.nbytes) >= large) {
            return true;
          }
        }
      }
    }
    return false;
  }

  // Of a unit that is one step.
  const Node& node_of(uint32_t u) const {
    return *input_.steps[plan_.units[u].steps[0]];
  }

  // The numbers of its products may not change.
  void guard(const Tiles& tiles) {
    for (uint32_t u = tiles.first; u < tiles.first + tiles.count; ++u) {
      if (forms_[u] && forms_[u]->product) {
        for (const auto& leaf : node_of(u).leaves) {
          if (leaf.kind == LeafKind::Number) {
            plan_.guards.push_back({leaf.at, (*input_.numbers.values)[leaf.at]});
          }
        }
      }
    }
  }

  // How many rows the unit keeps apart at most; 1: none.
  int64_t most_rows(uint32_t u) const {
    if (plan_.units[u].loops.empty()) {
      return forms_[u] ? forms_[u]->rows : 1;
    }
    int64_t rows = 0;
    for (const auto& loop : plan_.units[u].loops) {
      rows = std::gcd(rows, loop.numel);
    }
    return rows;
  }

  std::optional<Tiles> from(uint32_t first) const {
    std::optional<Tiles> best;
    int64_t rows = 0;
    for (uint32_t u = first; u < plan_.units.size(); ++u) {
      rows = std::gcd(rows, most_rows(u));
      if (rows < kFewestRows) {
        break;
      }
      if (u == first) {
        continue;
      }
      bool good = true;
      auto tiles = make(first, u + 1, rows, good);
      if (!good) {
        break;
      }
      if (tiles) {
        best = std::move(tiles);
      }
    }
    return best;
  }

  // `good`: these units may run so, and so may more. Nothing: they may not, or it is no use.
  std::optional<Tiles> make(uint32_t first, uint32_t end, int64_t rows, bool& good) const {
    struct Use {
      bool written = false, rows = true, fresh = false, reread = false, at_end = false;
      uint32_t writer = 0, touches = 0;
      int64_t step = 0, begin = 0, end = 0;
    };
    std::map<uint32_t, Use> uses;
    std::vector<Access> results;
    bool product = false;
    int64_t cut = 1, fewest = 1, summed = 0;
    good = false;
    for (uint32_t u = first; u < end; ++u) {
      const auto& unit = plan_.units[u];
      Found found;
      for (const auto& loop : unit.loops) {
        if (!loop_touches(loop, rows, found.touches) || !cut_fits(loop, rows, cut)) {
          return std::nullopt;
        }
        found.results.insert(found.results.end(), loop.stores.begin(), loop.stores.end());
      }
      if (const auto& form = forms_[u]) {
        int64_t each = form->rows / rows;
        if ((form->tails && plan_.threads > 1) || (form->product && !plain_product(node_of(u))) ||
            (form->sum && summed > 0 && summed != form->rows)) {
          return std::nullopt;
        }
        step_touches(node_of(u), *form, each, found);
        fewest = std::max(fewest, (form->fewest + each - 1) / each);
        cut = std::lcm(cut, form->align / std::gcd(form->align, each));
        product = product || form->product;
        summed = form->sum ? form->rows : summed;
      }
      for (bool write : {false, true}) { // a unit reads before it writes
        for (const auto& touch : found.touches) {
          if (!(write ? touch.written : touch.read)) {
            continue;
          }
          auto [it, is_new] = uses.try_emplace(touch.slot);
          Use& use = it->second;
          if (is_new) {
            use.fresh = write;
            use.step = touch.step;
            use.begin = touch.begin;
            use.end = touch.begin + touch.extent;
          }
          ++use.touches;
          use.at_end = use.at_end || touch.at_end;
          use.rows = use.rows && touch.rows && touch.step == use.step;
          use.begin = std::min(use.begin, touch.begin);
          use.end = std::max(use.end, touch.begin + touch.extent);
          if (write) {
            use.written = true;
            use.writer = u;
          } else if (use.written && use.writer != u) {
            use.reread = true;
          }
        }
      }
      results.insert(results.end(), found.results.begin(), found.results.end());
    }
    int64_t bytes = 0; // a row
    bool of_use = false;
    for (const auto& [slot, use] : uses) {
      if (use.written) {
        auto memory = plan_.memory[slot];
        bool placed = memory == Plan::Memory::Arena || memory == Plan::Memory::Own || memory == Plan::Memory::Outside;
        if (use.at_end && use.touches == 1 && placed) {
          continue;
        }
        if (!use.rows || !use.fresh || use.at_end || use.end - use.begin > use.step || !placed) {
          return std::nullopt;
        }
        of_use |= use.reread && use.step * rows >= policy(Policy::TileFromBytes);
      }
      bytes += use.rows ? use.step : 0;
    }
    int64_t most = policy(Policy::TileBytes) * (product ? kProductShare : 1);
    if (bytes == 0 || bytes * std::max(fewest, cut) > most) {
      return std::nullopt;
    }
    good = true;
    Tiles tiles;
    tiles.first = first;
    tiles.count = end - first;
    tiles.rows = rows;
    tiles.lanes = plan_.threads;
    tiles.block = std::min(most / bytes, rows / 2 / plan_.threads) / cut * cut;
    if (!of_use || tiles.block < fewest) {
      return std::nullopt;
    }
    auto up = [cut](int64_t n) { return (n + cut - 1) / cut * cut; };
    // Blocks of a share are as even as can be: a product of few rows is another routine's.
    tiles.share = up((rows + tiles.lanes - 1) / tiles.lanes);
    auto even = [&] {
      int64_t blocks = (tiles.share + tiles.block - 1) / tiles.block;
      tiles.block = up((tiles.share + blocks - 1) / blocks);
    };
    even();
    if (summed > 0) { // each thread adds up the share that ATen gives it
      int64_t each = summed / rows, share = thread_share(summed, plan_.threads);
      tiles.lanes = (summed + share - 1) / share;
      tiles.share = share / each;
      if (tiles.lanes > 1 && (tiles.share * each * tiles.lanes < summed || tiles.share % cut != 0)) {
        return std::nullopt;
      }
      even();
    }
    for (int64_t lane = 0; lane < tiles.lanes; ++lane) {
      int64_t rest = tiles.rest_of_lane(lane);
      if (rest > 0 && rest < fewest) {
        return std::nullopt;
      }
    }
    auto dies_inside = [&](uint32_t slot) {
      return plan_.memory[slot] == Plan::Memory::Arena && first_.at(slot) >= first && last_[slot] < end;
    };
    for (auto& access : results) {
      if (!dies_inside(access.slot)) {
        tiles.results.push_back(std::move(access));
      }
    }
    for (const auto& [slot, use] : uses) {
      if (use.written && dies_inside(slot)) {
        tiles.inside.push_back({slot, use.step, tiles.scratch_bytes});
        tiles.scratch_bytes += static_cast<size_t>((use.begin + tiles.lanes * tiles.block * use.step + kLine - 1) / kLine * kLine);
      }
    }
    return tiles;
  }

  // Whether its numbers, such as alpha and beta, are 1 and have always been: with others MKL may end in other routines.
  bool plain_product(const Node& node) const {
    for (const auto& leaf : node.leaves) {
      if (leaf.kind == LeafKind::Number) {
        const auto& varying = input_.numbers.varying;
        if (input_.numbers.values == nullptr || std::find(varying.begin(), varying.end(), leaf.at) != varying.end() ||
            number_value(leaf.tag, (*input_.numbers.values)[leaf.at]).toScalar().to<double>() != 1) {
          return false;
        }
      }
    }
    return true;
  }

  // Whether blocks can be cut such that the loop's vector bodies end where ATen's do: at multiples of `cut` rows.
  bool cut_fits(const Loop& loop, int64_t rows, int64_t& cut) const {
    int64_t vector = loop.kernel->program.cut;
    if (vector == 0) {
      return true;
    }
    int64_t within = loop.numel / rows;
    cut = std::lcm(cut, vector / std::gcd(vector, within));
    int64_t share = thread_share(loop.numel, plan_.threads);
    return share == loop.numel || share % vector == 0;
  }

  Plan& plan_;
  const PlanInput& input_;
  std::vector<std::optional<RowForm>> forms_; // by unit, of those that are one step
  std::vector<uint32_t> last_;                // unit, by slot
  std::map<uint32_t, uint32_t> first_;
};

} // namespace

const char* Tiles::stage_name() const {
  constexpr const char* names[] = {"new", "timed", "used", "refused"};
  return names[static_cast<size_t>(stage)];
}

void find_tiles(Plan& plan, const PlanInput& input) {
  if (policy(Policy::TileBytes) > 0) {
    Finder(plan, input).run();
  }
}

} // namespace ae
