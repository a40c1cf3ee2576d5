// Which ops compute each row of their results from that row of their operands alone: they may run some rows at a time.
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>

#include "recorder/node.h"

namespace ae {

// A tensor as rows: its leading dimensions, merged into one.
struct Rows {
  static constexpr int kWhole = -1;

  int lead = kWhole; // how many dimensions those are
  int64_t step = 0;  // from one row to the next, in elements
};

struct RowForm {
  int64_t rows = 1;
  int64_t fewest = 1; // rows that are worth a call
  int64_t align = 1;  // rows at whose multiples blocks may begin
  bool product = false;
  // The kernel is a loop over rows that is compiled twice, for one thread and for several, with other contractions in a
  // row's scalar tail.
  bool tails = false;
  // A sum of everything: a row is an element, rows come in order, and there is one result, at the end.
  bool sum = false;
  bool mean = false; // ... divided by their number
  c10::SmallVector<Rows, 6> arguments, outputs;
  int replaced = -1;   // the argument that names dimensions, if there is one,
  c10::IValue instead; // and what it is where the leading dimensions are one
};

// Nothing: it is no such op, or not on tensors whose leading dimensions can be merged.
std::optional<RowForm> row_form(const Node& node);

} // namespace ae
