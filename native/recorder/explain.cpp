#include "recorder/explain.h"

#include <algorithm>

#include "common/json.h"
#include "runtime/fragment.h"

namespace ae {

namespace {

// What the region's last launch consisted of: loops by their ops, and ops as they are.
void append_plan(std::string& out, const Fragment& fragment) {
  const Variant* variant = fragment.latest();
  if (variant == nullptr) {
    return;
  }
  out += ", \"stage\": ";
  append_json(out, variant->stage_name());
  out += ", \"units\": [";
  bool first = true;
  auto add = [&](const std::string& name, size_t loops, bool quick) {
    out += first ? "{\"name\": " : ", {\"name\": ";
    first = false;
    append_json(out, name);
    out += ", \"loops\": " + std::to_string(loops) + (quick ? ", \"quick\": true}" : "}");
  };
  for (const auto& unit : variant->current().units) {
    if (unit.loops.empty()) {
      add(variant->input.steps[unit.steps[0]]->traits->name, 0, fragment.quick(unit.steps[0]));
    } else {
      add(unit.loops[0].kernel->name, unit.loops.size(), false);
    }
  }
  out += "], \"tiles\": [";
  for (const auto& tiles : variant->current().tiles) {
    out += &tiles == variant->current().tiles.data() ? "" : ", ";
    out += "{\"first\": " + std::to_string(tiles.first) + ", \"units\": " + std::to_string(tiles.count) +
           ", \"rows\": " + std::to_string(tiles.rows) + ", \"block\": " + std::to_string(tiles.block) + ", \"stage\": ";
    append_json(out, tiles.stage_name());
    out += ", \"why\": ";
    append_json(out, tiles.why);
    out += "}";
  }
  out += "]";
}

} // namespace

std::string explain_regions(const Trie& trie) {
  std::vector<const Node*> ends;
  trie.each([&](const Node& node) {
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
      append_json(out, path[k]->traits->name);
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
        append_json(out, names[r]);
        out += ": " + std::to_string(end.ends[r]);
      }
    }
    out += "}";
    append_plan(out, *end.fragment);
    out += "}";
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
    append_json(out, rows[i].traits->name);
    out += ", \"reason\": ";
    append_json(out, names[rows[i].reason]);
    out += ", \"count\": " + std::to_string(rows[i].count) + "}";
  }
  out += "]}";
  return out;
}

} // namespace ae
