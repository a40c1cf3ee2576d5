// A record in the region trie: one op with everything that its key consists of, and what it returns.
//
// A region is a path from the root. Tensors are named by slot: the order in which the region first touched their
// storages. On a hit nothing is built: the call is compared with the predicted node, leaf by leaf.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <memory>
#include <vector>

#include "ops/traits.h"

namespace ae {

enum class LeafKind : uint8_t {
  Tensor,     // a device tensor
  HostNumber, // a 0-dim CPU tensor: its value is read when recorded (Python numbers arrive like this)
  None,       // None or an undefined tensor
  Number,     // a Scalar or float whose value is a parameter of the launch
  Int,        // an int, bool or enum that belongs to the key
  Attribute,  // anything else that belongs to the key, encoded in words
  List,       // a tensor list of `value` leaves that follow
  Numbers,    // a list of Scalars or floats that are parameters
  Generator   // the default generator (value 0) or one given (value 1)
};

enum LeafFlag : uint8_t {
  kFirstTouch = 1, // the storage enters the region here
  kFresh = 2,      // ... without memory so far: nothing to read in it
  kConj = 4,
  kNeg = 8,
  kWrapped = 16,
  kWritten = 32
};

struct Leaf {
  LeafKind kind = LeafKind::None;
  uint8_t flags = 0;
  uint8_t tag = 0; // Number: which alternative of Scalar; Int: bool or int
  uint8_t dim = 0;
  uint16_t dtype = 0; // caffe2::TypeMeta's index, through ScalarType
  uint16_t padding = 0;
  uint32_t slot = 0;
  uint32_t at = 0;   // Tensor: sizes and strides in words; Attribute: its encoding; Number(s): index of the parameter
  int64_t value = 0; // Tensor: storage offset; Int: value; List, Numbers: length; kFresh: see `bytes`
  int64_t bytes = 0; // of a fresh storage
  bool operator==(const Leaf&) const = default;
};

// Metadata of an output.
struct Output {
  bool defined = true;
  caffe2::TypeMeta dtype;
  uint32_t slot = 0;
  int64_t offset = 0;
  size_t nbytes = 0;
  c10::SmallVector<int64_t, 5> sizes, strides;
  bool contiguous = false;
};

// A number of a launch: 16 bytes, for complex double.
struct Parameter {
  std::array<std::byte, 16> bytes{};
};

struct Fragment;

struct Node {
  const OpTraits* traits = nullptr;
  Node* parent = nullptr;
  Node* next = nullptr;  // the child taken last: the prediction
  Node* after = nullptr; // where a region ends here: the first node of the region that followed last time
  uint64_t id = 0;
  uint64_t used = 0;    // number of the last region that came by
  uint64_t content = 0; // hash of op and metadata, without slots
  uint64_t key = 0;     // hash with slots
  std::vector<Leaf> leaves;
  std::vector<int64_t> words;
  std::vector<c10::IValue> attributes;        // by argument, where its leaf is an Attribute
  std::vector<Output> outputs;                // in the order of returns, lists flattened
  c10::SmallVector<uint32_t, 2> list_lengths; // of returns that are lists
  c10::SmallVector<uint32_t, 2> written;      // slots written, for known bounds
  size_t out_bytes = 0;
  uint32_t slots_before = 0, parameters_before = 0, parameters_after = 0;
  uint32_t depth = 0;       // number of ops up to and including this one
  double low = 0, high = 0; // range of numbers that every floating dtype involved can hold
  bool ranged = false;      // numbers have to lie in it
  bool bounded = false;     // output 0 is known to lie in [bound_low, bound_high]
  int64_t bound_low = 0, bound_high = 0;
  bool bounded_by_input = false;      // output 0, or the written tensor, holds values of an argument only
  std::unique_ptr<Fragment> fragment; // of the region that ends here
  std::array<uint64_t, static_cast<size_t>(FlushReason::Count)> ends{};

  // Of every tensor that it takes or returns.
  template <class F>
  void each_slot(F&& f) const {
    for (const auto& leaf : leaves) {
      if (leaf.kind == LeafKind::Tensor) {
        f(leaf.slot);
      }
    }
    for (const auto& output : outputs) {
      if (output.defined) {
        f(output.slot);
      }
    }
  }

  Node();
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
};

} // namespace ae
