// Loads and stores of operands and tile buffers.
#include "codegen/kernel.h"

namespace ae::codegen {
namespace {

std::string mangled(Type type) {
  std::string memory = memory_type(type, 1);
  return memory == "half" ? "f16" : memory == "float" ? "f32" : memory == "double" ? "f64" : memory;
}

} // namespace

// The address of the step's first element; with a stride, the addresses of all its elements.
std::string Kernel::address(size_t operand) {
  std::string base = "%at" + std::to_string(operand);
  if (program_.operands[operand].walk == Walk::Dense)
    return let("getelementptr inbounds " + memory_type(program_.operands[operand].type, 1) + ", ptr " + base + ", i64 " + index_);
  Ir stride{"%step" + std::to_string(operand), Type::I64, Ir::Launch};
  std::string first = let("getelementptr i8, ptr " + base + ", i64 " + let("mul i64 " + index_ + ", " + stride.text));
  if (width_ == 1)
    return first;
  std::string numbers, type = register_type(Type::I64, width_);
  for (size_t i = 0; i < width_; ++i)
    numbers.append(i ? ", i64 " : "i64 ").append(std::to_string(i));
  std::string offsets = let("mul " + type + " " + this->operand(stride, Ir::Loop) + ", <" + numbers + ">");
  return let("getelementptr i8, ptr " + first + ", " + type + " " + offsets);
}

std::string Kernel::buffer_address(const std::string& buffer, Type type) {
  return let("getelementptr inbounds " + memory_type(type, 1) + ", ptr " + buffer + ", i64 " +
             let("sub i64 " + index_ + ", " + tile_begin_));
}

Ir Kernel::load(size_t operand) {
  const Operand& from = program_.operands[operand];
  if (from.walk == Walk::Dense || from.walk == Walk::Strided)
    return load_from(from.type, address(operand), from.walk == Walk::Strided, width_);
  std::optional<Ir>& known = uniform_[operand];
  if (!known) {
    Ir::Level level = from.walk == Walk::Number ? Ir::Launch : Ir::Row;
    std::string* loop = std::exchange(loop_, &block(level));
    known = load_from(from.type, (level == Ir::Launch ? "%p" : "%at") + std::to_string(operand), false, 1);
    known->level = level;
    loop_ = loop;
  }
  return *known;
}

Ir Kernel::load_from(Type type, const std::string& address, bool scattered, size_t width) {
  std::string memory = memory_type(type, width), align = " align " + std::to_string(size_of(type)), loaded;
  if (width == 1 || (mask_.empty() && !scattered)) {
    loaded = let("load " + memory + ", ptr " + address + "," + align);
  } else {
    std::string count = std::to_string(width), bits = "<" + count + " x i1>";
    std::string pointer = scattered ? "<" + count + " x ptr>" : "ptr", mask = mask_.empty() ? "splat (i1 true)" : mask_;
    std::string function = std::string("@llvm.masked.") + (scattered ? "gather.v" : "load.v") + count + mangled(type) +
                           (scattered ? ".v" + count + "p0" : ".p0");
    declare("declare " + memory + " " + function + "(" + pointer + ", " + bits + ", " + memory + ")");
    loaded = let("call " + memory + " " + function + "(" + pointer + align + " " + address + ", " + bits + " " + mask + ", " +
                 memory + " zeroinitializer)");
  }
  std::string full = register_type(type, width);
  if (type == Type::Bool)
    loaded = let("icmp ne " + memory + " " + loaded + ", " + (width == 1 ? "0" : "zeroinitializer"));
  if (type == Type::F16)
    loaded = let("fpext " + memory + " " + loaded + " to " + full);
  if (type == Type::BF16) {
    std::string word = register_type(Type::I32, width), sixteen = width == 1 ? "16" : "splat (i32 16)";
    loaded = let("bitcast " + word + " " +
                 let("shl " + word + " " + let("zext " + memory + " " + loaded + " to " + word) + ", " + sixteen) + " to " + full);
  }
  return {loaded, type, Ir::Loop};
}

void Kernel::store(size_t operand, const Ir& result) {
  const Operand& to = program_.operands[operand];
  store_to(to.type, address(operand), to.walk == Walk::Strided, convert(result, to.type));
}

void Kernel::store_to(Type type, const std::string& address, bool scattered, const Ir& value) {
  std::string memory = memory_type(type, width_), full = register_type(type, width_), text = operand(value, Ir::Loop);
  if (type == Type::Bool)
    text = let("zext " + full + " " + text + " to " + memory);
  if (type == Type::F16)
    text = let("fptrunc " + full + " " + text + " to " + memory);
  if (type == Type::BF16) {
    std::string word = register_type(Type::I32, width_), sixteen = width_ == 1 ? "16" : "splat (i32 16)";
    text = let("trunc " + word + " " +
               let("lshr " + word + " " + let("bitcast " + full + " " + text + " to " + word) + ", " + sixteen) + " to " + memory);
  }
  std::string align = " align " + std::to_string(size_of(type));
  if (width_ == 1 || (mask_.empty() && !scattered)) {
    line("store " + memory + " " + text + ", ptr " + address + "," + align);
    return;
  }
  std::string count = std::to_string(width_), bits = "<" + count + " x i1>";
  std::string pointer = scattered ? "<" + count + " x ptr>" : "ptr", mask = mask_.empty() ? "splat (i1 true)" : mask_;
  std::string function = std::string("@llvm.masked.") + (scattered ? "scatter.v" : "store.v") + count + mangled(type) +
                         (scattered ? ".v" + count + "p0" : ".p0");
  declare("declare void " + function + "(" + memory + ", " + pointer + ", " + bits + ")");
  line("call void " + function + "(" + memory + " " + text + ", " + pointer + align + " " + address + ", " + bits + " " + mask +
       ")");
}

} // namespace ae::codegen
