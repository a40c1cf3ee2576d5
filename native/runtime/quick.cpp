#include "runtime/quick.h"

#include <ATen/TensorIterator.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "common/policy.h"
#include "runtime/quick_parts.h"

namespace ae {
namespace {

// Set-up is nothing to larger results, and the comparison would copy them.
constexpr int64_t kMostElements = 1 << 20;
// A layer norm has no kernel that writes to given memory: its results would be copied.
constexpr int64_t kMostNormElements = 1 << 26;

const std::unordered_map<std::string_view, QuickMaker>& makers() {
  static const std::unordered_map<std::string_view, QuickMaker> map{
      {"aten::roll", quick_roll},
      {"aten::cat", quick_cat},
      {"aten::index_select", quick_index_select},
      {"aten::mm", quick_mm},
      {"aten::addmm", quick_addmm},
      {"aten::addmm_", quick_addmm},
      {"aten::bmm", quick_bmm},
      {"aten::native_layer_norm", quick_layer_norm},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", quick_attention},
      {"aten::sum.dim_IntList", quick_sum},
      {"aten::argmax", quick_argmax},
      {"aten::_softmax", quick_softmax},
      {"aten::_log_softmax", quick_log_softmax},
      {"aten::_softmax_backward_data", quick_softmax_backward},
      {"aten::_log_softmax_backward_data", quick_log_softmax_backward},
      {"aten::native_batch_norm", quick_batch_norm},
      {"aten::native_batch_norm_backward", quick_batch_norm_backward},
  };
  return map;
}

// The bytes from the first element to past the last.
size_t extent(const at::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return 0;
  }
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    last += (tensor.sizes()[d] - 1) * tensor.strides()[d];
  }
  return static_cast<size_t>(last + 1) * tensor.element_size();
}

} // namespace

int64_t quick_limit() {
  return at::internal::GRAIN_SIZE;
}

bool plain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided && !tensor.is_conj() && !tensor.is_neg() && tensor.has_storage();
}

bool plain(const c10::IValue& value) {
  return value.isTensor() && plain(value.toTensor());
}

bool read_ints(const c10::IValue& value, c10::SmallVectorImpl<int64_t>& ints) {
  if (value.isIntList()) {
    for (int64_t i : value.toIntList()) {
      ints.push_back(i);
    }
    return true;
  }
  if (value.isInt()) {
    ints.push_back(value.toInt());
    return true;
  }
  return false;
}

std::unique_ptr<Quick> make_quick(const OpTraits& traits, const c10::IValue* arguments, size_t count) {
  auto found = makers().find(traits.name);
  if (found == makers().end()) {
    return nullptr;
  }
  QuickCall call{arguments, traits.args.size(), arguments + traits.args.size(), count - traits.args.size()};
  if (call.result_count == 0) { // in place
    call.results = arguments;
    call.result_count = 1;
  }
  int64_t most = found->second == quick_layer_norm ? kMostNormElements : kMostElements;
  for (size_t i = 0; i < call.result_count; ++i) {
    if (!plain(call.results[i]) || call.result(i).numel() > most) {
      return nullptr;
    }
  }
  auto quick = found->second(call);
  if (quick) {
    for (size_t i = 0; i < call.result_count; ++i) {
      quick->written.push_back(call.result(i));
    }
    quick->proven = policy(Policy::CompareLaunches) == 0;
  }
  return quick;
}

QuickTrial::QuickTrial(Quick& quick) : quick_(quick) {
  for (const auto& tensor : quick.written) {
    std::byte* begin = Place(tensor).data();
    extents_.push_back({begin, {begin, begin + extent(tensor)}, std::vector<std::byte>(extent(tensor))});
  }
}

bool QuickTrial::passes() {
  for (size_t i = 0; i < extents_.size(); ++i) {
    auto& e = extents_[i];
    std::copy_n(e.begin, e.after.size(), e.after.begin());
    std::copy(e.before.begin(), e.before.end(), e.begin);
    if (!quick_.reads_written && quick_.written[i].is_non_overlapping_and_dense()) { // nothing may be left as it was
      std::transform(e.after.begin(), e.after.end(), e.begin, [](std::byte b) { return ~b; });
    }
  }
  bool ran = quick_.run();
  bool same = std::all_of(extents_.begin(), extents_.end(),
                          [](const Extent& e) { return std::equal(e.after.begin(), e.after.end(), e.begin); });
  if (!ran || !same) {
    for (const auto& e : extents_) {
      std::copy(e.after.begin(), e.after.end(), e.begin);
    }
  }
  quick_.proven = ran && same;
  return !ran || same;
}

} // namespace ae
