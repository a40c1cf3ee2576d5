// Consecutive units that run some rows at a time: what one of them writes is still in the cache when the next reads it.
//
// A reduction along the last dimensions, a softmax or a layer norm needs a row of its operands for a row of its results,
// and so do the loops before and after it. Where all that such units write falls into rows that nobody else touches, the
// order of rows is free, and each row is computed by the same kernels from the same numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plan/access.h"

namespace ae {

struct Plan;
struct PlanInput;
class TileRun;

struct Tiles {
  // Compared with its units run one by one, and timed beside them, before it is used.
  enum class Stage : uint8_t { New, Timed, Used, Refused };

  const char* stage_name() const;
  // The rows of a lane, and of its last block if that is shorter than the others, else 0.
  std::pair<int64_t, int64_t> rows_of_lane(int64_t lane) const {
    return {std::min(lane * share, rows), std::min((lane + 1) * share, rows)};
  }
  int64_t rest_of_lane(int64_t lane) const {
    auto [begin, end] = rows_of_lane(lane);
    return (end - begin) % block;
  }
  bool is_inside(uint32_t slot) const {
    return std::any_of(inside.begin(), inside.end(), [slot](const Inside& i) { return i.slot == slot; });
  }

  uint32_t first = 0, count = 0; // units
  int64_t rows = 0;
  int64_t block = 0; // rows at a time
  int64_t lanes = 1; // threads,
  int64_t share = 0; // each with so many rows

  struct Inside { // a slot whose values nothing needs afterwards: memory for a block will do
    uint32_t slot;
    int64_t step;  // bytes a row
    size_t offset; // in the scratch memory
  };
  std::vector<Inside> inside;
  size_t scratch_bytes = 0;    // for all that is inside
  int64_t scratch = 0;         // where in the arena
  std::vector<Access> results; // what it writes and somebody needs, or may need

  Stage stage = Stage::New;
  std::string why; // Refused
  uint32_t timed = 0;
  uint64_t ns = ~uint64_t(0), units_ns = ~uint64_t(0); // the quickest of each
  std::shared_ptr<TileRun> run;                        // runtime/tile_run.h
};

// Finds them in a plan whose memory is assigned. May add guards to it.
void find_tiles(Plan& plan, const PlanInput& input);

} // namespace ae
