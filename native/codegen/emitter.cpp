// Instructions, constants and conversions.
#include "codegen/emitter.h"

#include <cstdio>
#include <cstring>
#include <limits>

namespace ae::codegen {
namespace {

const char* element(Type type) {
  static constexpr const char* names[kTypes] = {"i1", "i8", "i8", "i16", "i32", "i64", "float", "float", "float", "double"};
  return names[static_cast<size_t>(type)];
}

std::string vector_of(const char* element, size_t width) {
  return width == 1 ? element : "<" + std::to_string(width) + " x " + element + ">";
}

std::string literal(double number) {
  uint64_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  char text[32];
  std::snprintf(text, sizeof text, "0x%016llX", static_cast<unsigned long long>(bits));
  return text;
}

} // namespace

std::string register_type(Type type, size_t width) {
  return vector_of(element(type), width);
}

std::string memory_type(Type type, size_t width) {
  static constexpr const char* names[kTypes] = {"i8", "i8", "i8", "i16", "i32", "i64", "half", "i16", "float", "double"};
  return vector_of(names[static_cast<size_t>(type)], width);
}

std::string Emitter::fresh() {
  return "%v" + std::to_string(names_++);
}

std::string& Emitter::block(Ir::Level level) {
  return level == Ir::Loop ? *loop_ : level == Ir::Row ? row_ : launch_;
}

std::string Emitter::operand(const Ir& a, Ir::Level level) {
  size_t width = width_at(level);
  if (a.level == Ir::Loop || width == 1)
    return a.text;
  if (a.text[0] != '%')
    return std::string("splat (") + element(a.type) + " " + a.text + ")";
  std::string& splat = splats_[a.text + "/" + std::to_string(width)];
  if (splat.empty()) {
    splat = fresh();
    std::string type = register_type(a.type, width), lane = fresh(), count = std::to_string(width);
    block(a.level) += "  " + lane + " = insertelement " + type + " poison, " + element(a.type) + " " + a.text + ", i64 0\n  " +
                      splat + " = shufflevector " + type + " " + lane + ", " + type + " poison, <" + count +
                      " x i32> zeroinitializer\n";
  }
  return splat;
}

// `write(width, operands)` gives the instruction's text. At the level of the innermost argument.
template <class Write>
Ir Emitter::instruction(Type type, std::initializer_list<const Ir*> arguments, Write&& write) {
  Ir::Level level = Ir::Launch;
  for (const Ir* argument : arguments)
    level = std::min(level, argument->level);
  std::vector<std::string> texts;
  for (const Ir* argument : arguments)
    texts.push_back(operand(*argument, level));
  std::string text = write(width_at(level), texts);
  if (level != Ir::Loop) { // each step asks for it again
    std::string& known = uniforms_[level == Ir::Row ? "row " + text : text];
    if (known.empty()) {
      known = fresh();
      block(level) += "  " + known + " = " + text + "\n";
    }
    return {known, type, level};
  }
  Ir result{fresh(), type, level};
  block(level) += "  " + result.text + " = " + text + "\n";
  return result;
}

Ir Emitter::number(Type type, double number) const {
  if (type == Type::Bool)
    return {number != 0 ? "true" : "false", type, Ir::Launch};
  if (!is_float(type))
    return integer_number(type, static_cast<int64_t>(number));
  if (type != Type::F64)
    number = static_cast<float>(number);
  return {literal(number), type, Ir::Launch};
}

Ir Emitter::integer_number(Type type, int64_t number) const {
  return {std::to_string(number), type, Ir::Launch};
}

Ir Emitter::like(const Ir& other, double value) const {
  return number(other.type, value);
}

Ir Emitter::binary(std::string_view name, const Ir& a, const Ir& b) {
  return instruction(a.type, {&a, &b}, [&](size_t width, const auto& texts) {
    return std::string(name) + " " + register_type(a.type, width) + " " + texts[0] + ", " + texts[1];
  });
}

Ir Emitter::add(const Ir& a, const Ir& b) {
  return binary(is_float(a.type) ? "fadd" : "add", a, b);
}
Ir Emitter::sub(const Ir& a, const Ir& b) {
  return binary(is_float(a.type) ? "fsub" : "sub", a, b);
}
Ir Emitter::mul(const Ir& a, const Ir& b) {
  return binary(is_float(a.type) ? "fmul" : "mul", a, b);
}
Ir Emitter::div(const Ir& a, const Ir& b) {
  return binary("fdiv", a, b);
}

Ir Emitter::fma(const Ir& a, const Ir& b, const Ir& c) {
  if (!is_float(a.type) || !target_.vectors())
    return add(mul(a, b), c);
  return intrinsic("fma", {a, b, c});
}
Ir Emitter::fnma(const Ir& a, const Ir& b, const Ir& c) {
  if (!is_float(a.type) || !target_.vectors())
    return sub(c, mul(a, b));
  return intrinsic("fma", {neg(a), b, c});
}
Ir Emitter::fms(const Ir& a, const Ir& b, const Ir& c) {
  if (!is_float(a.type) || !target_.vectors())
    return sub(mul(a, b), c);
  return intrinsic("fma", {a, b, neg(c)});
}

Ir Emitter::neg(const Ir& a) {
  if (!is_float(a.type))
    return sub(integer_number(a.type, 0), a);
  return instruction(a.type, {&a},
                     [&](size_t width, const auto& texts) { return "fneg " + register_type(a.type, width) + " " + texts[0]; });
}

Ir Emitter::compare(std::string_view predicate, const Ir& a, const Ir& b) {
  std::string name;
  if (is_float(a.type)) {
    name = "fcmp " + std::string(predicate);
  } else {
    std::string_view base = predicate.substr(1); // without the "ordered" mark
    bool equality = base == "eq" || base == "ne";
    name = std::string("icmp ") + (equality ? "" : is_signed(a.type) ? "s" : "u") + std::string(base);
  }
  return instruction(Type::Bool, {&a, &b}, [&](size_t width, const auto& texts) {
    return name + " " + register_type(a.type, width) + " " + texts[0] + ", " + texts[1];
  });
}

Ir Emitter::select(const Ir& condition, const Ir& yes, const Ir& no) {
  return instruction(yes.type, {&condition, &yes, &no}, [&](size_t width, const auto& texts) {
    std::string type = register_type(yes.type, width);
    return "select " + register_type(Type::Bool, width) + " " + texts[0] + ", " + type + " " + texts[1] + ", " + type + " " +
           texts[2];
  });
}

Ir Emitter::both(const Ir& a, const Ir& b) {
  return binary("and", a, b);
}
Ir Emitter::either(const Ir& a, const Ir& b) {
  return binary("or", a, b);
}
Ir Emitter::differ(const Ir& a, const Ir& b) {
  return binary("xor", a, b);
}
Ir Emitter::invert(const Ir& a) {
  return binary("xor", a, integer_number(a.type, -1));
}
Ir Emitter::is_nan(const Ir& a) {
  return compare("uno", a, a);
}

Ir Emitter::intrinsic(std::string_view name, std::initializer_list<Ir> arguments) {
  std::vector<Ir> list(arguments);
  Type type = list[0].type;
  auto write = [&](size_t width, const auto& texts) {
    std::string full = register_type(type, width);
    std::string function = "@llvm." + std::string(name) + "." + (width == 1 ? "" : "v" + std::to_string(width));
    function += is_float(type) ? (type == Type::F64 ? "f64" : "f32") : element(type);
    std::string call, declaration;
    for (const std::string& text : texts) {
      call.append(call.empty() ? "" : ", ").append(full).append(" ").append(text);
      declaration.append(declaration.empty() ? "" : ", ").append(full);
    }
    declare("declare " + full + " " + function + "(" + declaration + ")");
    return "call " + full + " " + function + "(" + call + ")";
  };
  switch (list.size()) {
    case 1:
      return instruction(type, {&list[0]}, write);
    case 2:
      return instruction(type, {&list[0], &list[1]}, write);
    default:
      return instruction(type, {&list[0], &list[1], &list[2]}, write);
  }
}

Ir Emitter::cast(std::string_view name, const Ir& a, Type type) {
  return instruction(type, {&a}, [&](size_t width, const auto& texts) {
    return std::string(name) + " " + register_type(a.type, width) + " " + texts[0] + " to " + register_type(type, width);
  });
}

Ir Emitter::bits(const Ir& a) {
  return cast("bitcast", a, a.type == Type::F64 ? Type::I64 : Type::I32);
}
Ir Emitter::from_bits(const Ir& a) {
  return cast("bitcast", a, a.type == Type::I64 ? Type::F64 : Type::F32);
}

Ir Emitter::truncate(const Ir& a) {
  return cast("fptosi", a, a.type == Type::F64 ? Type::I64 : Type::I32);
}

Ir Emitter::round(const Ir& a, Type half) {
  if (half == Type::F16) {
    auto through = [&](const char* name, const Ir& from, bool narrow) {
      return instruction(Type::F32, {&from}, [&](size_t width, const auto& texts) {
        std::string f = register_type(Type::F32, width), h = memory_type(Type::F16, width);
        return std::string(name) + " " + (narrow ? f : h) + " " + texts[0] + " to " + (narrow ? h : f);
      });
    };
    return through("fpext", through("fptrunc", a, true), false);
  }
  // To the nearest, ties to even; what was a NaN stays one.
  Ir number = bits(a);
  Ir odd = both(binary("lshr", number, integer_number(Type::I32, 16)), integer_number(Type::I32, 1));
  Ir rounded = add(add(number, integer_number(Type::I32, 0x7fff)), odd);
  rounded = both(rounded, integer_number(Type::I32, static_cast<int32_t>(0xffff0000)));
  return select(is_nan(a), number_nan(), from_bits(rounded));
}

Ir Emitter::number_nan() const {
  return number(Type::F32, std::numeric_limits<double>::quiet_NaN());
}

// As x86 converts: what does not fit becomes the smallest integer. Narrow types take the low bits of a wider one.
Ir Emitter::to_integer(const Ir& a, Type type) {
  bool wide = type == Type::I64 || type == Type::U8;
  Type through = wide ? Type::I64 : Type::I32;
  double limit = wide ? 9223372036854775808.0 : 2147483648.0;
  int64_t least = wide ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min();
  Ir fits = a.type == Type::F64 && !wide ? both(compare("ogt", a, like(a, -limit - 1)), compare("olt", a, like(a, limit)))
                                         : both(compare("oge", a, like(a, -limit)), compare("olt", a, like(a, limit)));
  Ir converted = select(fits, cast("fptosi", a, through), integer_number(through, least));
  return through == type ? converted : cast("trunc", converted, type);
}

Ir Emitter::convert(const Ir& a, Type type) {
  if (a.type == type)
    return a;
  if (is_half(a.type))
    return convert({a.text, Type::F32, a.level}, type);
  if (is_half(type)) {
    Ir rounded = round(convert(a, Type::F32), type);
    rounded.type = type;
    return rounded;
  }
  if (type == Type::Bool)
    return compare(is_float(a.type) ? "une" : "one", a, like(a, 0));
  if (is_float(a.type)) {
    if (is_float(type))
      return cast(type == Type::F64 ? "fpext" : "fptrunc", a, type);
    return to_integer(a, type);
  }
  if (is_float(type))
    return cast(is_signed(a.type) ? "sitofp" : "uitofp", a, type);
  size_t from = a.type == Type::Bool ? 0 : size_of(a.type), to = size_of(type);
  if (from == to)
    return {a.text, type, a.level};
  return cast(from > to ? "trunc" : is_signed(a.type) ? "sext" : "zext", a, type);
}

void Emitter::declare(std::string declaration) {
  declarations_.insert(std::move(declaration));
}

} // namespace ae::codegen
