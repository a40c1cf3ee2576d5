// The table of lowerings, put together from its parts.
#include "codegen/lowering.h"

#include <unordered_map>

#include "codegen/rows.h"

namespace ae::codegen {

const std::vector<Lowering>& lowerings() {
  static const Rows rows = [] {
    Rows all;
    for (auto add : {add_arithmetic, add_comparisons, add_copies, add_mathematics, add_powers, add_activations,
                     add_activation_gradients, add_gelu, add_losses})
      add(all);
    return all;
  }();
  return rows;
}

const Lowering* find_lowering(std::string_view base_name) {
  static const auto index = [] {
    std::unordered_map<std::string_view, const Lowering*> map;
    for (const Lowering& row : lowerings())
      map.emplace(row.op, &row);
    return map;
  }();
  auto found = index.find(base_name);
  return found == index.end() ? nullptr : found->second;
}

bool admitted(const Value& value, const Target& target) {
  const Lowering* row = value.lowering;
  if (row && row->promotion == Promotion::FloatOfInt && !is_float(value.type))
    return false; // such as a quotient of integers that is truncated
  return row && (row->types & bit(value.compute)) && (!row->accepts || row->accepts(value, target));
}

} // namespace ae::codegen
