// What the recorder knows of an operator. Derived once, at load, from its schema, tags and registered kernels;
// tables/op_exceptions.def adds what those do not say.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "recorder/sync.h"

namespace ae {

enum class Rule : uint8_t {
  SideEffect,        // run directly
  DynamicShape,      // run directly: an output's shape depends on values
  FailsOnValues,     // run directly: the values of its operands can make it fail, and are not checked beforehand
  IndexInRange,      // value check: the index operand lies within the dimension
  IndexLists,        // value check: each index tensor lies within its dimension
  TargetInRange,     // value check: class targets
  IntegerDivisor,    // value check: no zero in an integer divisor
  UndeclaredWrite,   // the argument is written though the schema does not say so
  NumbersAreKey,     // Scalar and float arguments belong to the key
  Whole,             // recorded as one op though CPU composes it
  HostOperands,      // CPU tensors of any size are welcome
  BoundedByStartEnd, // the result's values lie in [start, end)
  BoundedByDim,      // the result's values are indices along a dimension
  BoundedByInput,    // the result's values are among those of an argument
  NoOut,             // its out= overload is not the same computation
};

enum class ArgKind : uint8_t { Tensor, TensorList, Scalar, ScalarList, Float, Generator, Device, Attribute };

struct ArgTraits {
  ArgKind kind = ArgKind::Attribute;
  bool written = false;   // declared or known to be
  bool parameter = false; // numbers in it are values of a launch, not part of the key
};

enum class ReturnKind : uint8_t { Fresh, FreshList, Argument, Value };

struct ReturnTraits {
  ReturnKind kind = ReturnKind::Fresh;
  uint8_t argument = 0; // of Argument: which one
};

struct OpTraits {
  explicit OpTraits(const c10::OperatorHandle& op);

  // Of an argument: `Tensor?`, `Tensor?[]`.
  bool optional_tensor(size_t argument) const;
  // Of an argument: `float[]`.
  bool float_list(size_t argument) const;
  // The element type of a list argument.
  c10::TypePtr list_element(size_t argument) const;

  c10::OperatorHandle op;
  std::string name; // aten::add.Tensor
  uint64_t hash = 0;
  std::vector<ArgTraits> args;
  std::vector<ReturnTraits> returns;
  bool aten = false;
  bool random = false;          // draws from a generator
  bool random_argument = false; // ... which is an argument of the schema
  bool host_operands = false;
  bool numbers_are_key = false;
  bool writes = false;                // any argument is written
  bool pure = false;                  // no write, no random number: may be left out when nobody needs its results
  bool bumps_versions = false;        // in place on lists: on the CPU its inner ops bump the versions, here the recorder does
  std::optional<DirectReason> direct; // never recorded, and why
  std::optional<Rule> check;          // value check, on argument `check_argument`
  uint8_t check_argument = 0;
  std::optional<Rule> bounds;
  uint8_t bounds_argument = 0;
  // The overload that writes the same results into given tensors, where the CPU has a kernel of its own for it.
  std::optional<c10::OperatorHandle> out;

  mutable std::array<std::atomic<uint64_t>, static_cast<size_t>(DirectReason::Count)> direct_counts{};
};

// Whether the recorder takes the operator over for the device (false: views, factories and copies with kernels of
// their own, composites).
bool recorder_takes(const c10::OperatorHandle& op);

// The traits of an operator, made on first use and kept for ever.
const OpTraits& traits_of(const c10::OperatorHandle& op);

// Around a fork: the child has to find the lock free.
void lock_traits();
void unlock_traits();

// Every traits object made so far.
std::vector<const OpTraits*> all_traits();

const char* rule_name(Rule rule);
struct Exception {
  const char* op;
  Rule rule;
  int argument;
  const char* why;
};
const std::vector<Exception>& op_exceptions();

} // namespace ae
