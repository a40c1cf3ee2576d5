#include "recorder/spec.h"

#include <ATen/native/NonSymbolicBC.h>
#include <c10/util/SmallVector.h>

#include <bit>
#include <cstring>
#include <limits>

#include "common/policy.h"
#include "ops/alias.h"

namespace ae {
namespace {

uint64_t hash_bytes(uint64_t h, const void* data, size_t nbytes) {
  const auto* p = static_cast<const unsigned char*>(data);
  auto mix = [&](uint64_t w) {
    h = (h ^ w) * 0x9E3779B97F4A7C15ull;
    h ^= h >> 29;
  };
  for (; nbytes >= 8; p += 8, nbytes -= 8) {
    uint64_t w;
    std::memcpy(&w, p, 8);
    mix(w);
  }
  if (nbytes > 0) {
    uint64_t w = 0;
    std::memcpy(&w, p, nbytes);
    mix(w ^ (uint64_t(nbytes) << 56));
  }
  return h;
}

// Encoding of attributes: a tag, then the payload.
enum : int64_t { kTagNone = 100, kTagInt, kTagBool, kTagDouble, kTagComplex, kTagString, kTagDevice, kTagList, kTagGenerator };

bool encode(const c10::IValue& iv, std::vector<int64_t>& words) {
  if (iv.isNone()) {
    words.push_back(kTagNone);
  } else if (iv.isInt()) {
    words.insert(words.end(), {kTagInt, iv.toInt()});
  } else if (iv.isBool()) {
    words.insert(words.end(), {kTagBool, int64_t(iv.toBool())});
  } else if (iv.isDouble()) {
    words.insert(words.end(), {kTagDouble, std::bit_cast<int64_t>(iv.toDouble())});
  } else if (iv.isComplexDouble()) {
    auto c = iv.toComplexDouble();
    words.insert(words.end(), {kTagComplex, std::bit_cast<int64_t>(c.real()), std::bit_cast<int64_t>(c.imag())});
  } else if (iv.isString()) {
    const auto& s = iv.toStringRef();
    words.insert(words.end(), {kTagString, int64_t(s.size())});
    size_t at = words.size();
    words.resize(at + (s.size() + 7) / 8, 0);
    std::memcpy(words.data() + at, s.data(), s.size());
  } else if (iv.isDevice()) {
    words.insert(words.end(), {kTagDevice, int64_t(iv.toDevice().type()) << 8 | (iv.toDevice().index() & 0xff)});
  } else if (iv.isList()) {
    auto list = iv.toListRef();
    words.insert(words.end(), {kTagList, int64_t(list.size())});
    for (const c10::IValue& element : list) {
      if (!encode(element, words)) {
        return false;
      }
    }
  } else {
    return false;
  }
  return true;
}

void range_of(at::ScalarType type, double& low, double& high) {
  double most = std::numeric_limits<double>::infinity();
  switch (type) {
    case at::kHalf:
      most = 65504;
      break;
    case at::kBFloat16:
      most = double(std::numeric_limits<c10::BFloat16>::max());
      break;
    case at::kFloat:
    case at::kComplexFloat:
      most = std::numeric_limits<float>::max();
      break;
    case at::kDouble:
    case at::kComplexDouble:
    case at::kBool:
      most = std::numeric_limits<double>::max();
      break;
    default:
      if (!at::isIntegralType(type, false)) {
        most = 0; // float8 and the like: their numbers are never parameters
      }
      break;
  }
  low = std::max(low, -most);
  high = std::min(high, most);
}

struct Describer {
  const OpTraits& traits;
  const Region& region;
  Spec& spec;
  c10::SmallVector<std::pair<NeuronStorage*, int64_t>, 8> storages; // of this op's tensors; index in the op
  bool complex = false;                                             // a tensor argument is complex

  void tensor(const at::Tensor& t, const ArgTraits& arg) {
    if (!t.defined()) {
      spec.leaves.push_back({});
      spec.metadata.push_back(kTagNone);
      return;
    }
    auto* impl = t.unsafeGetTensorImpl();
    if (!on_neuron(impl)) {
      if (arg.written) {
        spec.direct = DirectReason::HostOperand;
        return;
      }
      host(impl);
      return;
    }
    NeuronStorage* storage = is_plain(impl) ? as_neuron(impl->storage()) : nullptr;
    if (storage == nullptr || impl->dim() > 255 || impl->key_set().has(c10::DispatchKey::ZeroTensor)) {
      spec.direct = DirectReason::TensorKind;
      return;
    }
    Leaf leaf;
    leaf.kind = LeafKind::Tensor;
    leaf.flags = (impl->is_conj() ? kConj : 0) | (impl->is_neg() ? kNeg : 0) | (impl->is_wrapped_number() ? kWrapped : 0) |
                 (arg.written ? kWritten : 0);
    leaf.dim = static_cast<uint8_t>(impl->dim());
    auto type = c10::typeMetaToScalarType(impl->dtype());
    leaf.dtype = static_cast<uint16_t>(type);
    leaf.value = impl->storage_offset();
    if (region.touches(*storage)) {
      leaf.slot = storage->slot;
    } else {
      size_t at = 0;
      while (at < spec.touched.size() && spec.touched[at] != storage) {
        ++at;
      }
      leaf.slot = static_cast<uint32_t>(region.slots.size() + at);
      if (at == spec.touched.size()) {
        spec.touched.push_back(storage);
        leaf.flags |= kFirstTouch;
        if (storage->in_flight == 0 && storage->data() == nullptr && storage->nbytes() > 0) {
          leaf.flags |= kFresh;
          leaf.bytes = static_cast<int64_t>(storage->nbytes());
        }
      }
    }
    if (arg.written) {
      spec.written.push_back(leaf.slot);
    }
    leaf.at = static_cast<uint32_t>(spec.words.size());
    spec.words.insert(spec.words.end(), impl->sizes().begin(), impl->sizes().end());
    spec.words.insert(spec.words.end(), impl->strides().begin(), impl->strides().end());
    spec.leaves.push_back(leaf);

    spec.metadata.push_back(int64_t(leaf.kind) | int64_t(leaf.flags & (kConj | kNeg | kWrapped)) << 8 | int64_t(leaf.dim) << 16 |
                            int64_t(leaf.dtype) << 32);
    spec.metadata.insert(spec.metadata.end(), spec.words.begin() + leaf.at, spec.words.end());
    if (traits.writes) {
      // How written and read memory overlap decides whether the op is refused.
      int64_t first = -1;
      for (auto& [other, index] : storages) {
        if (other == storage) {
          first = index;
          break;
        }
      }
      spec.metadata.push_back(first);
      storages.push_back({storage, int64_t(storages.size())});
      spec.metadata.push_back(first >= 0 || shared_later(storage) ? leaf.value : 0);
    }
    complex |= at::isComplexType(type);
    if (type != at::kBool) {
      range_of(type, spec.low, spec.high);
    }
  }

  // Whether another tensor of the op is on the same storage; those before it were seen already.
  const c10::IValue* args = nullptr;
  bool shared_later(const NeuronStorage* storage) const {
    size_t seen = 0;
    auto count = [&](const c10::IValue& iv) {
      if (iv.isTensor() && iv.toTensor().defined() && iv.toTensor().has_storage() &&
          iv.toTensor().storage().unsafeGetStorageImpl() == storage) {
        ++seen;
      }
    };
    for (size_t i = 0; i < traits.args.size(); ++i) {
      const auto& iv = args[i];
      if (iv.isTensor()) {
        count(iv);
      } else if (traits.args[i].kind == ArgKind::TensorList && iv.isList()) {
        if (iv.toListRef().size() > 8) {
          return true; // long lists: take offsets in rather than search
        }
        for (const c10::IValue& element : iv.toListRef()) {
          count(element);
        }
      }
    }
    return seen > 1;
  }

  void host(c10::TensorImpl* impl) {
    auto type = c10::typeMetaToScalarType(impl->dtype());
    bool number = impl->dim() == 0 && impl->device().is_cpu() && impl->has_storage() && impl->layout() == at::kStrided &&
                  !impl->is_conj() && !impl->is_neg() && impl->dtype().itemsize() <= sizeof(Parameter) &&
                  !impl->key_set().has(c10::DispatchKey::ZeroTensor) && !impl->key_set().has(c10::DispatchKey::Python);
    if (!number) {
      spec.direct = DirectReason::HostOperand;
      return;
    }
    Leaf leaf;
    leaf.kind = LeafKind::HostNumber;
    leaf.flags = impl->is_wrapped_number() ? kWrapped : 0;
    leaf.dtype = static_cast<uint16_t>(type);
    leaf.at = static_cast<uint32_t>(region.parameters.size() + spec.parameters.size());
    auto& parameter = spec.parameters.emplace_back();
    std::memcpy(parameter.bytes.data(), impl->data(), impl->dtype().itemsize());
    spec.leaves.push_back(leaf);
    spec.metadata.push_back(int64_t(leaf.kind) | int64_t(leaf.flags) << 8 | int64_t(leaf.dtype) << 32);
  }

  void number(const c10::IValue& iv) {
    Leaf leaf;
    leaf.kind = LeafKind::Number;
    leaf.at = static_cast<uint32_t>(region.parameters.size() + spec.parameters.size());
    if (!number_of(iv, leaf.tag, spec.parameters.emplace_back())) {
      spec.direct = DirectReason::Unrecordable;
    }
    spec.leaves.push_back(leaf);
    spec.metadata.push_back(int64_t(leaf.kind) | int64_t(leaf.tag) << 8);
  }

  void attribute(const c10::IValue& iv) {
    Leaf leaf;
    if (iv.isInt() || iv.isBool()) {
      leaf.kind = LeafKind::Int;
      leaf.tag = iv.isBool();
      leaf.value = iv.isBool() ? iv.toBool() : iv.toInt();
      spec.metadata.insert(spec.metadata.end(), {int64_t(leaf.kind) | int64_t(leaf.tag) << 8, leaf.value});
    } else {
      leaf.kind = LeafKind::Attribute;
      leaf.at = static_cast<uint32_t>(spec.words.size());
      if (!encode(iv, spec.words)) {
        spec.direct = DirectReason::Unrecordable;
        return;
      }
      spec.metadata.insert(spec.metadata.end(), spec.words.begin() + leaf.at, spec.words.end());
    }
    spec.leaves.push_back(leaf);
  }

  void argument(const ArgTraits& arg, const c10::IValue& iv, bool parameters) {
    switch (arg.kind) {
      case ArgKind::Tensor:
        if (iv.isTensor()) {
          return tensor(iv.toTensor(), arg);
        }
        break;
      case ArgKind::TensorList:
        if (iv.isList()) {
          auto list = iv.toListRef();
          if (int64_t(list.size()) > policy(Policy::MaxListTensors)) {
            spec.direct = DirectReason::Unrecordable;
            return;
          }
          Leaf leaf;
          leaf.kind = LeafKind::List;
          leaf.value = static_cast<int64_t>(list.size());
          spec.leaves.push_back(leaf);
          spec.metadata.insert(spec.metadata.end(), {int64_t(leaf.kind), leaf.value});
          for (const c10::IValue& element : list) {
            if (element.isTensor()) {
              tensor(element.toTensor(), arg);
            } else {
              spec.leaves.push_back({});
              spec.metadata.push_back(kTagNone);
            }
          }
          return;
        }
        break;
      case ArgKind::Scalar:
      case ArgKind::Float:
        if (parameters && arg.parameter && !iv.isNone()) {
          return number(iv);
        }
        break;
      case ArgKind::ScalarList:
        if (parameters && arg.parameter && iv.isList()) {
          auto list = iv.toListRef();
          Leaf leaf;
          leaf.kind = LeafKind::Numbers;
          leaf.value = static_cast<int64_t>(list.size());
          leaf.at = static_cast<uint32_t>(region.parameters.size() + spec.parameters.size());
          leaf.tag = 0;
          spec.metadata.insert(spec.metadata.end(), {int64_t(leaf.kind), leaf.value});
          for (const c10::IValue& element : list) {
            uint8_t tag = 0;
            if (!number_of(element, tag, spec.parameters.emplace_back()) || tag == 3 ||
                (&element != list.data() && tag != leaf.tag)) {
              spec.direct = DirectReason::Unrecordable; // mixed lists are rare: run them
            }
            leaf.tag = tag;
          }
          spec.metadata.push_back(leaf.tag);
          spec.leaves.push_back(leaf);
          return;
        }
        break;
      case ArgKind::Generator: {
        Leaf leaf;
        leaf.kind = LeafKind::Generator;
        if (iv.isGenerator() && iv.toGenerator().defined()) {
          if (!iv.toGenerator().device().is_privateuseone()) {
            spec.direct = DirectReason::Unrecordable;
            return;
          }
          leaf.value = 1;
          leaf.at = static_cast<uint32_t>(region.generators.size() + spec.generators.size());
          spec.generators.push_back(iv.toGenerator());
        }
        spec.leaves.push_back(leaf);
        spec.metadata.insert(spec.metadata.end(), {int64_t(leaf.kind), leaf.value});
        return;
      }
      default:
        break;
    }
    attribute(iv);
  }
};

} // namespace

bool number_of(const c10::IValue& iv, uint8_t& tag, Parameter& out) {
  if (iv.isDouble()) {
    double v = iv.toDouble();
    tag = 0;
    std::memcpy(out.bytes.data(), &v, sizeof v);
  } else if (iv.isInt()) {
    int64_t v = iv.toInt();
    tag = 1;
    std::memcpy(out.bytes.data(), &v, sizeof v);
  } else if (iv.isBool()) {
    int64_t v = iv.toBool();
    tag = 2;
    std::memcpy(out.bytes.data(), &v, sizeof v);
  } else if (iv.isComplexDouble()) {
    auto v = iv.toComplexDouble();
    tag = 3;
    std::memcpy(out.bytes.data(), &v, sizeof v);
  } else {
    return false;
  }
  return true;
}

c10::IValue number_value(uint8_t tag, const Parameter& number) {
  int64_t integer;
  std::memcpy(&integer, number.bytes.data(), sizeof integer);
  switch (tag) {
    case 0:
      return std::bit_cast<double>(integer);
    case 1:
      return integer;
    case 2:
      return integer != 0;
    default: {
      c10::complex<double> c;
      std::memcpy(&c, number.bytes.data(), sizeof c);
      return c;
    }
  }
}

bool same_attribute(const c10::IValue& iv, const int64_t*& at) {
  switch (*at++) {
    case kTagNone:
      return iv.isNone();
    case kTagInt:
      return iv.isInt() && iv.toInt() == *at++;
    case kTagBool:
      return iv.isBool() && iv.toBool() == (*at++ != 0);
    case kTagDouble:
      return iv.isDouble() && std::bit_cast<int64_t>(iv.toDouble()) == *at++;
    case kTagComplex: {
      if (!iv.isComplexDouble()) {
        return false;
      }
      auto c = iv.toComplexDouble();
      bool same = std::bit_cast<int64_t>(c.real()) == at[0] && std::bit_cast<int64_t>(c.imag()) == at[1];
      at += 2;
      return same;
    }
    case kTagString: {
      auto size = static_cast<size_t>(*at++);
      const char* text = reinterpret_cast<const char*>(at);
      at += (size + 7) / 8;
      return iv.isString() && iv.toStringRef().size() == size && std::memcmp(iv.toStringRef().data(), text, size) == 0;
    }
    case kTagDevice:
      return iv.isDevice() && (int64_t(iv.toDevice().type()) << 8 | (iv.toDevice().index() & 0xff)) == *at++;
    case kTagList: {
      auto size = static_cast<size_t>(*at++);
      if (!iv.isList() || iv.toListRef().size() != size) {
        return false;
      }
      for (const c10::IValue& element : iv.toListRef()) {
        if (!same_attribute(element, at)) {
          return false;
        }
      }
      return true;
    }
    default:
      return false;
  }
}

void describe(const OpTraits& traits, const c10::IValue* args, const Region& region, Spec& spec) {
  spec.leaves.clear();
  spec.words.clear();
  spec.metadata.clear();
  spec.parameters.clear();
  spec.generators.clear();
  spec.touched.clear();
  spec.written.clear();
  spec.direct.reset();
  spec.low = -std::numeric_limits<double>::infinity();
  spec.high = std::numeric_limits<double>::infinity();
  spec.ranged = false;

  // Numbers are parameters where the op's tensors are all floating (or bool masks beside them): there a value can
  // neither change what comes out but its numbers, nor make the op fail, as long as the dtypes can hold it.
  bool parameters = true;
  bool any_parameter = false;
  for (const auto& arg : traits.args) {
    any_parameter |= arg.parameter;
  }
  if (any_parameter) {
    bool floating = false;
    auto look = [&](const c10::IValue& iv) {
      if (iv.isTensor() && iv.toTensor().defined()) {
        auto type = iv.toTensor().scalar_type();
        floating |= at::isFloatingType(type) || at::isComplexType(type);
        parameters &= at::isFloatingType(type) || at::isComplexType(type) || type == at::kBool || !on_neuron(iv.toTensor());
      }
    };
    for (size_t i = 0; i < traits.args.size(); ++i) {
      const auto& iv = args[i];
      if (iv.isTensor()) {
        look(iv);
      } else if (traits.args[i].kind == ArgKind::TensorList && iv.isList()) {
        for (const c10::IValue& element : iv.toListRef()) {
          look(element);
        }
      }
    }
    parameters &= floating;
  }

  Describer d{traits, region, spec, {}, false};
  d.args = args;
  spec.metadata.push_back(static_cast<int64_t>(traits.hash));
  spec.metadata.push_back(static_cast<int64_t>(c10::typeMetaToScalarType(c10::get_default_dtype())));
  for (size_t i = 0; i < traits.args.size(); ++i) {
    d.argument(traits.args[i], args[i], parameters);
    if (spec.direct) {
      return;
    }
  }
  spec.ranged = false;
  for (const auto& leaf : spec.leaves) {
    spec.ranged |= leaf.kind == LeafKind::Number || leaf.kind == LeafKind::Numbers;
  }
  if (spec.ranged) {
    for (const auto& leaf : spec.leaves) {
      if (leaf.kind == LeafKind::Number || leaf.kind == LeafKind::Numbers) {
        size_t first = leaf.at - region.parameters.size();
        size_t count = leaf.kind == LeafKind::Number ? 1 : static_cast<size_t>(leaf.value);
        for (size_t i = first; i < first + count; ++i) {
          if ((leaf.tag == 3 && !d.complex) || !in_range(leaf.tag, spec.parameters[i], spec.low, spec.high)) {
            spec.direct = DirectReason::ScalarRange;
            return;
          }
        }
      }
    }
  }
  spec.content = hash_bytes(traits.hash, spec.metadata.data(), spec.metadata.size() * sizeof(int64_t));
  spec.key = hash_bytes(spec.content, spec.leaves.data(), spec.leaves.size() * sizeof(Leaf));
  spec.key = hash_bytes(spec.key, spec.words.data(), spec.words.size() * sizeof(int64_t));
}

} // namespace ae
