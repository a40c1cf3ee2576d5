// Element types, and programs as text.
#include "codegen/lowering.h"

namespace ae::codegen {
namespace {

struct Row {
  size_t size;
  const char* name;
};
constexpr Row kRows[kTypes] = {{1, "b1"},  {1, "u8"},  {1, "i8"},   {2, "i16"}, {4, "i32"},
                               {8, "i64"}, {2, "f16"}, {2, "bf16"}, {4, "f32"}, {8, "f64"}};

const Row& row(Type type) {
  return kRows[static_cast<size_t>(type)];
}

} // namespace

size_t size_of(Type type) {
  return row(type).size;
}

const char* name_of(Type type) {
  return row(type).name;
}

std::string Program::key() const {
  std::string key;
  key.reserve(32 * (operands.size() + values.size()));
  for (const Operand& operand : operands)
    key.append(name_of(operand.type)).append({"dsxn"[static_cast<size_t>(operand.walk)], ' '});
  for (const Value& value : values) {
    key += ';';
    if (!value.lowering) {
      key.append("@").append(std::to_string(value.operand));
      continue;
    }
    key.append(value.lowering->op).append(" ").append(name_of(value.compute)).append(">").append(name_of(value.type));
    for (const Argument& argument : value.arguments) {
      switch (argument.kind) {
        case Argument::Kind::None:
          key += " -";
          break;
        case Argument::Kind::Value:
          key.append(" %").append(std::to_string(argument.value));
          break;
        case Argument::Kind::Int:
          key.append(" ").append(std::to_string(argument.number));
          break;
        case Argument::Kind::Text: // with its length: it may hold anything
          key.append(" '").append(std::to_string(argument.text.size())).append(":").append(argument.text);
          break;
      }
    }
  }
  for (const Store& store : stores)
    key.append(";=").append(std::to_string(store.operand)).append("%").append(std::to_string(store.value));
  return key.append(";/").append(std::to_string(cut));
}

} // namespace ae::codegen
