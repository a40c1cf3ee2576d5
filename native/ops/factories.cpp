// Tensors out of nothing, and tensors that change their storage: memory comes later, at first use.
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/set_native.h>
#include <c10/core/DefaultDtype.h>

#include "device/device.h"
#include "ops/alias.h"
#include "ops/register.h"
#include "recorder/sync.h"

namespace ae {
namespace {

using at::Tensor;
template <class T>
using Opt = std::optional<T>;

void check_options(Opt<at::Layout> layout, Opt<at::Device> device, Opt<bool> pin_memory) {
  TORCH_CHECK(!device.has_value() || device->is_privateuseone(), "empty: expected a neuron device, got ", *device);
  if (device.has_value() && device->has_index()) {
    check_device_index(device->index());
  }
  TORCH_CHECK(layout.value_or(at::kStrided) == at::kStrided, "empty: layout ", *layout, " is not supported here, expected strided");
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

bool deterministic_fill() {
  auto& context = at::globalContext();
  return C10_UNLIKELY(context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory());
}

caffe2::TypeMeta type_of(Opt<at::ScalarType> dtype) {
  return dtype ? c10::scalarTypeToTypeMeta(*dtype) : c10::get_default_dtype();
}

Tensor empty(c10::SymIntArrayRef sym_size, Opt<at::ScalarType> dtype, Opt<at::Layout> layout, Opt<at::Device> device,
             Opt<bool> pin_memory, Opt<at::MemoryFormat> memory_format) {
  check_options(layout, device, pin_memory);
  auto size = C10_AS_INTARRAYREF_SLOW(sym_size);
  at::detail::check_size_nonnegative(size);
  auto type = type_of(dtype);
  size_t nbytes = at::detail::computeStorageNbytesContiguous(size, type.itemsize());
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(make_storage(nbytes)), kNeuronKeys, type);
  if (size.size() != 1 || size[0] != 0) {
    impl->generic_set_sizes_contiguous(size);
  }
  if (memory_format.has_value() && *memory_format != at::MemoryFormat::Contiguous) {
    impl->empty_tensor_restride(*memory_format);
  }
  Tensor result(std::move(impl));
  if (deterministic_fill()) {
    at::native::fill_empty_deterministic_(result);
  }
  return result;
}

Tensor empty_strided(c10::SymIntArrayRef sym_size, c10::SymIntArrayRef sym_stride, Opt<at::ScalarType> dtype,
                     Opt<at::Layout> layout, Opt<at::Device> device, Opt<bool> pin_memory) {
  check_options(layout, device, pin_memory);
  auto size = C10_AS_INTARRAYREF_SLOW(sym_size);
  auto stride = C10_AS_INTARRAYREF_SLOW(sym_stride);
  at::detail::check_size_nonnegative(size);
  TORCH_CHECK(size.size() == stride.size(), "mismatch in length of strides and shape");
  for (auto s : stride) {
    TORCH_CHECK(s >= 0, "as_strided: Negative strides are not supported at the moment, got strides: ", stride);
  }
  auto type = type_of(dtype);
  size_t nbytes = at::detail::computeStorageNbytes(size, stride, type.itemsize());
  auto result = make_tensor(make_storage(nbytes), type, size, stride, 0);
  if (deterministic_fill()) {
    at::native::fill_empty_deterministic_(result);
  }
  return result;
}

// Sets sizes and strides, growing the storage where they need more than it has.
void set_geometry(c10::TensorImpl* impl, at::IntArrayRef size, Opt<at::IntArrayRef> stride) {
  if (impl->sizes() == size && (!stride || impl->strides() == *stride)) {
    return;
  }
  size_t itemsize = impl->dtype().itemsize();
  size_t needed;
  if (stride) {
    impl->set_sizes_and_strides(size, *stride);
    needed = at::detail::computeStorageNbytes(size, *stride, itemsize, impl->storage_offset());
  } else {
    impl->generic_set_sizes_contiguous(size);
    needed = at::detail::computeStorageNbytesContiguous(size, itemsize, impl->storage_offset());
  }
  if (impl->numel() > 0 && needed > impl->storage().nbytes()) {
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(impl->storage(), needed);
  }
}

const Tensor& resize_(const Tensor& self, c10::SymIntArrayRef sym_size, Opt<at::MemoryFormat> memory_format) {
  auto size = C10_AS_INTARRAYREF_SLOW(sym_size);
  int64_t old_nbytes = deterministic_fill() ? static_cast<int64_t>(self.storage().nbytes()) : 0;
  auto* impl = self.unsafeGetTensorImpl();
  at::detail::check_size_nonnegative(size);
  set_geometry(impl, size, std::nullopt);
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != at::MemoryFormat::Preserve, "Unsupported memory format", *memory_format);
    impl->empty_tensor_restride(*memory_format);
  }
  if (deterministic_fill()) {
    at::native::fill_resize_deterministic_(self, old_nbytes);
  }
  return self;
}

Tensor& set_storage_offset(Tensor& result, c10::Storage storage, c10::SymInt sym_offset, c10::SymIntArrayRef sym_size,
                           c10::SymIntArrayRef sym_stride) {
  auto size = C10_AS_INTARRAYREF_SLOW(sym_size);
  auto stride = C10_AS_INTARRAYREF_SLOW(sym_stride);
  int64_t offset = sym_offset.guard_int(__FILE__, __LINE__);
  at::native::checkSetStorage(result, std::move(storage), offset, size, stride);
  result.unsafeGetTensorImpl()->set_storage_offset(offset);
  set_geometry(result.unsafeGetTensorImpl(), size, stride.data() != nullptr ? Opt<at::IntArrayRef>(stride) : std::nullopt);
  return result;
}

Tensor& set_nothing(Tensor& result) {
  c10::Storage storage(make_storage(0));
  result.set_(storage, 0, {0}, {});
  return result;
}

bool is_set_to(const Tensor& self, const Tensor& other) {
  auto* a = self.unsafeGetTensorImpl();
  auto* b = other.unsafeGetTensorImpl();
  return a->has_storage() && b->has_storage() && a->storage().unsafeGetStorageImpl() == b->storage().unsafeGetStorageImpl() &&
         a->storage_offset() == b->storage_offset() && a->sizes() == b->sizes() && a->strides() == b->strides();
}

Tensor efficient_zero(c10::SymIntArrayRef sym_size, Opt<at::ScalarType> dtype, Opt<at::Layout> layout, Opt<at::Device> device,
                      Opt<bool> pin_memory) {
  check_options(layout, device, pin_memory);
  auto size = C10_AS_INTARRAYREF_SLOW(sym_size);
  auto type = type_of(dtype);
  size_t nbytes = at::detail::computeStorageNbytesContiguous(size, type.itemsize());
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(make_storage(nbytes)),
                                                   kNeuronKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor), type);
  impl->set_sizes_contiguous(size);
  return Tensor(std::move(impl));
}

void record_stream(Tensor&, at::Stream) {
  // One queue in program order: nothing to record.
}

} // namespace

void register_factories(torch::Library& m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_", TORCH_FN(set_nothing));
  m.impl("set_.source_Storage", static_cast<Tensor& (*)(Tensor&, at::Storage)>(at::native::set_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset));
  m.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  m.impl("is_set_to", TORCH_FN(is_set_to));
  m.impl("_efficientzerotensor", TORCH_FN(efficient_zero));
  m.impl("record_stream", TORCH_FN(record_stream));
}

} // namespace ae
