#include "runtime/tile_run.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "common/parallel.h"
#include "device/device.h"
#include "ops/alias.h"
#include "ops/direct.h"

namespace ae {
namespace {

constexpr size_t kProductTries = 2;

// A tensor of that layout, with numbers of many magnitudes and both signs: sums of them show how they were added up.
at::Tensor noise_like(const at::Tensor& tensor, uint64_t state) {
  int64_t extent = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    extent += (tensor.sizes()[d] - 1) * tensor.strides()[d];
  }
  auto noise = at::empty({extent}, c10::kFloat);
  for (int64_t i = 0; i < extent; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    auto whole = static_cast<float>(static_cast<int32_t>(state >> 32));
    noise.mutable_data_ptr<float>()[i] = std::ldexp(whole, static_cast<int>(state >> 29 & 7) - 34);
  }
  return noise.to(tensor.scalar_type()).as_strided(tensor.sizes(), tensor.strides());
}

// So many rows of a tensor, its leading dimensions being one.
struct RowView {
  RowView(const at::Tensor& whole, const Rows& as, int64_t rows) : sizes{rows}, strides{as.step} {
    sizes.append(whole.sizes().begin() + as.lead, whole.sizes().end());
    strides.append(whole.strides().begin() + as.lead, whole.strides().end());
  }
  c10::SmallVector<int64_t, 5> sizes, strides;
};

// ... from `first` on.
at::Tensor rows_of(const at::Tensor& whole, const Rows& as, int64_t first, int64_t rows) {
  RowView view(whole, as, rows);
  return whole.as_strided(view.sizes, view.strides, whole.storage_offset() + first * as.step);
}

// Calls f(lane) for each, on ATen's threads where they are several.
template <class F>
void on_lanes(int64_t lanes, const F& f) {
  if (lanes == 1) {
    return f(0);
  }
  on_threads(lanes, 1, [&](int64_t first, int64_t last) {
    BelowEverything below;
    for (int64_t lane = first; lane < last; ++lane) {
      f(lane);
    }
  });
}

// A kernel may treat few rows in another way than many: products end in another routine, and where a loop over rows is
// too short to be shared among threads, another copy of its code runs, in which other products and sums are contracted.
// Whether bits depend on it is found out with numbers of our own, as the launch's may all be zero.
void require_same_rows(const TileStep& step, const RowForm& form, const Tiles& tiles, size_t seed) {
  std::vector<c10::IValue> noise = *step.arguments;
  for (size_t i = 0; i < noise.size(); ++i) {
    if (noise[i].isTensor() && noise[i].toTensor().defined()) {
      noise[i] = noise_like(noise[i].toTensor(), seed + i);
    }
  }
  bool has_out = step.node->traits->out.has_value();
  size_t count = form.arguments.size();
  std::vector<at::Tensor> expected, found;
  auto call = [&](int64_t row, int64_t rows, const std::vector<at::Tensor>& results) {
    torch::jit::Stack stack(noise.begin(), noise.begin() + static_cast<std::ptrdiff_t>(count));
    for (size_t i = 0; i < count; ++i) {
      if (form.arguments[i].lead != Rows::kWhole) {
        stack[i] = rows_of(noise[i].toTensor(), form.arguments[i], row, rows);
      }
    }
    if (form.replaced >= 0) {
      stack[static_cast<size_t>(form.replaced)] = form.instead;
    }
    if (has_out) {
      for (const auto& result : results) {
        stack.emplace_back(result.narrow(0, row, rows));
      }
    }
    step.callee->redispatchBoxed(kCpuKeys, &stack);
    if (!has_out) {
      for (size_t i = 0; i < results.size(); ++i) {
        results[i].narrow(0, row, rows).copy_(stack[i].toTensor());
      }
    }
  };
  for (size_t i = 0; i < form.outputs.size(); ++i) {
    expected.push_back(at::empty_like(rows_of(noise[count + i].toTensor(), form.outputs[i], 0, form.rows)));
    found.push_back(at::empty_like(expected.back()));
  }
  call(0, form.rows, expected);
  int64_t each = form.rows / tiles.rows;
  on_lanes(tiles.lanes, [&](int64_t lane) {
    auto [begin, end] = tiles.rows_of_lane(lane);
    for (int64_t row = begin; row < end; row += tiles.block) {
      call(row * each, std::min(tiles.block, end - row) * each, found);
    }
  });
  for (size_t i = 0; i < found.size(); ++i) {
    TORCH_CHECK(found[i].equal(expected[i]), "gives other bits for ", tiles.block * each, " rows than for ", form.rows);
  }
}

} // namespace

TileRun::TileRun(const Tiles& tiles, const Plan& plan, const std::function<TileStep(uint32_t)>& step) {
  std::set<int64_t> sizes{tiles.block}; // of blocks, in rows
  for (int64_t lane = 0; lane < tiles.lanes; ++lane) {
    lanes_.emplace_back(tiles.count);
    if (int64_t rest = tiles.rest_of_lane(lane); rest > 0) {
      sizes.insert(rest);
    }
  }
  for (uint32_t u = 0; u < tiles.count; ++u) {
    const auto& unit = plan.units[tiles.first + u];
    if (!unit.loops.empty()) {
      continue;
    }
    auto from = step(unit.steps[0]);
    auto form = *row_form(*from.node);
    size_t tries = form.sum ? 0 : form.product ? kProductTries : 1;
    for (size_t number = 0; number < tries; ++number) {
      require_same_rows(from, form, tiles, number * 16);
    }
    for (auto& lane : lanes_) {
      lane[u].step = unit.steps[0];
      lane[u].callee = from.callee;
      lane[u].has_out = from.node->traits->out.has_value();
      if (form.sum) {
        lane[u].sum = make_sum(from, form, tiles.rows);
        continue;
      }
      for (int64_t rows : sizes) {
        lane[u].calls.push_back(make_call(from, form, tiles.rows, rows));
      }
    }
  }
}

std::unique_ptr<TileRun::Call> TileRun::make_call(const TileStep& step, const RowForm& form, int64_t tile_rows, int64_t rows) {
  auto call = std::make_unique<Call>();
  call->rows = rows;
  call->arguments = *step.arguments;
  int64_t each = form.rows / tile_rows; // the op's rows to one of the tiles'
  auto cut = [&](size_t argument, const Rows& as, uint32_t slot) {
    if (as.lead == Rows::kWhole) {
      return;
    }
    const at::Tensor whole = call->arguments[argument].toTensor();
    auto item = static_cast<int64_t>(whole.element_size());
    RowView view(whole, as, each * rows);
    auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), whole.storage().nbytes(),
                                                         c10::DataPtr(nullptr, c10::Device(c10::kCPU)), nullptr, false);
    call->pointers.push_back({storage.get(), slot, whole.storage_offset() * item, as.step * each * item});
    auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(storage)), kCpuKeys, whole.dtype());
    impl->set_sizes_and_strides(view.sizes, view.strides, 0);
    call->arguments[argument] = at::Tensor(std::move(impl));
  };
  const Node& node = *step.node;
  for (size_t i = 0; i < form.arguments.size(); ++i) {
    cut(i, form.arguments[i], node.leaves[i].slot);
  }
  for (size_t i = 0; i < form.outputs.size(); ++i) {
    cut(form.arguments.size() + i, form.outputs[i], node.outputs[i].slot);
  }
  if (form.replaced >= 0) {
    call->arguments[static_cast<size_t>(form.replaced)] = form.instead;
  }
  call->quick = make_quick(*node.traits, call->arguments.data(), call->arguments.size());
  return call;
}

void TileRun::run(const Tiles& tiles, const Plan& plan, const std::vector<std::byte*>& slots, std::byte* scratch,
                  std::vector<Parameter>& parameters) {
  on_lanes(tiles.lanes, [&](int64_t lane) {
    auto [begin, end] = tiles.rows_of_lane(lane);
    run_rows(tiles, plan, static_cast<size_t>(lane), begin, end, slots, scratch, parameters);
  });
  finish_sums(tiles, slots);
}

// The sum of what the threads found, as TensorIterator's two passes have it.
void TileRun::finish_sums(const Tiles& tiles, const std::vector<std::byte*>& slots) {
  for (uint32_t u = 0; u < tiles.count; ++u) {
    auto& sum = lanes_[0][u].sum;
    if (!sum) {
      continue;
    }
    std::visit(
        [&]<class T>(const Cascade<T>&) {
          T total = static_cast<T>(sum->total);
          if (tiles.lanes > 1) {
            auto found = at::zeros({at::get_num_threads()}, c10::CppTypeToScalarType<T>::value);
            for (int64_t lane = 0; lane < tiles.lanes; ++lane) {
              found.template mutable_data_ptr<T>()[lane] = static_cast<T>(lanes_[static_cast<size_t>(lane)][u].sum->total);
            }
            total = found.sum().template item<T>();
          }
          auto count = static_cast<T>(sum->each * tiles.rows);
          *reinterpret_cast<T*>(slots[sum->to.slot] + sum->to.begin) = sum->mean ? total / count : total;
        },
        sum->cascade);
  }
}

std::unique_ptr<TileRun::Sum> TileRun::make_sum(const TileStep& step, const RowForm& form, int64_t tile_rows) {
  auto sum = std::make_unique<Sum>();
  const Output& output = step.node->outputs[0];
  const Leaf& leaf = step.node->leaves[0];
  auto item = static_cast<int64_t>(output.dtype.itemsize());
  sum->each = form.rows / tile_rows;
  sum->mean = form.mean;
  sum->from = {nullptr, leaf.slot, leaf.value * item, sum->each * item};
  sum->to = {nullptr, output.slot, output.offset * item, 0};
  if (output.dtype.toScalarType() == c10::kDouble) {
    sum->cascade.emplace<Cascade<double>>();
  }
  return sum;
}

void TileRun::run_rows(const Tiles& tiles, const Plan& plan, size_t lane, int64_t begin, int64_t end,
                       const std::vector<std::byte*>& slots, std::byte* scratch, std::vector<Parameter>& parameters) {
  torch::jit::Stack stack;
  auto each_sum = [&](auto&& f) {
    for (auto& step : lanes_[lane]) {
      if (step.sum) {
        std::visit([&](auto& cascade) { f(*step.sum, cascade); }, step.sum->cascade);
      }
    }
  };
  each_sum([&](Sum& sum, auto& cascade) { cascade.begin((end - begin) * sum.each); });
  // Where row 0 would lie: what only a block's memory is used of starts anew for every block.
  std::vector<std::byte*> bases = slots;
  for (int64_t row = begin; row < end; row += tiles.block) {
    int64_t rows = std::min(tiles.block, end - row);
    for (const auto& part : tiles.inside) {
      bases[part.slot] = scratch + part.offset + (static_cast<int64_t>(lane) * tiles.block - row) * part.step;
    }
    for (uint32_t u = 0; u < tiles.count; ++u) {
      for (const auto& loop : plan.units[tiles.first + u].loops) {
        void* addresses[kMaxLoopOperands];
        for (size_t i = 0; i < loop.operands.size(); ++i) {
          const auto& operand = loop.operands[i];
          addresses[i] = operand.number ? parameters[operand.index].bytes.data() : bases[operand.index] + operand.begin;
        }
        int64_t within = loop.numel / tiles.rows;
        run_range(loop, addresses, row * within, (row + rows) * within);
      }
      auto& step = lanes_[lane][u];
      if (step.sum) {
        const auto* from = bases[step.sum->from.slot] + step.sum->from.begin + row * step.sum->from.step;
        std::visit([&]<class T>(Cascade<T>& cascade) { cascade.feed(reinterpret_cast<const T*>(from), rows * step.sum->each); },
                   step.sum->cascade);
      }
      if (step.calls.empty()) {
        continue;
      }
      auto& call = **std::find_if(step.calls.begin(), step.calls.end(), [&](const auto& c) { return c->rows == rows; });
      for (const auto& p : call.pointers) {
        p.storage->set_data_ptr_noswap(c10::DataPtr(bases[p.slot] + p.begin + row * p.step, c10::Device(c10::kCPU)));
      }
      if (call.quick && call.quick->run()) {
        continue;
      }
      TORCH_CHECK(step.has_out, "no kernel for some rows of it");
      stack.assign(call.arguments.begin(), call.arguments.end());
      step.callee->redispatchBoxed(kCpuKeys, &stack);
    }
  }
  each_sum([](Sum& sum, auto& cascade) { sum.total = static_cast<double>(cascade.end()); });
}

} // namespace ae
