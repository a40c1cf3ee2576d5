// Random numbers: a generator of the device is a CPU generator behind another device name, so that the same seed gives
// the CPU's numbers and the state of one can be given to the other.
#include "device/device.h"
#include "device/runtime.h"
#include "device/storage.h"
#include "recorder/sync.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GeneratorImpl.h>
#include <torch/library.h>

#include <mutex>

namespace ae {
namespace {

class NeuronGenerator final : public c10::GeneratorImpl {
 public:
  explicit NeuronGenerator(at::Generator inner)
      : GeneratorImpl(neuron_device(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)), inner_(std::move(inner)) {}

  static c10::DeviceType device_type() {
    return kNeuron;
  }

  const at::Generator& inner() const {
    return inner_;
  }

 private:
  // After the recorded ops that draw numbers, and not while a kernel draws.
  template <class Access>
  auto ordered(Access&& access) const {
    flush_random(FlushReason::GeneratorState);
    std::lock_guard guard(inner_.unsafeGetGeneratorImpl()->mutex_);
    return access();
  }

 public:
  void set_current_seed(uint64_t seed) override {
    ordered([&] { inner_.set_current_seed(seed); });
  }

  uint64_t current_seed() const override {
    return ordered([&] { return inner_.current_seed(); });
  }

  uint64_t seed() override {
    return ordered([&] { return inner_.seed(); });
  }

  // The engine has no offset; pickling a generator asks for one all the same, and sets what it got.
  void set_offset(uint64_t offset) override {
    TORCH_CHECK(offset == 0, "neuron: a generator has no offset, expected 0, got ", offset);
  }

  uint64_t get_offset() const override {
    return 0;
  }

  void set_state(const c10::TensorImpl& state) override {
    ordered([&] { inner_.unsafeGetGeneratorImpl()->set_state(state); });
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return ordered([&] { return inner_.unsafeGetGeneratorImpl()->get_state(); });
  }

  // Both share one engine afterwards, as in torch.cuda.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override {
    TORCH_CHECK(state && state->device().type() == kNeuron, "graphsafe_set_state: expected a generator of the neuron device");
    flush_random(FlushReason::GeneratorState);
    inner_ = static_cast<NeuronGenerator*>(state.get())->inner_;
  }

  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    flush_random(FlushReason::GeneratorState);
    return c10::make_intrusive<NeuronGenerator>(inner_);
  }

 private:
  NeuronGenerator* clone_impl() const override {
    return ordered([&] { return new NeuronGenerator(inner_.clone()); });
  }

  at::Generator inner_;
};

} // namespace

c10::intrusive_ptr<c10::GeneratorImpl> new_generator() {
  return c10::make_intrusive<NeuronGenerator>(at::detail::createCPUGenerator());
}

const at::Generator& default_generator() {
  // Seeded as the CPU's default one: from the system, until torch.manual_seed().
  static const auto& generator = *new at::Generator(
      c10::make_intrusive<NeuronGenerator>(at::detail::createCPUGenerator(c10::detail::getNonDeterministicRandom())));
  return generator;
}

at::Generator cpu_generator_of(const at::Generator& generator) {
  const at::Generator& of = generator.defined() ? generator : default_generator();
  TORCH_CHECK(of.device().type() == kNeuron, "Expected a 'neuron' device type for generator but found '", of.device().type(), "'");
  return of.get<NeuronGenerator>()->inner();
}

namespace {
void push_default_generator(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  stack->emplace_back(default_generator());
}
} // namespace

// Python reaches the default generator by an op: torch.ops.adaptive_eager.default_generator().
void register_generator() {
  static auto& library = *new torch::Library(torch::Library::FRAGMENT, "adaptive_eager", std::nullopt, __FILE__, __LINE__);
  library.def("default_generator() -> Generator", torch::CppFunction::makeFromBoxedFunction<&push_default_generator>());
}

} // namespace ae
