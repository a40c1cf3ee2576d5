// Recorded ops as elementwise computations, where codegen/'s table has a lowering for them.
#pragma once

#include <vector>

#include "codegen/lowering.h"
#include "plan/access.h"
#include "recorder/node.h"

namespace ae {

struct PointInput {
  std::optional<Access> access; // of a device tensor
  uint32_t parameter = 0;       // else the number's index in the region
  codegen::Type type = codegen::Type::F64;
};

// A number that a loop was made for: others take the unfused way.
struct Guard {
  uint32_t parameter;
  Parameter value;
};

// The numbers of the launch that is planned for, and those that are known to change from launch to launch.
struct Numbers {
  const std::vector<Parameter>* values = nullptr;
  std::vector<uint32_t> varying;
};

struct PointOp {
  const codegen::Lowering* lowering = nullptr;
  codegen::Type compute = codegen::Type::F32, type = codegen::Type::F32;
  std::vector<codegen::Argument> arguments; // a Value names an input
  std::vector<PointInput> inputs;
  Access output;
  int64_t numel = 0;
  uint32_t cut = 0;
  std::vector<Guard> guards;
};

// What the machine's ATen was built for and chose.
const codegen::Target& codegen_target();

std::optional<codegen::Type> codegen_type(c10::ScalarType type);

// The node's elementwise ops: one, or one an element of its lists. Empty: it is not one, or has no lowering.
std::vector<PointOp> pointwise_ops(const Node& node, const Numbers& numbers);

} // namespace ae
