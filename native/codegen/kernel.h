// One kernel in the making: see emit.cpp.
#pragma once

#include <optional>
#include <utility>

#include "codegen/emitter.h"

namespace ae::codegen {

class Kernel : public Emitter {
 public:
  Kernel(const Program& program, const Target& target);
  std::string emit();

 protected:
  Ir value(size_t index) override;
  void put(const Value& value, const Ir& result) override {
    now_[static_cast<size_t>(&value - program_.values.data())] = result;
  }

 private:
  struct State {
    bool live = false;
    size_t stage = 0;    // where it is computed
    size_t last_use = 0; // the last stage that needs it
    const char* array = nullptr;
    std::string buffer, input; // where it lies between stages; the array routine's input
  };
  struct Range {
    std::string begin, end;
  };

  // emit.cpp
  void plan();
  std::string buffer(Type type);
  void row();
  void stages(const Range& vector, const Range& scalar);
  void calls(size_t stage, const Range& tile);
  void region(size_t stage, bool vector, const Range& range, size_t multiple);
  void loop(size_t stage, bool vector, size_t width, const Range& range, bool rest);
  std::string mask(const std::string& begin, const std::string& end);
  std::string step(size_t stage, bool vector, size_t width, const std::string& index, const std::string& mask);

  // memory.cpp
  Ir load(size_t operand);
  void store(size_t operand, const Ir& result);
  Ir load_from(Type type, const std::string& address, bool scattered, size_t width);
  void store_to(Type type, const std::string& address, bool scattered, const Ir& value);
  std::string address(size_t operand);
  std::string buffer_address(const std::string& buffer, Type type);

  void line(const std::string& text) {
    *loop_ += "  " + text + "\n";
  }
  std::string let(const std::string& text) {
    std::string name = fresh();
    line(name + " = " + text);
    return name;
  }
  std::string block_name() {
    return "b" + std::to_string(names_++);
  }
  void start(const std::string& block) {
    *loop_ += block + ":\n";
    current_ = block;
  }

  const Program& program_;
  size_t vf_;
  std::vector<State> states_;
  size_t last_stage_ = 0, tile_ = 0;
  std::vector<std::pair<std::string, Type>> buffers_;

  std::string body_, current_; // the text of a row's loops, and its last block
  std::vector<std::optional<Ir>> now_, uniform_;
  std::string index_, mask_, tile_begin_; // of the step being written
};

} // namespace ae::codegen
