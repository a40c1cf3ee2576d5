// Programs as LLVM IR: rows, tiles and steps.
//
// A row is a range that takes ATen's vector formulas and one that takes its scalar ones (empty without a cut). A range
// runs in steps of `vf_` elements, the last one masked, or without masks its remainder element by element. With array routines a
// row goes tile by tile, and a tile stage by stage: what crosses stages lies in tile buffers, loads are repeated, and
// stores come in the last stage.
#include <algorithm>

#include "codegen/kernel.h"

namespace ae::codegen {
namespace {

constexpr size_t kTile = 1024, kBufferBytes = 64 * 1024;

} // namespace

Kernel::Kernel(const Program& program, const Target& target) : Emitter(target), program_(program) {
  vf_ = target.level == Target::Level::Avx512 ? 16 : target.level == Target::Level::Avx2 ? 8 : 4;
}

// Which values are needed, their stages, and buffers for what crosses stages.
void Kernel::plan() {
  const auto& values = program_.values;
  states_.resize(values.size());
  uniform_.resize(program_.operands.size());
  std::vector<size_t> ready(values.size());
  auto inputs = [&](size_t i, auto&& visit) {
    for (const Argument& argument : values[i].arguments)
      if (argument.kind == Argument::Kind::Value)
        visit(argument.value);
  };
  for (const Store& store : program_.stores)
    states_[store.value].live = true;
  for (size_t i = values.size(); i-- > 0;)
    if (states_[i].live)
      inputs(i, [&](size_t input) { states_[input].live = true; });
  for (size_t i = 0; i < values.size(); ++i) {
    State& state = states_[i];
    if (!state.live || !values[i].lowering)
      continue;
    inputs(i, [&](size_t input) { state.stage = std::max(state.stage, ready[input]); });
    state.array = values[i].lowering->array ? values[i].lowering->array(values[i], target_) : nullptr;
    ready[i] = state.stage + (state.array ? 1 : 0);
    last_stage_ = std::max(last_stage_, ready[i]);
    inputs(i, [&](size_t input) { states_[input].last_use = std::max(states_[input].last_use, state.stage); });
  }
  if (!last_stage_)
    return;
  for (const Store& store : program_.stores)
    states_[store.value].last_use = last_stage_;
  size_t bytes = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    State& state = states_[i];
    if (!state.live || !values[i].lowering)
      continue;
    if (state.array)
      state.input = buffer(values[i].compute);
    if (state.array || state.last_use > state.stage)
      state.buffer = buffer(state.array ? values[i].compute : values[i].type);
  }
  for (const auto& [name, type] : buffers_)
    bytes += size_of(type);
  tile_ = kTile;
  while (tile_ > 64 && tile_ * bytes > kBufferBytes)
    tile_ /= 2;
  if (program_.cut)
    tile_ = program_.cut * std::max<size_t>(1, tile_ / program_.cut);
}

std::string Kernel::buffer(Type type) {
  buffers_.emplace_back(fresh(), type);
  return buffers_.back().first;
}

Ir Kernel::value(size_t index) {
  std::optional<Ir>& known = now_[index];
  if (!known) {
    const Value& value = program_.values[index];
    const State& state = states_[index];
    if (!value.lowering) {
      known = load(value.operand);
    } else {
      Type type = state.array ? value.compute : value.type;
      known = convert(load_from(type, buffer_address(state.buffer, type), false, width_), value.type);
    }
  }
  return *known;
}

// The text of one step of a stage; empty where the step needs scalar routines and has a width.
std::string Kernel::step(size_t stage, bool vector, size_t width, const std::string& index, const std::string& mask) {
  std::string text;
  std::string* outer = std::exchange(loop_, &text);
  width_ = width;
  vector_ = vector;
  needs_scalar_ = false;
  index_ = index;
  mask_ = mask;
  now_.assign(program_.values.size(), std::nullopt);
  for (size_t i = 0; i < program_.values.size() && !needs_scalar_; ++i) {
    const Value& value = program_.values[i];
    const State& state = states_[i];
    if (!state.live || !value.lowering || state.stage != stage)
      continue;
    value.lowering->emit(*this, value);
    if (state.array) {
      store_to(value.compute, buffer_address(state.input, value.compute), false, convert(*now_[i], value.compute));
      now_[i].reset();
    } else if (!state.buffer.empty()) {
      store_to(value.type, buffer_address(state.buffer, value.type), false, *now_[i]);
    }
  }
  if (stage == last_stage_ && !needs_scalar_) {
    std::vector<Ir> results;
    for (const Store& store : program_.stores)
      results.push_back(value(store.value)); // all loads come before the stores
    for (size_t i = 0; i < results.size(); ++i)
      store(program_.stores[i].operand, results[i]);
  }
  loop_ = outer;
  mask_.clear();
  return needs_scalar_ ? std::string() : text;
}

// `rest`: the last step may have fewer elements, and is masked.
void Kernel::loop(size_t stage, bool vector, size_t width, const Range& range, bool rest) {
  std::string body = block_name(), exit = block_name(), before = current_, index = fresh(), next = fresh();
  line("br i1 " + let("icmp ult i64 " + range.begin + ", " + range.end) + ", label %" + body + ", label %" + exit);
  start(body);
  line(index + " = phi i64 [" + range.begin + ", %" + before + "], [" + next + ", %" + body + "]");
  *loop_ += step(stage, vector, width, index, rest ? mask(index, range.end) : "");
  line(next + " = add i64 " + index + ", " + std::to_string(width));
  line("br i1 " + let("icmp ult i64 " + next + ", " + range.end) + ", label %" + body + ", label %" + exit);
  start(exit);
}

// Of the elements from `begin` on those before `end`.
std::string Kernel::mask(const std::string& begin, const std::string& end) {
  std::string width = std::to_string(vf_), bits = "i" + width;
  declare("declare i64 @llvm.umin.i64(i64, i64)");
  std::string count = let("call i64 @llvm.umin.i64(i64 " + let("sub i64 " + end + ", " + begin) + ", i64 " + width + ")");
  std::string low = let("xor i64 " + let("shl i64 -1, " + count) + ", -1");
  return let("bitcast " + bits + " " + let("trunc i64 " + low + " to " + bits) + " to <" + width + " x i1>");
}

// `multiple`: the range's length is a multiple of it. A range of scalar formulas is short.
void Kernel::region(size_t stage, bool vector, const Range& range, size_t multiple) {
  bool masks = target_.level == Target::Level::Avx512;
  step(stage, vector, vf_, "%none", ""); // to see whether it has a vector form
  if (needs_scalar_ || (!vector && !masks))
    return loop(stage, vector, 1, range, false);
  if (!vector)
    return loop(stage, vector, vf_, range, true);
  if (multiple % vf_ == 0)
    return loop(stage, vector, vf_, range, false);
  if (masks)
    return loop(stage, vector, vf_, range, true);
  std::string count = let("sub i64 " + range.end + ", " + range.begin);
  std::string whole = let("and i64 " + count + ", -" + std::to_string(vf_)), middle = let("add i64 " + range.begin + ", " + whole);
  loop(stage, vector, vf_, {range.begin, middle}, false);
  loop(stage, vector, 1, {middle, range.end}, false);
}

void Kernel::calls(size_t stage, const Range& tile) {
  std::string count = let("trunc i64 " + let("sub i64 " + tile.end + ", " + tile.begin) + " to i32");
  for (const State& state : states_) {
    if (!state.array || state.stage != stage)
      continue;
    // MKL with 32-bit lengths.
    std::string name = state.array;
    bool mode = name[1] == 'm';
    declare("declare void @" + name + "(i32, ptr, ptr" + (mode ? ", i64)" : ")"));
    line("call void @" + name + "(i32 " + count + ", ptr " + state.input + ", ptr " + state.buffer +
         (mode ? ", i64 " + std::to_string(kVmMode) + ")" : ")"));
  }
}

void Kernel::stages(const Range& vector, const Range& scalar) {
  for (size_t stage = 0; stage <= last_stage_; ++stage) {
    region(stage, true, vector, program_.cut ? program_.cut : 1);
    if (program_.cut)
      region(stage, false, scalar, 1);
    if (stage < last_stage_)
      calls(stage, {vector.begin, scalar.end});
  }
}

void Kernel::row() {
  std::string middle = "%inner";
  if (program_.cut)
    middle = let("sub i64 %inner, " + let("urem i64 %inner, " + std::to_string(program_.cut)));
  if (!last_stage_) {
    stages({"0", middle}, {middle, "%inner"});
    return;
  }
  std::string body = block_name(), exit = block_name(), before = current_, next = fresh();
  tile_begin_ = fresh();
  line("br i1 " + let("icmp ult i64 0, %inner") + ", label %" + body + ", label %" + exit);
  start(body);
  std::string phi = tile_begin_ + " = phi i64 [0, %" + before + "], [" + next + ", %";
  std::string head = std::move(*loop_);
  loop_->clear();
  std::string end =
      let("call i64 @llvm.umin.i64(i64 " + let("add i64 " + tile_begin_ + ", " + std::to_string(tile_)) + ", i64 %inner)");
  declare("declare i64 @llvm.umin.i64(i64, i64)");
  std::string split = end;
  if (program_.cut) // where the row's middle lies in this tile
    split = let("call i64 @llvm.umin.i64(i64 " + end + ", i64 " + middle + ")");
  stages({tile_begin_, split}, {split, end});
  line(next + " = add i64 " + tile_begin_ + ", " + std::to_string(tile_));
  line("br i1 " + let("icmp ult i64 " + next + ", %inner") + ", label %" + body + ", label %" + exit);
  *loop_ = head + "  " + phi + current_ + "]\n" + *loop_;
  start(exit);
}

std::string Kernel::emit() {
  plan();
  loop_ = &body_;
  current_ = "rows";
  row();

  std::string entry, addresses;
  for (size_t i = 0; i < program_.operands.size(); ++i) {
    std::string n = std::to_string(i), pointer = "%p" + n;
    entry += "  %pp" + n + " = getelementptr ptr, ptr %operands, i64 " + n + "\n  " + pointer + " = load ptr, ptr %pp" + n + "\n";
    if (program_.operands[i].walk == Walk::Number)
      continue;
    entry += "  %op" + n + " = getelementptr i64, ptr %strides, i64 " + std::to_string(2 * i) + "\n  %outer" + n +
             " = load i64, ptr %op" + n + "\n";
    if (program_.operands[i].walk == Walk::Strided)
      entry += "  %sp" + n + " = getelementptr i64, ptr %strides, i64 " + std::to_string(2 * i + 1) + "\n  %step" + n +
               " = load i64, ptr %sp" + n + "\n";
    addresses += "  %by" + n + " = mul i64 %row, %outer" + n + "\n  %at" + n + " = getelementptr i8, ptr " + pointer + ", i64 %by" +
                 n + "\n";
  }
  for (const auto& [name, type] : buffers_)
    entry += "  " + name + " = alloca [" + std::to_string(tile_) + " x " + memory_type(type, 1) + "], align 64\n";

  std::string text =
      "define void @kernel(ptr %operands, ptr %strides, i64 %inner, i64 %outer) #0 {\nentry:\n" + entry + launch_ +
      "  %any = icmp ult i64 0, %outer\n  br i1 %any, label %rows, label %done\nrows:\n  %row = phi i64 [0, %entry], [%after, %" +
      current_ + "]\n" + addresses + row_ + body_ +
      "  %after = add i64 %row, 1\n  %more = icmp ult i64 %after, %outer\n  br i1 %more, label %rows, label %done\ndone:\n  ret "
      "void\n}\n";
  for (const std::string& declaration : declarations_)
    text += declaration + "\n";
  return text + "attributes #0 = { nounwind }\n";
}

std::string emit(const Program& program, const Target& target) {
  return Kernel(program, target).emit();
}

} // namespace ae::codegen
