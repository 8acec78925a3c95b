// SPDX-License-Identifier: Apache-2.0
// Streams, events and graphs of the emulator: work is done late, in any order that they allow, so
// that host code that waits for too little is found.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "gpu/emulator/cuda_emulator.h"
#include "tests/catch.h"
#include "tests/gpu/emulator/device_values.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

__global__ void set_kernel(int* value, int to) { *value = to; }
__global__ void add_kernel(const int* from, int* value, int more) { *value = *from + more; }
// value = value * 10 + digit: which digits, in which order.
__global__ void append_kernel(int* value, int digit) { *value = *value * 10 + digit; }

const LaunchShape kOne = {1, 1};

Stream blocking_stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
  return Stream(stream);
}

// Pinned memory as ints.
class PinnedInts {
 public:
  explicit PinnedInts(std::size_t size) : bytes_(size * sizeof(int)) {}
  int& operator[](std::size_t i) const { return reinterpret_cast<int*>(bytes_.data())[i]; }
  int* data() const { return reinterpret_cast<int*>(bytes_.data()); }

 private:
  PinnedBytes bytes_;
};

cudaError_t copy(void* to, const void* from, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, sizeof(int), cudaMemcpyDefault, stream);
}

// The value of one int after all work is done.
int value_of(const DeviceArray<int>& array) {
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return array.download().front();
}

void begin(const Stream& stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
  check_cuda(cudaStreamBeginCapture(stream.get(), mode), "cudaStreamBeginCapture");
}

GraphExec end(const Stream& stream) {
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t exec = nullptr;
  check_cuda(cudaGraphInstantiate(&exec, graph), "cudaGraphInstantiate");
  check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return GraphExec(exec);
}

cudaError_t end_status(const Stream& stream) {
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream.get(), &graph);
  CHECK((graph == nullptr) == (error != cudaSuccess));
  if (graph != nullptr) check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return error;
}

cudaStreamCaptureStatus status_of(const Stream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream.get(), &status), "cudaStreamIsCapturing");
  return status;
}

}  // namespace

TEST_CASE("work waits until the host does") {
  const FreshEmulator fresh;
  const Stream stream = make_stream();
  const DeviceArray<int> value = on_device<int>({1});
  const PinnedInts pinned(1);
  pinned[0] = 7;
  launch(set_kernel, kOne, stream.get(), value.data(), 2);
  CHECK(copy(pinned.data(), value.data(), stream.get()) == cudaSuccess);
  CHECK(emulator::num_kernels_executed() == 0);
  CHECK(pinned[0] == 7);
  CHECK(cudaStreamSynchronize(stream.get()) == cudaSuccess);
  CHECK(pinned[0] == 2);
}

TEST_CASE("pinned memory is read when the copy happens, other memory when it is asked for") {
  const FreshEmulator fresh;
  const Stream stream = make_stream();
  const DeviceArray<int> value = on_device<int>({1});
  const PinnedInts pinned(1);
  pinned[0] = 5;
  CHECK(copy(value.data(), pinned.data(), stream.get()) == cudaSuccess);
  pinned[0] = 6;
  CHECK(value_of(value) == 6);
  int pageable = 8;
  CHECK(copy(value.data(), &pageable, stream.get()) == cudaSuccess);
  pageable = 9;
  CHECK(value_of(value) == 8);
  // A copy to pageable memory has happened when the call returns.
  launch(set_kernel, kOne, stream.get(), value.data(), 10);
  CHECK(copy(&pageable, value.data(), stream.get()) == cudaSuccess);
  CHECK(pageable == 10);
}

TEST_CASE("the legacy stream waits for blocking streams only, and they for it") {
  std::set<int> results;
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    const FreshEmulator fresh;
    emulator::set_seed(seed);
    const Stream blocking = blocking_stream();
    const Stream other = blocking_stream();
    const DeviceArray<int> value = on_device<int>({0});
    launch(append_kernel, kOne, blocking.get(), value.data(), 1);
    launch(append_kernel, kOne, nullptr, value.data(), 2);
    launch(append_kernel, kOne, other.get(), value.data(), 3);
    launch(append_kernel, kOne, nullptr, value.data(), 4);
    CHECK(value.download().front() == 1234);

    const Stream free = make_stream();
    launch(set_kernel, kOne, free.get(), value.data(), 5);
    results.insert(value.download().front());  // a bug of the host
    CHECK(value_of(value) == 5);
  }
  CHECK(results == std::set<int>{5, 1234});
}

TEST_CASE("cudaMemset is enqueued, and what follows on the legacy stream comes later") {
  const FreshEmulator fresh;
  const DeviceArray<int> value = on_device<int>({3});
  CHECK(cudaMemset(value.data(), 0, sizeof(int)) == cudaSuccess);
  launch(append_kernel, kOne, nullptr, value.data(), 1);
  CHECK(cudaMemsetAsync(value.data(), 1, 1, nullptr) == cudaSuccess);
  launch(append_kernel, kOne, nullptr, value.data(), 2);
  CHECK(value.download().front() == 12);
}

TEST_CASE("streams run in any order unless events say otherwise") {
  std::set<int> ordered;
  std::set<int> unordered;
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    for (const bool has_wait : {true, false}) {
      const FreshEmulator fresh;
      emulator::set_seed(seed);
      const Stream first = make_stream();
      const Stream second = seed % 2 == 0 ? make_stream() : Stream();  // the legacy stream
      const CudaEvent event = make_event();
      const DeviceArray<int> value = on_device<int>({0});
      launch(append_kernel, kOne, first.get(), value.data(), 1);
      CHECK(cudaEventRecord(event.get(), first.get()) == cudaSuccess);
      if (has_wait) CHECK(cudaStreamWaitEvent(second.get(), event.get()) == cudaSuccess);
      launch(append_kernel, kOne, second.get(), value.data(), 2);
      (has_wait ? ordered : unordered).insert(value_of(value));
    }
  }
  CHECK(ordered == std::set<int>{12});
  CHECK(unordered == std::set<int>{12, 21});
}

TEST_CASE("a wait is for the record before it, not for later ones") {
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    const FreshEmulator fresh;
    emulator::set_seed(seed);
    const Stream first = make_stream();
    const Stream second = make_stream();
    const CudaEvent event = make_event();
    const DeviceArray<int> value = on_device<int>({0});
    CHECK(cudaStreamWaitEvent(second.get(), event.get()) == cudaSuccess);  // never recorded: none
    launch(append_kernel, kOne, first.get(), value.data(), 1);
    CHECK(cudaEventRecord(event.get(), first.get()) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(second.get(), event.get()) == cudaSuccess);
    // first waits for second now: a wait for this record would never end.
    const CudaEvent other = make_event();
    launch(append_kernel, kOne, second.get(), value.data(), 2);
    CHECK(cudaEventRecord(other.get(), second.get()) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(first.get(), other.get()) == cudaSuccess);
    launch(append_kernel, kOne, first.get(), value.data(), 3);
    CHECK(cudaEventRecord(event.get(), first.get()) == cudaSuccess);
    CHECK(cudaEventSynchronize(event.get()) == cudaSuccess);
    CHECK(value.download().front() == 123);
  }
}

TEST_CASE("an event ends what is before it on its stream, and maybe no more") {
  std::set<std::vector<int>> seen;
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    const FreshEmulator fresh;
    emulator::set_seed(seed);
    const Stream stream = make_stream();
    const Stream other = make_stream();
    const CudaEvent event = make_event();
    const DeviceArray<int> value = on_device<int>({0, 0});
    const PinnedInts pinned(3);
    for (std::size_t i = 0; i < 3; ++i) pinned[i] = 0;
    launch(set_kernel, kOne, stream.get(), value.data(), 4);
    CHECK(copy(&pinned[0], value.data(), stream.get()) == cudaSuccess);
    CHECK(cudaEventRecord(event.get(), stream.get()) == cudaSuccess);
    CHECK(copy(&pinned[1], value.data(), stream.get()) == cudaSuccess);
    CHECK(copy(&pinned[2], value.data(), other.get()) == cudaSuccess);
    CHECK(cudaEventSynchronize(event.get()) == cudaSuccess);
    seen.insert({pinned[0], pinned[1], pinned[2]});
  }
  for (const std::vector<int>& values : seen) CHECK(values[0] == 4);
  CHECK(seen.count({4, 0, 0}) == 1);
  CHECK(seen.size() > 1);
}

TEST_CASE("queries get work done little by little") {
  const FreshEmulator fresh;
  const Stream stream = make_stream();
  const CudaEvent event = make_event();
  const CudaEvent unused = make_event();
  const DeviceArray<int> value = on_device<int>({0});
  CHECK(cudaEventQuery(unused.get()) == cudaSuccess);
  CHECK(cudaStreamQuery(stream.get()) == cudaSuccess);
  for (int i = 0; i < 20; ++i) launch(append_kernel, kOne, stream.get(), value.data(), 0);
  CHECK(cudaEventRecord(event.get(), stream.get()) == cudaSuccess);
  CHECK(cudaEventQuery(event.get()) == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaSuccess);
  int num_queries = 1;
  while (cudaEventQuery(event.get()) == cudaErrorNotReady) ++num_queries;
  CHECK(num_queries > 5);
  CHECK(num_queries < 200);
  CHECK(cudaStreamQuery(stream.get()) == cudaSuccess);
  CHECK(emulator::num_kernels_executed() == 20);
}

TEST_CASE("events have times in the order of their stream") {
  const FreshEmulator fresh;
  const Stream stream = make_stream();
  const CudaEvent start = make_event();
  const CudaEvent stop = make_event();
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, start.get(), stop.get()) ==
        cudaErrorInvalidResourceHandle);
  CHECK(cudaEventRecord(start.get(), stream.get()) == cudaSuccess);
  const DeviceArray<int> value = on_device<int>({0});
  for (int i = 0; i < 100; ++i) launch(set_kernel, {10, 32}, stream.get(), value.data(), i);
  CHECK(cudaEventRecord(stop.get(), stream.get()) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&milliseconds, start.get(), stop.get()) == cudaErrorNotReady);
  CHECK(cudaEventSynchronize(stop.get()) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&milliseconds, start.get(), stop.get()) == cudaSuccess);
  CHECK(milliseconds > 0);
  CHECK(cudaEventElapsedTime(&milliseconds, stop.get(), start.get()) == cudaSuccess);
  CHECK(milliseconds < 0);
  cudaEvent_t untimed = nullptr;
  CHECK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming) == cudaSuccess);
  CHECK(cudaEventRecord(untimed, stream.get()) == cudaSuccess);
  CHECK(cudaEventSynchronize(untimed) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&milliseconds, start.get(), untimed) ==
        cudaErrorInvalidResourceHandle);
  CHECK(cudaEventDestroy(untimed) == cudaSuccess);
}

TEST_CASE("the work of destroyed streams and events is still done") {
  const FreshEmulator fresh;
  const std::size_t num_streams = emulator::num_streams();
  const std::size_t num_events = emulator::num_events();
  const DeviceArray<int> value = on_device<int>({0});
  {
    const Stream first = make_stream();
    const Stream second = make_stream();
    const CudaEvent event = make_event();
    launch(append_kernel, kOne, first.get(), value.data(), 1);
    CHECK(cudaEventRecord(event.get(), first.get()) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(second.get(), event.get()) == cudaSuccess);
    launch(append_kernel, kOne, second.get(), value.data(), 2);
  }
  CHECK(emulator::num_events() == num_events);
  CHECK(value_of(value) == 12);
  CHECK(emulator::num_streams() == num_streams);
}

TEST_CASE("a graph replays with the memory's contents and the arguments of its capture") {
  const FreshEmulator fresh;
  const Stream stream = make_stream();
  const DeviceArray<int> value = on_device<int>({0, 0});
  const PinnedInts pinned(2);
  pinned[0] = 1;
  int more = 10;
  begin(stream);
  CHECK(status_of(stream) == cudaStreamCaptureStatusActive);
  CHECK(copy(value.data(), pinned.data(), stream.get()) == cudaSuccess);
  launch(add_kernel, kOne, stream.get(), value.data(), value.data() + 1, more);
  CHECK(copy(&pinned[1], value.data() + 1, stream.get()) == cudaSuccess);
  more = 1000;
  const GraphExec exec = end(stream);
  CHECK(status_of(stream) == cudaStreamCaptureStatusNone);
  CHECK(emulator::num_kernels_executed() == 0);
  for (int i = 1; i <= 3; ++i) {
    pinned[0] = i;
    CHECK(cudaGraphLaunch(exec.get(), stream.get()) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream.get()) == cudaSuccess);
    CHECK(pinned[1] == i + 10);
  }
  // Pageable memory is read by the replay too.
  int pageable = 5;
  begin(stream);
  CHECK(copy(value.data(), &pageable, stream.get()) == cudaSuccess);
  const GraphExec upload = end(stream);
  pageable = 6;
  CHECK(cudaGraphLaunch(upload.get(), stream.get()) == cudaSuccess);
  CHECK(value_of(value) == 6);
}

TEST_CASE("launches are counted as they are enqueued, kernels as they run") {
  const FreshEmulator fresh;
  const Stream stream = make_stream();
  const DeviceArray<int> value = on_device<int>({0});
  begin(stream);
  launch(append_kernel, kOne, stream.get(), value.data(), 1);
  const GraphExec exec = end(stream);
  for (int i = 0; i < 3; ++i) {
    CHECK(cudaGraphLaunch(exec.get(), stream.get()) == cudaSuccess);
  }
  CHECK(emulator::num_kernels_executed() == 0);
  CHECK(value_of(value) == 111);
  CHECK(emulator::num_graph_launches() == 3);
  CHECK(emulator::num_launches() == 1);
  CHECK(emulator::num_kernels_executed() == 3);
}

TEST_CASE("graphs run in the order of their stream and outlive their handle") {
  const FreshEmulator fresh;
  const std::size_t num_graphs = emulator::num_graphs();
  const Stream stream = make_stream();
  const DeviceArray<int> value = on_device<int>({0});
  {
    begin(stream);
    launch(append_kernel, kOne, stream.get(), value.data(), 2);
    launch(append_kernel, kOne, stream.get(), value.data(), 3);
    const GraphExec exec = end(stream);
    CHECK(cudaGraphUpload(exec.get(), stream.get()) == cudaSuccess);
    launch(append_kernel, kOne, stream.get(), value.data(), 1);
    CHECK(cudaGraphLaunch(exec.get(), stream.get()) == cudaSuccess);
    launch(append_kernel, kOne, stream.get(), value.data(), 4);
  }
  CHECK(emulator::num_graphs() == num_graphs);
  CHECK(value_of(value) == 1234);
}

TEST_CASE("a capture spreads over streams by events, and they must come back") {
  std::set<int> results;
  for (std::uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    const FreshEmulator fresh;
    emulator::set_seed(seed);
    const Stream stream = make_stream();
    const Stream side = make_stream();
    const CudaEvent fork = make_event();
    const CudaEvent join = make_event();
    const DeviceArray<int> value = on_device<int>({0});
    begin(stream);
    launch(append_kernel, kOne, stream.get(), value.data(), 1);
    CHECK(cudaEventRecord(fork.get(), stream.get()) == cudaSuccess);
    CHECK(status_of(side) == cudaStreamCaptureStatusNone);
    CHECK(cudaStreamWaitEvent(side.get(), fork.get()) == cudaSuccess);
    CHECK(status_of(side) == cudaStreamCaptureStatusActive);
    launch(append_kernel, kOne, side.get(), value.data(), 2);
    launch(append_kernel, kOne, stream.get(), value.data(), 3);
    CHECK(cudaEventRecord(join.get(), side.get()) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(stream.get(), join.get()) == cudaSuccess);
    launch(append_kernel, kOne, stream.get(), value.data(), 4);
    const GraphExec exec = end(stream);
    CHECK(status_of(side) == cudaStreamCaptureStatusNone);
    CHECK(cudaGraphLaunch(exec.get(), stream.get()) == cudaSuccess);
    results.insert(value_of(value));
    CHECK(cudaEventQuery(fork.get()) == cudaErrorCapturedEvent);
    CHECK(cudaEventRecord(fork.get(), stream.get()) == cudaSuccess);
    CHECK(cudaEventSynchronize(fork.get()) == cudaSuccess);
  }
  CHECK(results == std::set<int>{1234, 1324});
}

TEST_CASE("captures that are not closed are refused") {
  const FreshEmulator fresh;
  const Stream stream = make_stream();
  const Stream side = make_stream();
  const CudaEvent event = make_event();
  const DeviceArray<int> value = on_device<int>({0});
  begin(stream);
  CHECK(cudaEventRecord(event.get(), stream.get()) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(side.get(), event.get()) == cudaSuccess);
  launch(set_kernel, kOne, side.get(), value.data(), 1);
  CHECK(end_status(stream) == cudaErrorStreamCaptureUnjoined);

  const CudaEvent outside = make_event();
  CHECK(cudaEventRecord(outside.get(), side.get()) == cudaSuccess);
  begin(stream);
  CHECK(cudaStreamWaitEvent(stream.get(), outside.get()) == cudaErrorStreamCaptureIsolation);
  CHECK(status_of(stream) == cudaStreamCaptureStatusInvalidated);
  CHECK(end_status(stream) == cudaErrorStreamCaptureInvalidated);

  begin(stream);
  CHECK(cudaEventRecord(event.get(), stream.get()) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(side.get(), event.get()) == cudaSuccess);
  CHECK(end_status(side) == cudaErrorStreamCaptureUnmatched);
  CHECK(end_status(stream) == cudaErrorStreamCaptureInvalidated);
  CHECK(end_status(stream) == cudaErrorIllegalState);
  CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed) ==
        cudaErrorStreamCaptureUnsupported);

  begin(stream);
  CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed) ==
        cudaErrorIllegalState);
  begin(side);
  CHECK(cudaEventRecord(event.get(), side.get()) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(stream.get(), event.get()) == cudaErrorStreamCaptureMerge);
  CHECK(end_status(stream) == cudaErrorStreamCaptureInvalidated);
  CHECK(end_status(side) == cudaErrorStreamCaptureInvalidated);
}

TEST_CASE("a capture forbids to wait, and to allocate unless it is relaxed") {
  const FreshEmulator fresh;
  const Stream stream = make_stream();
  const Stream other = make_stream();
  const CudaEvent event = make_event();
  const DeviceArray<int> value = on_device<int>({0});
  int host = 0;
  void* memory = nullptr;
  const auto refused = [&](cudaStreamCaptureMode mode, auto call) {
    begin(stream, mode);
    const cudaError_t error = call();
    const cudaError_t expected =
        error == cudaSuccess ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
    CHECK(end_status(stream) == expected);
    return error;
  };
  for (const cudaStreamCaptureMode mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
        cudaStreamCaptureModeRelaxed}) {
    const cudaError_t if_strict =
        mode == cudaStreamCaptureModeRelaxed ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
    CAPTURE(static_cast<int>(mode));
    CHECK(refused(mode, [&] { return cudaStreamSynchronize(stream.get()); }) ==
          cudaErrorStreamCaptureUnsupported);
    CHECK(refused(mode, [&] { return cudaStreamQuery(stream.get()); }) ==
          cudaErrorStreamCaptureUnsupported);
    CHECK(refused(mode, [&] { return cudaDeviceSynchronize(); }) ==
          cudaErrorStreamCaptureUnsupported);
    CHECK(refused(mode, [&] {
            return cudaMemcpy(&host, value.data(), sizeof host, cudaMemcpyDeviceToHost);
          }) == cudaErrorStreamCaptureUnsupported);
    CHECK(refused(mode, [&] { return cudaMalloc(&memory, 16); }) == if_strict);
    CHECK(refused(mode, [&] { return cudaEventQuery(event.get()); }) == if_strict);
    CHECK(refused(mode, [&] { return cudaStreamSynchronize(other.get()); }) == if_strict);
  }
  CHECK(cudaFree(memory) == cudaSuccess);
  CHECK(cudaGetLastError() != cudaSuccess);
}

TEST_CASE("events and streams that do not exist are refused") {
  const FreshEmulator fresh;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, 2) == cudaErrorInvalidValue);
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  CHECK(cudaEventCreate(&event) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  CHECK(cudaEventDestroy(event) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventDestroy(event) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventRecord(event) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventSynchronize(event) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamWaitEvent(nullptr, event) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamDestroy(nullptr) == cudaErrorInvalidResourceHandle);
  CHECK(cudaGraphLaunch(nullptr, nullptr) == cudaErrorInvalidValue);
  CHECK(cudaGraphDestroy(nullptr) == cudaErrorInvalidValue);
  CHECK(cudaGraphExecDestroy(nullptr) == cudaErrorInvalidValue);
}

}  // namespace TEST_FILE
