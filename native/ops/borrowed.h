// Arguments as IValues without counting references.
//
// A tensor that only its Python object holds pays for its second reference with the GIL, so a call that merely looks
// at its arguments must not take any.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace ae {

inline c10::IValue borrow(const at::Tensor& tensor) {
  return c10::IValue(
      at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(tensor.unsafeGetTensorImpl())));
}

// Takes a borrowed reference back without giving it up twice.
inline void give_back(c10::IValue& iv) {
  std::move(iv).toTensor().unsafeReleaseIntrusivePtr().release();
  iv = c10::IValue();
}

template <size_t N>
class Borrowed {
 public:
  Borrowed() = default;
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() {
    for (size_t i = 0; i < count_; ++i) {
      if (borrowed_ >> i & 1) {
        give_back(values_[i]);
      } else if (C10_UNLIKELY(lists_ >> i & 1)) {
        auto list = values_[i].toList();
        for (size_t k = 0; k < list.size(); ++k) {
          c10::IValue element = list.extract(k);
          if (element.isTensor()) {
            give_back(element);
          }
        }
      }
    }
  }

  void tensor(const at::Tensor& t) {
    borrowed_ |= uint64_t(1) << count_;
    values_[count_++] = borrow(t);
  }
  void tensor(const std::optional<at::Tensor>& t) {
    if (t.has_value()) {
      tensor(*t);
    } else {
      ++count_;
    }
  }
  template <class Tensors>
  void tensors(const Tensors& list) {
    c10::impl::GenericList generic(c10::TensorType::get());
    generic.reserve(list.size());
    for (const at::Tensor& t : list) {
      generic.push_back(borrow(t));
    }
    lists_ |= uint64_t(1) << count_;
    values_[count_++] = std::move(generic);
  }
  void tensors(const c10::List<std::optional<at::Tensor>>& list) {
    values_[count_++] = list;
  }
  template <class T>
  void value(T&& v) {
    values_[count_++] = c10::IValue(std::forward<T>(v));
  }

  c10::IValue& last() {
    return values_[count_ - 1];
  }
  c10::IValue* data() {
    return values_.data();
  }

 private:
  std::array<c10::IValue, N> values_;
  size_t count_ = 0;
  uint64_t borrowed_ = 0, lists_ = 0;
};

} // namespace ae
