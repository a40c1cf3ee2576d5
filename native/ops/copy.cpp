// Copies. Within the device they are ordinary records; to and from the host they happen at the call.
#include <ATen/MemoryOverlap.h>
#include <ATen/Operators.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense.h>

#include <cstring>

#include "ops/alias.h"
#include "ops/borrowed.h"
#include "ops/direct.h"
#include "ops/register.h"
#include "recorder/recorder.h"
#include "runtime/stats.h"

namespace ae {
namespace {

using at::Tensor;

const OpTraits& copy_traits() {
  static const OpTraits& traits = traits_of(c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", ""));
  return traits;
}

// A finished host view of a tensor of either kind. A sparse tensor's parts are finished one by one.
Tensor finished(const Tensor& t, FlushReason reason) {
  if (!on_neuron(t)) {
    return t;
  }
  if (t.layout() == at::kStrided && is_plain(t.unsafeGetTensorImpl())) {
    flush_storage(t.storage().unsafeGetStorageImpl(), reason);
  } else {
    flush(reason);
  }
  return cpu_alias(t);
}

constexpr int64_t kSmallCopy = 1 << 16; // bytes: beyond, ATen's copy may use several threads

// Whether copying is moving bytes, and few of them: then ATen's set-up would take longer than the copy.
bool moves_bytes(const Tensor& to, const Tensor& from) {
  auto plain = [](const Tensor& t) {
    return t.layout() == at::kStrided && is_plain(t.unsafeGetTensorImpl()) && !t.is_conj() && !t.is_neg() && !t._is_zerotensor() &&
           t.is_contiguous();
  };
  return to.scalar_type() == from.scalar_type() && to.sizes() == from.sizes() &&
         to.numel() * static_cast<int64_t>(to.element_size()) <= kSmallCopy && plain(to) && plain(from);
}

Tensor& copy_(Tensor& self, const Tensor& src, bool non_blocking) {
  if (self.is_same(src)) {
    return self;
  }
  if (on_neuron(self) && on_neuron(src)) {
    Borrowed<3> args;
    args.tensor(self);
    args.tensor(src);
    args.value(non_blocking);
    Results results;
    record(copy_traits(), args.data(), results);
    return self;
  }
  TORCH_CHECK((on_neuron(self) || self.device().is_cpu() || self.device().is_meta()) &&
                  (on_neuron(src) || src.device().is_cpu() || src.device().is_meta()),
              "copy_: cannot copy from ", src.device(), " to ", self.device(), ", expected cpu or neuron");
  count_direct(copy_traits(), DirectReason::HostCopy);
  if (self.device().is_meta()) {
    return self;
  }
  bool read = on_neuron(src);
  if (moves_bytes(self, src)) {
    const Tensor& device = read ? src : self;
    flush_storage(device.storage().unsafeGetStorageImpl(), read ? FlushReason::ValueRead : FlushReason::HostCopy);
    if (auto* storage = as_neuron(device.storage()); storage != nullptr && storage->fault == nullptr) {
      materialize(*storage);
      if (self.numel() > 0) {
        auto offset = device.storage_offset() * static_cast<int64_t>(device.element_size());
        auto* memory = static_cast<std::byte*>(const_cast<void*>(storage->data())) + offset;
        void* to = read ? self.mutable_data_ptr() : memory;
        const void* from = read ? memory : src.const_data_ptr();
        std::memcpy(to, from, static_cast<size_t>(self.numel()) * self.element_size());
      }
      return self;
    }
  }
  Tensor to = finished(self, FlushReason::HostCopy);
  Tensor from = finished(src, read ? FlushReason::ValueRead : FlushReason::HostCopy);
  BelowEverything below;
  to.copy_(from, non_blocking);
  return self;
}

Tensor copy_from(const Tensor& self, const Tensor& dst, bool non_blocking) {
  Tensor to = dst;
  copy_(to, self, non_blocking);
  return dst;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& dst) {
  at::native::resize_output(dst, self.sizes());
  return copy_from(self, dst, false);
}

at::Scalar local_scalar_dense(const Tensor& self) {
  static const OpTraits& traits = traits_of(c10::Dispatcher::singleton().findSchemaOrThrow("aten::_local_scalar_dense", ""));
  count_direct(traits, DirectReason::ReturnsValue);
  Tensor value = finished(self, FlushReason::ValueRead);
  if (value.numel() == 1 && !value.is_neg()) {
    switch (value.scalar_type()) {
      case at::kFloat:
        return *value.const_data_ptr<float>();
      case at::kLong:
        return *value.const_data_ptr<int64_t>();
      case at::kBool:
        return *value.const_data_ptr<bool>();
      default:
        break;
    }
  }
  BelowEverything below;
  return at::_local_scalar_dense(value);
}

} // namespace

void register_copies(torch::Library& m) {
  m.impl("copy_", TORCH_FN(copy_));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
}

} // namespace ae
