// Tiles in execution: their units' steps on some rows at a time, on as many threads as PyTorch has.
#pragma once

#include <functional>
#include <variant>

#include "plan/plan.h"
#include "plan/row_form.h"
#include "plan/tiles.h"
#include "runtime/cascade.h"
#include "runtime/quick.h"

namespace ae {

// A step as the fragment has it.
struct TileStep {
  const Node* node;
  const c10::OperatorHandle* callee;
  const std::vector<c10::IValue>* arguments; // with the results last
};

class TileRun {
 public:
  TileRun(const Tiles& tiles, const Plan& plan, const std::function<TileStep(uint32_t)>& step);

  // Calls f(step, arguments) for all arguments that a step is called with, to put a launch's numbers there.
  template <class F>
  void each_arguments(F&& f) {
    for (auto& lane : lanes_) {
      for (auto& step : lane) {
        for (auto& call : step.calls) {
          f(step.step, call->arguments);
        }
      }
    }
  }

  // `slots`: the address of each slot's memory. `scratch`: that of tiles.scratch_bytes. `parameters`: the launch's numbers.
  void run(const Tiles& tiles, const Plan& plan, const std::vector<std::byte*>& slots, std::byte* scratch,
           std::vector<Parameter>& parameters);

 private:
  struct Pointer { // an argument that is a part of a slot
    c10::StorageImpl* storage;
    uint32_t slot;
    int64_t begin, step; // bytes
  };
  struct Call { // a step on so many rows
    int64_t rows;
    std::vector<c10::IValue> arguments;
    std::vector<Pointer> pointers;
    std::unique_ptr<Quick> quick;
  };
  struct Sum { // of all rows, of this lane's so far
    Pointer from, to;
    int64_t each = 1; // elements a row
    bool mean = false;
    std::variant<Cascade<float>, Cascade<double>> cascade;
    double total = 0;
  };
  struct Step { // without calls and sum: a unit of loops
    uint32_t step = 0;
    const c10::OperatorHandle* callee = nullptr;
    bool has_out = false;
    std::vector<std::unique_ptr<Call>> calls;
    std::unique_ptr<Sum> sum;
  };
  using Lane = std::vector<Step>; // what one thread needs, a step a unit

  static std::unique_ptr<Sum> make_sum(const TileStep& step, const RowForm& form, int64_t tile_rows);
  static std::unique_ptr<Call> make_call(const TileStep& step, const RowForm& form, int64_t tile_rows, int64_t rows);
  void finish_sums(const Tiles& tiles, const std::vector<std::byte*>& slots);
  void run_rows(const Tiles& tiles, const Plan& plan, size_t lane, int64_t begin, int64_t end, const std::vector<std::byte*>& slots,
                std::byte* scratch, std::vector<Parameter>& parameters);

  std::vector<Lane> lanes_;
};

} // namespace ae
