// The table of lowerings, put together from its parts.
#include "codegen/lowering.h"

#include <unordered_map>

#include "codegen/rows.h"
#include "common/json.h"

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
  if (row && target.level == Target::Level::Other &&
      (!row->exact || is_half(value.compute) || (row->promotion == Promotion::Result && !is_float(value.type))))
    return false;
  return row && (row->types & bit(value.compute)) && (!row->accepts || row->accepts(value, target));
}

std::string describe_lowerings(const Target& target) {
  std::string out = "[";
  for (const Lowering& row : lowerings()) {
    Value value; // a call with no arguments, in float if there is such
    value.lowering = &row;
    value.compute = row.types & bit(Type::F32) ? Type::F32 : row.types & bit(Type::F64) ? Type::F64 : Type::I64;
    value.type = value.compute;
    out += out.size() > 1 ? ", {\"op\": " : "{\"op\": ";
    append_json(out, row.op);
    out += ", \"types\": [";
    for (size_t i = 0, n = 0; i < kTypes; ++i) {
      if (row.types & bit(static_cast<Type>(i))) {
        out += n++ > 0 ? ", " : "";
        append_json(out, name_of(static_cast<Type>(i)));
      }
    }
    const uint32_t cut = row.cut ? row.cut(value, target) : 0;
    const char* array = row.array ? row.array(value, target) : nullptr;
    out += row.exact ? "], \"exact\": true" : "], \"exact\": false";
    out += ", \"cut\": " + (cut != 0 ? std::to_string(cut) : "null") + ", \"array\": ";
    array ? append_json(out, array) : void(out += "null");
    out += ", \"how\": ";
    append_json(out, row.how);
    out += "}";
  }
  return out + "]";
}

} // namespace ae::codegen
