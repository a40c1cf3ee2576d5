// Recurrent layers and cells. PyTorch composes them differently by device; these take the steps that it takes on CPU, from
// the same ops in the same order, forward and hence backward: the input's projection for all time steps at once, and
// oneDNN's LSTM where CPU uses it. rnn_tanh_cell and rnn_relu_cell are not here: PyTorch's own do not ask for the device.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/RNN.h>

#include "ops/register.h"

namespace ae {
namespace {

using at::Tensor;
using at::TensorList;
template <class T>
using Opt = std::optional<T>;

// One direction of one layer. Biases and the projection of the hidden state are undefined where there are none.
struct Params {
  Tensor w_ih, w_hh, b_ih, b_hh, w_hr;

  Tensor project_input(const Tensor& input) const {
    return at::linear(input, w_ih, b_ih);
  }
  Tensor project_hidden(const Tensor& h) const {
    return at::linear(h, w_hh, b_hh);
  }
};

// What one time step hands to the next; `c` is LSTM's alone. Where something is done to both, `c` comes first, as on CPU:
// the order of calls is the order in which gradients add up.
struct State {
  Tensor h, c;

  State rows(int64_t start, int64_t end) const {
    auto cut = [&](const Tensor& t) { return t.narrow(0, start, end - start); };
    Tensor some_c = c.defined() ? cut(c) : Tensor();
    return {cut(h), some_c};
  }
};

State join(const std::vector<State>& states, Tensor (*how)(TensorList, int64_t)) {
  std::vector<Tensor> h, c;
  for (const auto& state : states) {
    h.push_back(state.h);
    c.push_back(state.c);
  }
  Tensor joined_c = !c.empty() && c[0].defined() ? how(c, 0) : Tensor();
  return {how(h, 0), joined_c};
}

Tensor concatenated(TensorList parts, int64_t dim) {
  return at::cat(parts, dim);
}

// ---- Cells: one time step. With `projected`, the input went through project_input() already.
using Cell = State (*)(const Tensor& input, const State& state, const Params& params, bool projected);

// Turns the sum of both projections into the gates, in place, and applies them.
State apply_lstm_gates(const Tensor& gates, const Tensor& cx) {
  auto part = gates.unsafe_chunk(4, 1);
  auto in = part[0].sigmoid_();
  auto forget = part[1].sigmoid_();
  auto candidate = part[2].tanh_();
  auto out = part[3].sigmoid_();
  auto cy = (forget * cx).add_(in * candidate);
  auto hy = out * cy.tanh();
  return {hy, cy};
}

State lstm_step(const Tensor& input, const State& state, const Params& params, bool projected) {
  auto gates = params.project_hidden(state.h);
  gates.add_(projected ? input : params.project_input(input));
  auto next = apply_lstm_gates(gates, state.c);
  if (params.w_hr.defined()) {
    next.h = at::matmul(next.h, params.w_hr.t());
  }
  return next;
}

State gru_step(const Tensor& input, const State& state, const Params& params, bool projected) {
  auto from_input = (projected ? input : params.project_input(input)).unsafe_chunk(3, 1);
  auto from_hidden = params.project_hidden(state.h).unsafe_chunk(3, 1);
  auto reset = from_hidden[0].add_(from_input[0]).sigmoid_();
  auto update = from_hidden[1].add_(from_input[1]).sigmoid_();
  auto candidate = from_input[2].add(from_hidden[2].mul_(reset)).tanh_();
  return {(state.h - candidate).mul_(update).add_(candidate), Tensor()};
}

template <Tensor (*activation)(const Tensor&)>
State simple_step(const Tensor& input, const State& state, const Params& params, bool projected) {
  auto sum = params.project_hidden(state.h);
  sum.add_(projected ? input : params.project_input(input));
  return {activation(sum), Tensor()};
}

// ---- Layers: all time steps in one direction.
struct Run {
  Tensor output;
  State last;
};

Run run_padded(Cell cell, const Tensor& input, const State& first, const Params& params, bool backwards) {
  auto steps = params.project_input(input).unbind(0);
  if (backwards) {
    std::reverse(steps.begin(), steps.end());
  }
  auto state = first;
  std::vector<Tensor> outputs;
  for (const auto& step : steps) {
    state = cell(step, state, params, true);
    outputs.push_back(state.h);
  }
  TORCH_CHECK(!outputs.empty(), "Expected sequence length to be larger than 0 in RNN");
  if (backwards) {
    std::reverse(outputs.begin(), outputs.end());
  }
  return {at::stack(outputs, 0), state};
}

// Packed sequences are sorted by falling length and lie step after step: step i has the rows of the batch_sizes[i] longest.
Run run_packed(Cell cell, const Tensor& data, at::IntArrayRef batch_sizes, const State& first, const Params& params) {
  auto projected = params.project_input(data);
  auto state = first;
  std::vector<Tensor> outputs;
  std::vector<State> ended; // shortest sequences first
  int64_t offset = 0, rows = batch_sizes[0];
  for (auto batch : batch_sizes) {
    auto step = projected.narrow(0, offset, batch);
    offset += batch;
    if (batch < rows) {
      ended.push_back(state.rows(batch, rows));
      state = state.rows(0, batch);
    }
    rows = batch;
    state = cell(step, state, params, true);
    outputs.push_back(state.h);
  }
  ended.push_back(state);
  std::reverse(ended.begin(), ended.end());
  return {at::cat(outputs, 0), join(ended, concatenated)};
}

Run run_packed_backwards(Cell cell, const Tensor& data, at::IntArrayRef batch_sizes, const State& first, const Params& params) {
  auto projected = params.project_input(data);
  int64_t offset = data.size(0), rows = batch_sizes.back();
  auto state = first.rows(0, rows);
  std::vector<Tensor> outputs;
  for (auto batch = batch_sizes.rbegin(); batch != batch_sizes.rend(); ++batch) {
    if (*batch > rows) {
      state = join({state, first.rows(rows, *batch)}, concatenated);
    }
    offset -= *batch;
    rows = *batch;
    state = cell(projected.narrow(0, offset, rows), state, params, true);
    outputs.push_back(state.h);
  }
  std::reverse(outputs.begin(), outputs.end());
  return {at::cat(outputs, 0), state};
}

// ---- Stacks of layers, all directions. `batch_sizes` is there for packed input.
struct Stack {
  Cell cell;
  std::vector<Params> params;
  int64_t layers;
  double dropout;
  bool train, bidirectional;
};

std::vector<Params> split_params(TensorList flat, bool biases, bool projections) {
  const size_t each = 2 + (biases ? 2 : 0) + (projections ? 1 : 0);
  TORCH_CHECK(flat.size() % each == 0, "got an incorrect number of RNN parameters");
  std::vector<Params> result;
  for (size_t i = 0; i < flat.size(); i += each) {
    result.push_back({flat[i], flat[i + 1], biases ? flat[i + 2] : Tensor(), biases ? flat[i + 3] : Tensor(),
                      projections ? flat[i + each - 1] : Tensor()});
  }
  return result;
}

Run run_stack(const Stack& stack, Tensor input, Opt<at::IntArrayRef> batch_sizes, const std::vector<State>& first) {
  const size_t directions = stack.bidirectional ? 2 : 1;
  TORCH_CHECK(first.size() % directions == 0 && stack.params.size() % directions == 0,
              "Odd number of params or hiddens given to a bidirectional RNN");
  TORCH_CHECK(stack.layers == static_cast<int64_t>(first.size() / directions), "Expected more hidden states in stacked_rnn");
  TORCH_CHECK(stack.layers == static_cast<int64_t>(stack.params.size() / directions), "Expected more weights in stacked_rnn");
  auto run = [&](size_t index, bool backwards) {
    const auto& state = first[index];
    const auto& params = stack.params[index];
    if (!batch_sizes) {
      return run_padded(stack.cell, input, state, params, backwards);
    }
    return (backwards ? run_packed_backwards : run_packed)(stack.cell, input, *batch_sizes, state, params);
  };
  std::vector<State> last;
  for (int64_t layer = 0; layer < stack.layers; ++layer) {
    auto [output, state] = run(layer * directions, false);
    last.push_back(state);
    if (stack.bidirectional) {
      auto back = run(layer * directions + 1, true);
      last.push_back(back.last);
      output = at::cat({output, back.output}, output.dim() - 1);
    }
    input = output;
    if (stack.dropout != 0 && stack.train && layer < stack.layers - 1) {
      input = at::dropout(input, stack.dropout, true);
    }
  }
  return {input, join(last, at::stack)};
}

Tensor host_sizes(const Tensor& batch_sizes) {
  TORCH_CHECK(batch_sizes.numel() > 0, "Expected sequence length to be larger than 0 in RNN");
  return batch_sizes.cpu().contiguous();
}

at::IntArrayRef int_list(const Tensor& host_sizes) {
  return {host_sizes.const_data_ptr<int64_t>(), static_cast<size_t>(host_sizes.numel())};
}

// ---- GRU and the plain RNNs
std::vector<State> first_states(const Tensor& h) {
  std::vector<State> states;
  for (auto& t : h.unbind(0)) {
    states.push_back({t, Tensor()});
  }
  return states;
}

template <Cell cell>
std::tuple<Tensor, Tensor> rnn_padded(const Tensor& input, const Tensor& hx, TensorList params, bool biases, int64_t layers,
                                      double dropout, bool train, bool bidirectional, bool batch_first) {
  at::native::check_attributes(input, params, hx);
  auto [output, last] = run_stack({cell, split_params(params, biases, false), layers, dropout, train, bidirectional},
                                  batch_first ? input.transpose(0, 1) : input, std::nullopt, first_states(hx));
  if (batch_first) {
    output.transpose_(0, 1);
  }
  return {output, last.h};
}

template <Cell cell>
std::tuple<Tensor, Tensor> rnn_packed(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx, TensorList params,
                                      bool biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  const auto sizes = host_sizes(batch_sizes);
  auto [output, last] = run_stack({cell, split_params(params, biases, false), layers, dropout, train, bidirectional}, data,
                                  int_list(sizes), first_states(hx));
  return {output, last.h};
}

// ---- LSTM
// Whether this processor runs oneDNN's LSTM in a dtype narrower than float32. Asked once, when the library loads: the
// question is an op too, which tracing would see.
bool onednn_supports(at::ScalarType dtype) {
  auto ask = [](const char* op) {
    auto handle = c10::Dispatcher::singleton().findSchema({op, ""});
    return handle && handle->typed<bool()>().call();
  };
  static const bool bfloat16 = ask("mkldnn::_is_mkldnn_bf16_supported"), half = ask("mkldnn::_is_mkldnn_fp16_supported");
  return dtype == at::kBFloat16 ? bfloat16 : dtype == at::kHalf && half;
}

bool cpu_takes_onednn(const Tensor& input, TensorList params, TensorList hx) {
  if (!at::hasMKLDNN() || !at::globalContext().userEnabledMkldnn()) {
    return false;
  }
  auto dense = [](const Tensor& t) { return t.options().backend() == at::Backend::PrivateUse1; };
  if (!dense(input) || !std::all_of(params.begin(), params.end(), dense) || !std::all_of(hx.begin(), hx.end(), dense)) {
    return false;
  }
  const auto dtype = input.scalar_type();
  const bool takes_dtype = dtype == at::kFloat || (dtype == at::kBFloat16 && onednn_supports(dtype)) ||
                           (dtype == at::kHalf && !at::GradMode::is_enabled() && onednn_supports(dtype)); // no training in float16
  return takes_dtype && input.sym_numel() != 0;
}

// The hidden state is narrower than the cell state only where it is projected.
bool has_projections(TensorList hx) {
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  return hx[0].sym_size(2) != hx[1].sym_size(2);
}

std::vector<State> first_states(TensorList hx) {
  auto h = hx[0].unbind(0), c = hx[1].unbind(0);
  TORCH_CHECK(h.size() == c.size(), "lstm: ", h.size(), " hidden states but ", c.size(), " cell states");
  std::vector<State> states;
  for (size_t i = 0; i < h.size(); ++i) {
    states.push_back({h[i], c[i]});
  }
  return states;
}

// CPU's own loop over layers and directions; all that it does goes through the dispatcher. (DEFAULT because libtorch
// exports the stub's function pointers and not the code behind its call operator.)
std::tuple<Tensor, Tensor, Tensor> lstm_onednn(const Tensor& input, TensorList hx, TensorList params, bool biases, int64_t layers,
                                               double dropout, bool train, bool bidirectional, bool batch_first) {
  Tensor output, hy, cy;
  at::native::lstm_mkldnn_stub_DECLARE_DISPATCH_type::DEFAULT(output, hy, cy, input, hx, params, biases, layers, dropout, train,
                                                              bidirectional, batch_first);
  return {output, hy, cy};
}

std::tuple<Tensor, Tensor, Tensor> lstm_padded(const Tensor& input, TensorList hx, TensorList params, bool biases, int64_t layers,
                                               double dropout, bool train, bool bidirectional, bool batch_first) {
  const bool projections = has_projections(hx);
  if (cpu_takes_onednn(input, params, hx)) {
    if (projections) {
      TORCH_WARN_ONCE("LSTM with projections is not supported with oneDNN. Using default implementation.");
    } else if (hx[0].unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
      TORCH_WARN_ONCE("LSTM with symbolic sizes and strides is not supported with oneDNN. Using default implementation.");
    } else {
      return lstm_onednn(input, hx, params, biases, layers, dropout, train, bidirectional, batch_first);
    }
  }
  at::native::check_attributes(input, params, hx);
  auto [output, last] = run_stack({lstm_step, split_params(params, biases, projections), layers, dropout, train, bidirectional},
                                  batch_first ? input.transpose(0, 1) : input, std::nullopt, first_states(hx));
  return {batch_first ? output.transpose(0, 1) : output, last.h, last.c};
}

std::tuple<Tensor, Tensor, Tensor> lstm_packed(const Tensor& data, const Tensor& batch_sizes, TensorList hx, TensorList params,
                                               bool biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  const bool projections = has_projections(hx);
  const auto sizes = host_sizes(batch_sizes);
  const auto steps = int_list(sizes);
  // Sequences of one length are a padded input without padding.
  const bool even = std::all_of(steps.begin(), steps.end(), [&](int64_t rows) { return rows == steps[0]; });
  if (even && !projections && cpu_takes_onednn(data, params, hx)) {
    auto input = data.view({static_cast<int64_t>(steps.size()), steps[0], data.size(1)});
    auto [output, hy, cy] = lstm_onednn(input, hx, params, biases, layers, dropout, train, bidirectional, false);
    return {output.view({data.size(0), output.size(2)}), hy, cy};
  }
  auto [output, last] = run_stack({lstm_step, split_params(params, biases, projections), layers, dropout, train, bidirectional},
                                  data, steps, first_states(hx));
  return {output, last.h, last.c};
}

// ---- Cells that are called directly
void check_input(const Tensor& input, const c10::SymInt& size) {
  TORCH_CHECK(input.sym_size(1) == size, "input has inconsistent input_size: got ", input.sym_size(1), " expected ", size);
}

void check_hidden(const Tensor& input, const Tensor& hx, const c10::SymInt& size, int which) {
  TORCH_CHECK(input.sym_size(0) == hx.sym_size(0), "Input batch size ", input.sym_size(0), " doesn't match hidden", which,
              " batch size ", hx.sym_size(0));
  TORCH_CHECK(hx.sym_size(1) == size, "hidden", which, " has inconsistent hidden_size: got ", hx.sym_size(1), ", expected ", size);
}

void check_weights(const Tensor& w_ih, const Tensor& w_hh, int64_t gates, const c10::SymInt& size) {
  for (auto [name, weight] : {std::pair("weight_ih", &w_ih), std::pair("weight_hh", &w_hh)}) {
    TORCH_CHECK(weight->sym_size(0) == size * gates, name, " first dim must be ", gates, " * hidden_size = ", size * gates,
                ", but got ", weight->sym_size(0));
  }
}

std::tuple<Tensor, Tensor> lstm_cell(const Tensor& input, TensorList hx, const Tensor& w_ih, const Tensor& w_hh,
                                     const Opt<Tensor>& b_ih, const Opt<Tensor>& b_hh) {
  TORCH_CHECK(hx.size() == 2, "lstm_cell expects two hidden states");
  const auto size = w_hh.sym_size(1);
  check_input(input, w_ih.sym_size(1));
  check_weights(w_ih, w_hh, 4, size);
  check_hidden(input, hx[0], size, 0);
  check_hidden(input, hx[1], size, 1);
  auto next = lstm_step(input, {hx[0], hx[1]}, {w_ih, w_hh, b_ih.value_or(Tensor()), b_hh.value_or(Tensor()), Tensor()}, false);
  return {next.h, next.c};
}

Tensor gru_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Opt<Tensor>& b_ih,
                const Opt<Tensor>& b_hh) {
  const auto size = w_hh.sym_size(1);
  check_input(input, w_ih.sym_size(1));
  check_hidden(input, hx, size, 0);
  check_weights(w_ih, w_hh, 3, size);
  return gru_step(input, {hx, Tensor()}, {w_ih, w_hh, b_ih.value_or(Tensor()), b_hh.value_or(Tensor()), Tensor()}, false).h;
}

// ---- The fused cells of other devices, for those who call them by name; nothing above does. The workspaces hold what
// backward needs, laid out as on CUDA.
Tensor add_bias(const Tensor& gates, const Opt<Tensor>& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

Tensor bias_grad(const Tensor& gates, bool has_bias) {
  return has_bias ? gates.sum(0) : Tensor();
}

std::tuple<Tensor, Tensor, Tensor> fused_lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                                   const Opt<Tensor>& input_bias, const Opt<Tensor>& hidden_bias) {
  auto gates = add_bias(input_gates, input_bias) + add_bias(hidden_gates, hidden_bias);
  auto next = apply_lstm_gates(gates, cx);
  return {next.h, next.c, gates};
}

std::tuple<Tensor, Tensor, Tensor> fused_lstm_cell_backward(const Opt<Tensor>& grad_hy, const Opt<Tensor>& grad_cy,
                                                            const Tensor& cx, const Tensor& cy, const Tensor& workspace,
                                                            bool has_bias) {
  const bool from_h = grad_hy && grad_hy->defined(), from_c = grad_cy && grad_cy->defined();
  if (!from_h && !from_c) {
    return {};
  }
  auto part = workspace.unsafe_chunk(4, 1);
  const auto &in = part[0], &forget = part[1], &candidate = part[2], &out = part[3];
  Tensor grad_out = at::zeros_like(cx), grad_c;
  if (from_h) {
    auto squashed = cy.tanh();
    grad_out = at::sigmoid_backward(*grad_hy * squashed, out);
    grad_c = at::tanh_backward(*grad_hy * out, squashed);
  }
  if (from_c) {
    grad_c = grad_c.defined() ? grad_c + *grad_cy : *grad_cy;
  }
  auto grad_gates = at::cat({at::sigmoid_backward(grad_c * candidate, in), at::sigmoid_backward(grad_c * cx, forget),
                             at::tanh_backward(grad_c * in, candidate), grad_out},
                            1);
  return {grad_gates, grad_c * forget, bias_grad(grad_gates, has_bias)};
}

std::tuple<Tensor, Tensor> fused_gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                          const Opt<Tensor>& input_bias, const Opt<Tensor>& hidden_bias) {
  auto from_input = add_bias(input_gates, input_bias).unsafe_chunk(3, 1);
  auto from_hidden = add_bias(hidden_gates, hidden_bias).unsafe_chunk(3, 1);
  auto reset = (from_hidden[0] + from_input[0]).sigmoid_();
  auto update = (from_hidden[1] + from_input[1]).sigmoid_();
  auto candidate = (from_input[2] + from_hidden[2] * reset).tanh_();
  auto hy = (hx - candidate).mul_(update).add_(candidate);
  return {hy, at::cat({reset, update, candidate, hx, from_hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> fused_gru_cell_backward(const Tensor& grad_hy, const Tensor& workspace,
                                                                           bool has_bias) {
  auto part = workspace.unsafe_chunk(5, 1);
  const auto &reset = part[0], &update = part[1], &candidate = part[2], &hx = part[3], &hidden = part[4];
  auto grad_update = at::sigmoid_backward(grad_hy * (hx - candidate), update);
  auto grad_candidate = at::tanh_backward(grad_hy * (1 - update), candidate);
  auto grad_reset = at::sigmoid_backward(grad_candidate * hidden, reset);
  auto grad_input = at::cat({grad_reset, grad_update, grad_candidate}, 1);
  auto grad_hidden = at::cat({grad_reset, grad_update, grad_candidate * reset}, 1);
  return {grad_input, grad_hidden, grad_hy * update, bias_grad(grad_input, has_bias), bias_grad(grad_hidden, has_bias)};
}

} // namespace

void register_rnn(torch::Library& m, torch::Library& autograd) {
  onednn_supports(at::kBFloat16);
  for (auto* library : {&m, &autograd}) {
    library->impl("lstm.input", TORCH_FN(lstm_padded));
    library->impl("lstm.data", TORCH_FN(lstm_packed));
    library->impl("gru.input", TORCH_FN(rnn_padded<gru_step>));
    library->impl("gru.data", TORCH_FN(rnn_packed<gru_step>));
    library->impl("rnn_tanh.input", TORCH_FN(rnn_padded<simple_step<at::tanh>>));
    library->impl("rnn_tanh.data", TORCH_FN(rnn_packed<simple_step<at::tanh>>));
    library->impl("rnn_relu.input", TORCH_FN(rnn_padded<simple_step<at::relu>>));
    library->impl("rnn_relu.data", TORCH_FN(rnn_packed<simple_step<at::relu>>));
    library->impl("lstm_cell", TORCH_FN(lstm_cell));
    library->impl("gru_cell", TORCH_FN(gru_cell));
  }
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(fused_lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(fused_lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(fused_gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(fused_gru_cell_backward));
}

} // namespace ae
