// Which bytes of a storage an op touches, and in which order: the basis of every statement about dependence.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>

namespace ae {

struct Dim {
  int64_t size;
  int64_t stride; // bytes
  bool operator==(const Dim&) const = default;
};

// A view as a map from the flat index of the op's iteration space (row-major) to bytes of a slot's storage. Dimensions
// are merged as far as possible, so equal maps have equal descriptions.
struct Access {
  uint32_t slot = 0;
  c10::ScalarType type = c10::ScalarType::Undefined;
  int64_t item = 0;              // bytes of an element
  int64_t begin = 0;             // of the first element, in bytes
  c10::SmallVector<Dim, 4> dims; // outermost first
  bool operator==(const Access&) const = default;

  int64_t end() const; // past the last byte
  int64_t numel() const;
  bool dense() const; // every byte of [begin, end) is touched, in order
};

// The access of a tensor with these sizes and strides (elements), expanded to `shape`.
Access make_access(uint32_t slot, c10::ScalarType type, int64_t offset, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                   c10::IntArrayRef shape);

// Whether both may touch a byte in common. Never false if they do.
bool may_overlap(const Access& a, const Access& b);

// The iteration space of a loop: sizes, outermost first, product = number of elements.
using Space = c10::SmallVector<int64_t, 4>;

// The coarsest space in which both the space and the access have constant strides along every dimension, or nothing.
std::optional<Space> refine(const Space& space, const Access& access);

// The access's byte strides along the dimensions of a space that refines it.
c10::SmallVector<int64_t, 4> strides_in(const Space& space, const Access& access);

} // namespace ae
