// Arguments and results of values, and calls of routines.
#include <bit>

#include "codegen/emitter.h"

namespace ae::codegen {
namespace {

Type math_type(Type type) {
  return is_half(type) ? Type::F32 : type;
}

} // namespace

bool Emitter::has(const Value& value, size_t index) const {
  return index < value.arguments.size() && value.arguments[index].kind != Argument::Kind::None;
}

int64_t Emitter::integer(const Value& value, size_t index, int64_t otherwise) const {
  return has(value, index) ? value.arguments[index].number : otherwise;
}

std::string_view Emitter::text(const Value& value, size_t index) const {
  return has(value, index) ? std::string_view(value.arguments[index].text) : std::string_view();
}

Ir Emitter::raw(const Value& value, size_t index) {
  const Argument& argument = value.arguments[index];
  if (argument.kind == Argument::Kind::Int)
    return integer_number(Type::I64, argument.number);
  if (argument.kind == Argument::Kind::Text)
    return number(Type::F64, std::bit_cast<double>(argument.number));
  return this->value(argument.value);
}

Ir Emitter::arg(const Value& value, size_t index) {
  return convert(convert(raw(value, index), value.compute), math_type(value.compute));
}

Ir Emitter::opmath(const Value& value, size_t index) {
  return convert(raw(value, index), math_type(value.compute));
}

Ir Emitter::arg_or(const Value& value, size_t index, double otherwise) {
  return has(value, index) ? arg(value, index) : number(math_type(value.compute), otherwise);
}

Ir Emitter::opmath_or(const Value& value, size_t index, double otherwise) {
  return has(value, index) ? opmath(value, index) : number(math_type(value.compute), otherwise);
}

void Emitter::set(const Value& value, const Ir& result) {
  put(value, convert(result, value.type));
}

// Vector routines take what fits a register: wider vectors go in pieces, narrower ones are filled up with zeros, as
// ATen's partial loads do.
Ir Emitter::sleef(std::string_view name, std::string_view suffix, std::initializer_list<Ir> arguments, bool wide) {
  Type type = arguments.begin()->type;
  wide = wide && target_.level == Target::Level::Avx512;
  size_t lanes = (wide ? 64 : 32) / size_of(type);
  std::string function =
      "@Sleef_" + std::string(name) + (type == Type::F32 ? "f" : "d") + std::to_string(lanes) + std::string(suffix);
  std::string piece = register_type(type, lanes), whole = register_type(type, width_), element = register_type(type, 1);
  std::string declaration;
  for (size_t i = 0; i < arguments.size(); ++i)
    declaration.append(i ? ", " : "").append(piece);
  declare("declare " + piece + " " + function + "(" + declaration + ")");

  std::string& out = *loop_;
  auto shuffle = [&](const std::string& from, const std::string& a, const std::string& b, size_t begin, size_t count,
                     size_t valid) {
    std::string result = fresh();
    out.append("  " + result + " = shufflevector " + from + " " + a + ", " + from + " " + b + ", <" + std::to_string(count) +
               " x i32> <");
    for (size_t i = 0; i < count; ++i)
      out.append(i ? ", i32 " : "i32 ").append(std::to_string(i < valid ? begin + i : valid));
    out.append(">\n");
    return result;
  };
  std::vector<std::string> pieces;
  for (size_t begin = 0; begin < width_; begin += lanes) {
    std::string call;
    for (const Ir& argument : arguments) {
      std::string text = operand(argument, Ir::Loop);
      if (width_ == 1) {
        std::string filled = fresh();
        out.append("  " + filled + " = insertelement " + piece + " zeroinitializer, " + element + " " + text + ", i64 0\n");
        text = filled;
      } else if (width_ != lanes) {
        text = shuffle(whole, text, "zeroinitializer", begin, lanes, std::min(lanes, width_));
      }
      call.append(call.empty() ? "" : ", ").append(piece).append(" ").append(text);
    }
    pieces.push_back(fresh());
    out.append("  " + pieces.back() + " = call " + piece + " " + function + "(" + call + ")\n");
  }
  if (width_ == 1) {
    std::string result = fresh();
    out.append("  " + result + " = extractelement " + piece + " " + pieces[0] + ", i64 0\n");
    return {result, type, Ir::Loop};
  }
  if (width_ < lanes)
    return {shuffle(piece, pieces[0], "poison", 0, width_, width_), type, Ir::Loop};
  for (size_t size = lanes; pieces.size() > 1; size *= 2) {
    std::vector<std::string> joined;
    for (size_t i = 0; i < pieces.size(); i += 2)
      joined.push_back(shuffle(register_type(type, size), pieces[i], pieces[i + 1], 0, 2 * size, 2 * size));
    pieces = joined;
  }
  return {pieces[0], type, Ir::Loop};
}

// In registers where the processor can permute them.
Ir Emitter::entry(std::string_view name, const Table& table, const Ir& index) {
  std::string at = operand(index, Ir::Loop), type = register_type(Type::I32, width_);
  auto part = [&](size_t begin, size_t count) {
    std::string text;
    for (size_t i = begin; i < begin + count; ++i)
      text.append(text.empty() ? "i32 " : ", i32 ").append(std::to_string(table[i]));
    return text;
  };
  auto let = [&](const std::string& text) {
    std::string result = fresh();
    loop_->append("  " + result + " = " + text + "\n");
    return Ir{result, Type::I32, Ir::Loop};
  };
  if (width_ == 16) {
    std::string function = "@llvm.x86.avx512.vpermi2var.d.512";
    declare("declare " + type + " " + function + "(" + type + ", " + type + ", " + type + ")");
    return from_bits(let("call " + type + " " + function + "(" + type + " <" + part(0, 16) + ">, " + type + " " + at + ", " + type +
                         " <" + part(16, 16) + ">)"));
  }
  if (width_ == 8) {
    std::string function = "@llvm.x86.avx2.permd";
    declare("declare " + type + " " + function + "(" + type + ", " + type + ")");
    auto eight = [&](size_t begin) {
      return let("call " + type + " " + function + "(" + type + " <" + part(begin, 8) + ">, " + type + " " + at + ")");
    };
    auto has = [&](int64_t bit) {
      return compare("one", both(index, integer_number(Type::I32, bit)), integer_number(Type::I32, 0));
    };
    Ir high = select(has(8), eight(24), eight(16)), low = select(has(8), eight(8), eight(0));
    return from_bits(select(has(16), high, low));
  }
  needs_scalar_ |= width_ != 1;
  std::string global = "@" + std::string(name);
  declare(global + " = internal constant [32 x i32] [" + part(0, 32) + "]");
  Ir address = let("getelementptr [32 x i32], ptr " + global + ", i64 0, i32 " + at);
  return from_bits(let("load i32, ptr " + address.text + ", align 4"));
}

Ir Emitter::libm(std::string_view name, std::initializer_list<Ir> arguments) {
  needs_scalar_ |= width_ != 1;
  Type type = arguments.begin()->type;
  std::string element = register_type(type, 1), function = "@" + std::string(name) + (type == Type::F32 ? "f" : "");
  std::string call, declaration;
  for (const Ir& argument : arguments) {
    call.append(call.empty() ? "" : ", ").append(element).append(" ").append(operand(argument, Ir::Loop));
    declaration.append(declaration.empty() ? "" : ", ").append(element);
  }
  declare("declare " + element + " " + function + "(" + declaration + ")");
  Ir result{fresh(), type, Ir::Loop};
  loop_->append("  " + result.text + " = call " + element + " " + function + "(" + call + ")\n");
  return result;
}

} // namespace ae::codegen
