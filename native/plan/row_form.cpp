#include "plan/row_form.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "runtime/cascade.h"

namespace ae {
namespace {

struct View {
  c10::IntArrayRef sizes, strides;
};

View view_of(const Node& node, size_t argument) {
  const Leaf& leaf = node.leaves[argument];
  const int64_t* words = node.words.data() + leaf.at;
  return {{words, leaf.dim}, {words + leaf.dim, leaf.dim}};
}

bool is_tensor(const Node& node, size_t argument) {
  const Leaf& leaf = node.leaves[argument];
  return leaf.kind == LeafKind::Tensor && (leaf.flags & (kConj | kNeg)) == 0;
}

bool absent(const Node& node, size_t argument) {
  const Leaf& leaf = node.leaves[argument];
  return leaf.kind == LeafKind::None || (leaf.kind == LeafKind::Attribute && node.attributes[argument].isNone());
}

// The view's first `lead` dimensions as one, if they are `rows` rows that lie apart.
std::optional<Rows> merged(const View& view, size_t lead, int64_t rows) {
  int64_t count = 1, step = 0, within = 1;
  for (size_t d = view.sizes.size(); d-- > 0;) {
    if (view.sizes[d] == 0) {
      return std::nullopt;
    }
    if (d >= lead) {
      within += (view.sizes[d] - 1) * view.strides[d];
    } else if (view.sizes[d] > 1) {
      if (count > 1 && view.strides[d] != step * count) {
        return std::nullopt;
      }
      step = count > 1 ? step : view.strides[d];
      count *= view.sizes[d];
    }
  }
  if (count != rows || (rows > 1 && step < within)) {
    return std::nullopt;
  }
  return Rows{static_cast<int>(lead), step};
}

class Maker {
 public:
  explicit Maker(const Node& node) : node_(node) {
    form_.arguments.resize(node.traits->args.size());
  }

  bool count(size_t argument, size_t lead) {
    if (!is_tensor(node_, argument) || lead == 0 || lead > node_.leaves[argument].dim) {
      return false;
    }
    form_.rows = c10::multiply_integers(view_of(node_, argument).sizes.slice(0, lead));
    return true;
  }
  bool argument(size_t i, size_t lead) {
    if (!is_tensor(node_, i) || lead > node_.leaves[i].dim) {
      return false;
    }
    auto rows = merged(view_of(node_, i), lead, form_.rows);
    form_.arguments[i] = rows.value_or(Rows{});
    return rows.has_value();
  }
  bool whole(size_t i) const { // the same for every row
    return is_tensor(node_, i) || absent(node_, i);
  }
  bool output(size_t i, size_t lead) {
    const Output& output = node_.outputs[i];
    auto rows =
        output.defined && lead <= output.sizes.size() ? merged({output.sizes, output.strides}, lead, form_.rows) : std::nullopt;
    form_.outputs.push_back(rows.value_or(Rows{}));
    return rows.has_value();
  }
  void sum(bool mean) {
    form_.sum = true;
    form_.mean = mean;
    form_.outputs.push_back({});
  }
  bool dense(size_t argument) const {
    return form_.arguments[argument].step == 1;
  }
  void replace(size_t i, c10::IValue instead) {
    form_.replaced = static_cast<int>(i);
    form_.instead = std::move(instead);
  }
  // `each`: elements of a row. As many as a row may have in whole vectors of any type.
  void tails(int64_t each) {
    form_.tails = each % 32 != 0;
  }
  void product(int64_t fewest, int64_t align) {
    form_.product = true;
    form_.fewest = fewest;
    form_.align = align;
  }
  std::optional<RowForm> done(bool good) {
    return good && form_.rows > 1 ? std::optional(std::move(form_)) : std::nullopt;
  }

 private:
  const Node& node_;
  RowForm form_;
};

// op(tensors..., dim, ...) along the last dimension.
template <size_t tensors>
std::optional<RowForm> along_last(const Node& node) {
  const Leaf& dim = node.leaves[tensors];
  int64_t rank = node.leaves[0].dim;
  if (dim.kind != LeafKind::Int || (dim.value != -1 && dim.value != rank - 1) || rank < 2) {
    return std::nullopt;
  }
  Maker maker(node);
  auto lead = static_cast<size_t>(rank - 1);
  bool good = maker.count(0, lead) && maker.output(0, lead);
  for (size_t i = 0; i < tensors; ++i) {
    good = good && maker.argument(i, lead);
  }
  maker.replace(tensors, int64_t(1));
  maker.tails(view_of(node, 0).sizes[lead]);
  return maker.done(good);
}

// The integers of a list that belongs to the key.
std::optional<c10::SmallVector<int64_t, 4>> ints(const Node& node, size_t argument) {
  c10::SmallVector<int64_t, 4> found;
  if (node.leaves[argument].kind != LeafKind::Attribute || !node.attributes[argument].isIntList()) {
    return std::nullopt;
  }
  for (int64_t i : node.attributes[argument].toIntVector()) {
    found.push_back(i);
  }
  return found;
}

// native_layer_norm(input, normalized_shape, weight, bias, eps)
std::optional<RowForm> layer_norm(const Node& node) {
  auto shape = ints(node, 1);
  if (!shape || shape->size() >= node.leaves[0].dim || node.outputs.size() != 3) {
    return std::nullopt;
  }
  Maker maker(node);
  size_t lead = node.leaves[0].dim - shape->size();
  maker.tails(c10::multiply_integers(*shape));
  return maker.done(maker.count(0, lead) && maker.argument(0, lead) && maker.whole(2) && maker.whole(3) && maker.output(0, lead) &&
                    maker.output(1, lead) && maker.output(2, lead));
}

// sum or mean of all elements, of the type that they are added up in.
std::optional<RowForm> sum_of_all(const Node& node, bool mean) {
  auto type = node.outputs[0].dtype.toScalarType();
  bool fits = type == c10::kFloat ? Cascade<float>::available() : type == c10::kDouble && Cascade<double>::available();
  if (!fits || !is_tensor(node, 0) || static_cast<c10::ScalarType>(node.leaves[0].dtype) != type) {
    return std::nullopt;
  }
  Maker maker(node);
  size_t rank = node.leaves[0].dim;
  maker.sum(mean);
  return maker.done(maker.count(0, rank) && maker.argument(0, rank) && maker.dense(0));
}

// op(self, dims, keepdim, ...) over the last dimensions, or over all.
template <bool sum, bool mean>
std::optional<RowForm> reduction(const Node& node) {
  bool all = absent(node, 1);
  auto dims = ints(node, 1);
  auto rank = static_cast<int64_t>(node.leaves[0].dim);
  if (all || (dims && (dims->empty() || static_cast<int64_t>(dims->size()) == rank))) {
    return sum ? sum_of_all(node, mean) : std::nullopt;
  }
  if (!dims || static_cast<int64_t>(dims->size()) > rank) {
    return std::nullopt;
  }
  for (int64_t& dim : *dims) {
    dim += dim < 0 ? rank : 0;
  }
  std::sort(dims->begin(), dims->end());
  auto lead = static_cast<size_t>(rank) - dims->size();
  std::vector<int64_t> inner(dims->size());
  for (size_t i = 0; i < inner.size(); ++i) {
    inner[i] = static_cast<int64_t>(i + 1);
    if ((*dims)[i] != static_cast<int64_t>(lead + i)) {
      return std::nullopt;
    }
  }
  Maker maker(node);
  bool good = maker.count(0, lead) && maker.argument(0, lead) && maker.output(0, lead);
  maker.replace(1, std::move(inner));
  return maker.done(good);
}

constexpr int64_t kFewestProductRows = 128; // a product packs the other matrix anew for every block
// A multiple of the rows that MKL's kernels take at a time: which of them a row is may decide the order of its additions.
constexpr int64_t kProductRows = 192;
constexpr int64_t kFewestProductColumns = 16; // fewer go to routines for vectors, and show too few numbers

// mm(self, mat2), and addmm(self, mat1, mat2, beta, alpha) with `first` = 1: rows of the left matrix.
template <size_t first>
std::optional<RowForm> product(const Node& node) {
  if (!is_tensor(node, first) || !is_tensor(node, first + 1) || node.leaves[first].dim != 2) {
    return std::nullopt;
  }
  Maker maker(node);
  bool good = maker.count(first, 1) && maker.argument(first, 1) && maker.output(0, 1);
  if constexpr (first == 1) {
    bool matrix = is_tensor(node, 0) && node.leaves[0].dim == 2 && view_of(node, 0).sizes[0] > 1;
    good = good && (matrix ? maker.argument(0, 1) : maker.whole(0));
  }
  maker.product(kFewestProductRows, kProductRows);
  return maker.done(good && view_of(node, first + 1).sizes[1] >= kFewestProductColumns);
}

// bmm(self, mat2): whole matrices.
std::optional<RowForm> batch(const Node& node) {
  Maker maker(node);
  bool good = maker.count(0, 1) && maker.argument(0, 1) && maker.argument(1, 1) && maker.output(0, 1);
  maker.product(1, 1);
  return maker.done(good);
}

const std::unordered_map<std::string_view, std::optional<RowForm> (*)(const Node&)>& makers() {
  static const std::unordered_map<std::string_view, std::optional<RowForm> (*)(const Node&)> map{
      {"aten::_softmax", along_last<1>},
      {"aten::_log_softmax", along_last<1>},
      {"aten::_softmax_backward_data", along_last<2>},
      {"aten::_log_softmax_backward_data", along_last<2>},
      {"aten::native_layer_norm", layer_norm},
      {"aten::sum.dim_IntList", reduction<true, false>},
      {"aten::mean.dim", reduction<true, true>},
      {"aten::amax", reduction<false, false>},
      {"aten::amin", reduction<false, false>},
      {"aten::mm", product<0>},
      {"aten::addmm", product<1>},
      {"aten::bmm", batch},
  };
  return map;
}

} // namespace

std::optional<RowForm> row_form(const Node& node) {
  auto found = makers().find(node.traits->name);
  if (found == makers().end()) {
    return std::nullopt;
  }
  auto form = found->second(node);
  if (form && !node.traits->out && node.traits->name != "aten::native_layer_norm") {
    return std::nullopt;
  }
  return form;
}

} // namespace ae
