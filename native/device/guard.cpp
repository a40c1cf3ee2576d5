// Device, streams and events. There is one device and one queue: ops run in program order whatever stream they are issued
// on, so that a stream is a name, switching it costs nothing and waiting for another is always satisfied.
#include "adaptive_eager.h"
#include "device/device.h"
#include "device/runtime.h"
#include "device/storage.h"
#include "recorder/sync.h"

#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <chrono>

namespace ae {
namespace {

constexpr c10::DeviceIndex kDeviceCount = 1;
constexpr c10::StreamId kStreamsPerPool = 32; // as torch.cuda

thread_local c10::StreamId current_stream = 0;

c10::Stream stream_of(c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, neuron_device(), id);
}

void check_device(c10::Device device) {
  TORCH_CHECK(device.type() == kNeuron, "neuron: expected a device of type neuron, got ", device);
  check_device_index(device.index());
}

// Pool streams have ids from 1 on; odd ones are of high priority. Given out in turn.
c10::Stream next_stream(bool high_priority) {
  static std::atomic<uint32_t> given[2];
  const c10::StreamId index = given[high_priority]++ % kStreamsPerPool;
  return stream_of(2 * (index + 1) - (high_priority ? 1 : 0));
}

struct Event {
  uint64_t epoch = 0;
  std::chrono::steady_clock::time_point time;
};

void complete(void* event) {
  if (event) {
    finish_epoch(static_cast<Event*>(event)->epoch);
  }
}

double elapsed(const Event& start, const Event& end) {
  return std::chrono::duration<double, std::milli>(end.time - start.time).count();
}

class NeuronGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override {
    return kNeuron;
  }

  c10::Device exchangeDevice(c10::Device device) const override {
    check_device(device);
    return neuron_device();
  }

  c10::Device getDevice() const override {
    return neuron_device();
  }

  void setDevice(c10::Device device) const override {
    check_device(device);
  }

  void uncheckedSetDevice(c10::Device) const noexcept override {}

  c10::DeviceIndex deviceCount() const noexcept override {
    return kDeviceCount;
  }

  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    check_device(device);
    return {};
  }

  c10::Stream getStream(c10::Device device) const override {
    check_device(device);
    return stream_of(current_stream);
  }

  c10::Stream getDefaultStream(c10::Device device) const override {
    check_device(device);
    return stream_of(0);
  }

  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    check_device(device);
    return next_stream(high_priority);
  }

  c10::Stream getNewStream(c10::Device device, int priority) const override {
    check_device(device);
    return next_stream(priority < 0);
  }

  c10::Stream exchangeStream(c10::Stream stream) const override {
    check_device(stream.device());
    return stream_of(std::exchange(current_stream, stream.id()));
  }

  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(stream.id());
  }

  bool queryStream(const c10::Stream& stream) const override {
    synchronizeStream(stream);
    return true;
  }

  void synchronizeStream(const c10::Stream& stream) const override {
    check_device(stream.device());
    flush(FlushReason::Synchronize);
  }

  void synchronizeDevice(const c10::DeviceIndex index) const override {
    check_device_index(index);
    flush(FlushReason::Synchronize);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag flag) const override {
    check_device(stream.device());
    if (!*event) {
      *event = new Event();
    }
    auto& target = *static_cast<Event*>(*event);
    if (flag == c10::EventFlag::BACKEND_DEFAULT) { // timed: the time when the work before it is done
      flush(FlushReason::Synchronize);
      target.time = std::chrono::steady_clock::now();
    }
    target.epoch = current_epoch();
  }

  void block(void* event, const c10::Stream& stream) const override {
    check_device(stream.device());
  }

  bool queryEvent(void* event) const override {
    complete(event);
    return true;
  }

  void synchronizeEvent(void* event) const override {
    complete(event);
  }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }

  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start && end, "neuron: elapsed_time needs two events that were recorded");
    return elapsed(*static_cast<Event*>(start), *static_cast<Event*>(end));
  }

  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

} // namespace

void check_device_index(int64_t index) {
  TORCH_CHECK(index >= -1 && index < kDeviceCount, "neuron: invalid device index ", index, ", expected 0: there is ",
              int(kDeviceCount), " device");
}

void register_guard() {
  c10::impl::registerDeviceGuard(kNeuron, new NeuronGuard());
}

} // namespace ae

double ae_elapsed_time(uint64_t start, uint64_t end) {
  return ae::elapsed(*reinterpret_cast<ae::Event*>(start), *reinterpret_cast<ae::Event*>(end));
}
