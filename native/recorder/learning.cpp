#include "recorder/learning.h"

#include <algorithm>

#include "ops/alias.h"

namespace ae {
namespace {

// The sizes, strides and offset of the tensors that an op writes, to see whether it changed them.
std::vector<std::vector<int64_t>> geometry(const OpTraits& traits, const c10::IValue* args) {
  std::vector<std::vector<int64_t>> all;
  if (!traits.writes) {
    return all;
  }
  auto note = [&](const c10::IValue& iv) {
    if (!iv.isTensor() || !iv.toTensor().defined() || iv.toTensor().layout() != at::kStrided) {
      return;
    }
    const auto& t = iv.toTensor();
    std::vector<int64_t> g(t.sizes().begin(), t.sizes().end());
    g.insert(g.end(), t.strides().begin(), t.strides().end());
    g.push_back(t.storage_offset());
    all.push_back(std::move(g));
  };
  for (size_t i = 0; i < traits.args.size(); ++i) {
    if (!traits.args[i].written) {
      continue;
    }
    const auto& iv = args[i];
    if (iv.isTensor()) {
      note(iv);
    } else if (iv.isList()) {
      for (const c10::IValue& element : iv.toListRef()) {
        note(element);
      }
    }
  }
  return all;
}

} // namespace

Learning::Learning(const OpTraits& traits, std::vector<int64_t> metadata, const c10::IValue* args)
    : traits_(traits), metadata_(std::move(metadata)), before_(geometry(traits, args)) {}

Learned Learning::finish(const c10::IValue* args, const Results& results) {
  Learned learned;
  learned.traits = &traits_;
  learned.metadata = std::move(metadata_);
  std::vector<c10::StorageImpl*> known;
  for (size_t i = 0; i < traits_.args.size(); ++i) {
    const auto& iv = args[i];
    auto add = [&](const c10::IValue& v) {
      if (v.isTensor() && v.toTensor().defined() && v.toTensor().has_storage()) {
        known.push_back(v.toTensor().storage().unsafeGetStorageImpl());
      }
    };
    if (iv.isTensor()) {
      add(iv);
    } else if (iv.isList()) {
      for (const c10::IValue& element : iv.toListRef()) {
        add(element);
      }
    }
  }
  auto note = [&](const at::Tensor& t) {
    Output output;
    output.defined = t.defined();
    if (t.defined()) {
      auto* impl = t.unsafeGetTensorImpl();
      if (!on_neuron(t) || !is_plain(impl) || impl->is_conj() || impl->is_neg() || impl->is_wrapped_number() ||
          as_neuron(impl->storage()) == nullptr) {
        learned.direct = DirectReason::TensorKind;
        return;
      }
      auto* storage = impl->storage().unsafeGetStorageImpl();
      if (std::find(known.begin(), known.end(), storage) != known.end()) {
        learned.direct = DirectReason::ReturnsAlias;
        return;
      }
      known.push_back(storage);
      output.dtype = impl->dtype();
      output.sizes.assign(impl->sizes().begin(), impl->sizes().end());
      output.strides.assign(impl->strides().begin(), impl->strides().end());
      output.offset = impl->storage_offset();
      output.nbytes = storage->nbytes();
      output.contiguous = impl->is_contiguous() && output.offset == 0;
      if (output.contiguous) { // exact strides, also where a dimension has one element or none
        auto fresh = c10::make_intrusive<c10::TensorImpl>(c10::Storage(make_storage(0)), kNeuronKeys, output.dtype);
        fresh->set_sizes_contiguous(output.sizes);
        output.contiguous = fresh->strides() == impl->strides();
      }
    }
    learned.outputs.push_back(std::move(output));
  };
  size_t result = 0;
  for (const auto& ret : traits_.returns) {
    if (ret.kind == ReturnKind::Argument) {
      continue;
    }
    const auto& iv = results[result++];
    switch (ret.kind) {
      case ReturnKind::Fresh:
        note(iv.toTensor());
        break;
      case ReturnKind::FreshList:
        learned.list_lengths.push_back(static_cast<uint32_t>(iv.toListRef().size()));
        for (const c10::IValue& element : iv.toListRef()) {
          note(element.toTensor());
        }
        break;
      default:
        break;
    }
  }
  if (!learned.direct && traits_.writes && geometry(traits_, args) != before_) {
    learned.direct = DirectReason::Resize;
  }
  return learned;
}

} // namespace ae
