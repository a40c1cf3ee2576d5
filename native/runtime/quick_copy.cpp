// Quick steps that move data: roll, cat, index_select.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "runtime/quick_parts.h"

namespace ae {

StridedCopy::StridedCopy(c10::IntArrayRef sizes, c10::IntArrayRef from_strides, c10::IntArrayRef to_strides, int64_t item) {
  chunk_ = static_cast<size_t>(item);
  c10::SmallVector<Dim, 4> dims;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1) {
      dims.push_back({sizes[d], from_strides[d] * item, to_strides[d] * item});
    }
  }
  std::stable_sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.to > b.to; });
  for (const Dim& dim : dims) {
    if (!dims_.empty() && dims_.back().from == dim.from * dim.size && dims_.back().to == dim.to * dim.size) {
      dims_.back() = {dims_.back().size * dim.size, dim.from, dim.to};
    } else {
      dims_.push_back(dim);
    }
  }
  if (!dims_.empty() && dims_.back().from == item && dims_.back().to == item) {
    chunk_ *= static_cast<size_t>(dims_.back().size);
    dims_.pop_back();
  }
}

void StridedCopy::one(const std::byte* from, std::byte* to) const {
  std::memcpy(to, from, chunk_);
}

void StridedCopy::along(const Dim* dim, size_t count, const std::byte* from, std::byte* to) const {
  if (count > 1) {
    for (int64_t i = 0; i < dim->size; ++i) {
      along(dim + 1, count - 1, from + i * dim->from, to + i * dim->to);
    }
    return;
  }
  auto items = [&](size_t bytes) {
    for (int64_t i = 0; i < dim->size; ++i) {
      std::memcpy(to + i * dim->to, from + i * dim->from, bytes);
    }
  };
  switch (chunk_) { // sizes that the compiler knows
    case 4:
      return items(4);
    case 8:
      return items(8);
    default:
      return items(chunk_);
  }
}

namespace {

// Pieces of one or several inputs that make up the result.
struct Pieces final : Quick {
  struct Piece {
    Place from, to;
    StridedCopy copy;
  };
  std::vector<Piece> pieces;

  bool run() override {
    for (const auto& piece : pieces) {
      piece.copy.run(piece.from.data(), piece.to.data());
    }
    return true;
  }

  // `sizes` elements of `from` from `from_start` on to those of `to` from `to_start` on, given strides in elements.
  void add(const at::Tensor& from, c10::IntArrayRef from_strides, c10::IntArrayRef from_start, const at::Tensor& to,
           c10::IntArrayRef to_strides, c10::IntArrayRef to_start, c10::IntArrayRef sizes) {
    if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) {
      return;
    }
    auto item = static_cast<int64_t>(to.element_size());
    Piece piece{Place(from), Place(to), StridedCopy(sizes, from_strides, to_strides, item)};
    piece.from.offset += item * std::inner_product(from_start.begin(), from_start.end(), from_strides.begin(), int64_t(0));
    piece.to.offset += item * std::inner_product(to_start.begin(), to_start.end(), to_strides.begin(), int64_t(0));
    pieces.push_back(std::move(piece));
  }
};

using Ints = c10::SmallVector<int64_t, 5>;

} // namespace

// roll(self, shifts, dims)
std::unique_ptr<Quick> quick_roll(const QuickCall& call) {
  Ints shifts, dims;
  if (!plain(call.arguments[0]) || !read_ints(call.arguments[1], shifts) || !read_ints(call.arguments[2], dims)) {
    return nullptr;
  }
  const at::Tensor& self = call.tensor(0);
  const at::Tensor& out = call.result();
  if (self.scalar_type() != out.scalar_type() || self.sizes() != out.sizes() || !apart(self, out) ||
      self.numel() >= quick_limit()) {
    return nullptr;
  }
  Ints sizes(self.sizes().begin(), self.sizes().end());
  Ints from(self.strides().begin(), self.strides().end());
  Ints to(out.strides().begin(), out.strides().end());
  if (dims.empty()) { // of the flat tensor
    if (shifts.size() != 1 || !self.is_contiguous() || !out.is_contiguous()) {
      return nullptr;
    }
    sizes.assign({self.numel()});
    from.assign({1});
    to.assign({1});
    dims.assign({0});
  }
  if (dims.size() != shifts.size() || sizes.empty() || sizes.size() > 5) {
    return nullptr;
  }
  Ints shift(sizes.size(), 0);
  for (size_t i = 0; i < dims.size(); ++i) {
    int64_t d = dims[i] < 0 ? dims[i] + static_cast<int64_t>(sizes.size()) : dims[i];
    if (d < 0 || d >= static_cast<int64_t>(sizes.size())) {
      return nullptr;
    }
    if (sizes[d] > 0) {
      shift[d] = ((shift[d] + shifts[i] % sizes[d]) % sizes[d] + sizes[d]) % sizes[d];
    }
  }
  auto quick = std::make_unique<Pieces>();
  for (unsigned wrapped = 0; wrapped < 1u << sizes.size(); ++wrapped) { // a bit a dimension: the part that comes back in front
    Ints from_start, to_start, part;
    for (size_t d = 0; d < sizes.size(); ++d) {
      bool front = wrapped >> d & 1;
      from_start.push_back(front ? sizes[d] - shift[d] : 0);
      to_start.push_back(front ? 0 : shift[d]);
      part.push_back(front ? shift[d] : sizes[d] - shift[d]);
    }
    quick->add(self, from, from_start, out, to, to_start, part);
  }
  return quick;
}

// cat(tensors, dim)
std::unique_ptr<Quick> quick_cat(const QuickCall& call) {
  if (!call.arguments[0].isList() || !call.arguments[1].isInt()) {
    return nullptr;
  }
  const at::Tensor& out = call.result();
  int64_t rank = out.dim();
  int64_t dim = call.arguments[1].toInt();
  dim += dim < 0 ? rank : 0;
  if (rank == 0 || dim < 0 || dim >= rank || out.numel() >= quick_limit()) {
    return nullptr;
  }
  auto quick = std::make_unique<Pieces>();
  Ints to_start(static_cast<size_t>(rank), 0);
  const Ints zeros(static_cast<size_t>(rank), 0);
  for (const c10::IValue& element : call.arguments[0].toListRef()) {
    if (!plain(element)) {
      return nullptr;
    }
    const at::Tensor& from = element.toTensor();
    if (from.scalar_type() != out.scalar_type() || !apart(from, out)) {
      return nullptr;
    }
    if (from.dim() == 1 && from.numel() == 0) {
      continue; // empty vectors go with every shape
    }
    for (int64_t d = 0; d < rank; ++d) {
      if (from.dim() != rank || (d != dim && from.sizes()[d] != out.sizes()[d])) {
        return nullptr;
      }
    }
    quick->add(from, from.strides(), zeros, out, out.strides(), to_start, from.sizes());
    to_start[static_cast<size_t>(dim)] += from.sizes()[dim];
  }
  if (to_start[static_cast<size_t>(dim)] != out.sizes()[dim]) {
    return nullptr;
  }
  return quick;
}

namespace {

template <class Index>
struct Rows final : Quick {
  Place from, to, index;
  StridedCopy row;
  int64_t rows = 0, count = 0;                  // to choose from, to write
  int64_t from_step = 0, to_step = 0, step = 0; // bytes, of the index: elements

  bool run() override {
    const auto* indices = reinterpret_cast<const Index*>(index.data());
    for (int64_t i = 0; i < count; ++i) {
      if (indices[i * step] < 0 || indices[i * step] >= rows) {
        return false; // the kernel says what is wrong
      }
    }
    const std::byte* source = from.data();
    std::byte* target = to.data();
    for (int64_t i = 0; i < count; ++i) {
      row.run(source + indices[i * step] * from_step, target + i * to_step);
    }
    return true;
  }
};

template <class Index>
std::unique_ptr<Quick> select_rows(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& out) {
  auto quick = std::make_unique<Rows<Index>>();
  quick->from = Place(self);
  quick->to = Place(out);
  quick->index = Place(index);
  auto item = static_cast<int64_t>(self.element_size());
  Ints sizes, from, to;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d != dim) {
      sizes.push_back(self.sizes()[d]);
      from.push_back(self.strides()[d]);
      to.push_back(out.strides()[d]);
    }
  }
  quick->row = StridedCopy(sizes, from, to, item);
  quick->rows = self.sizes()[dim];
  quick->count = index.numel();
  quick->from_step = self.strides()[dim] * item;
  quick->to_step = out.strides()[dim] * item;
  quick->step = index.dim() == 1 ? index.strides()[0] : 0;
  return quick;
}

} // namespace

// index_select(self, dim, index)
std::unique_ptr<Quick> quick_index_select(const QuickCall& call) {
  if (!plain(call.arguments[0]) || !call.arguments[1].isInt() || !plain(call.arguments[2])) {
    return nullptr;
  }
  const at::Tensor& self = call.tensor(0);
  const at::Tensor& index = call.tensor(2);
  const at::Tensor& out = call.result();
  int64_t dim = call.arguments[1].toInt();
  dim += dim < 0 ? self.dim() : 0;
  if (dim < 0 || dim >= self.dim() || out.dim() != self.dim() || index.dim() > 1 || out.numel() == 0 ||
      out.numel() >= quick_limit() || self.scalar_type() != out.scalar_type() || !apart(self, out) || !apart(index, out)) {
    return nullptr;
  }
  for (int64_t d = 0; d < out.dim(); ++d) {
    if (out.sizes()[d] != (d == dim ? index.numel() : self.sizes()[d])) {
      return nullptr;
    }
  }
  return index.scalar_type() == c10::kLong  ? select_rows<int64_t>(self, dim, index, out)
         : index.scalar_type() == c10::kInt ? select_rows<int32_t>(self, dim, index, out)
                                            : nullptr;
}

} // namespace ae
