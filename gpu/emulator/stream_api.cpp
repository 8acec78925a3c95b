// SPDX-License-Identifier: Apache-2.0
// Calls of the CUDA runtime for streams, events and graphs.
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

#include "gpu/emulator/api_call.h"
#include "gpu/emulator/device.h"

using namespace metronome::emulator;

namespace {

template <class T>
T* add(Registry<T>& registry) {
  auto object = std::make_unique<T>();
  T* const pointer = object.get();
  registry.emplace(pointer, std::move(object));
  return pointer;
}

template <class Call>
cudaError_t event_call(cudaEvent_t event, Call call) {
  return api_call([&](Device& gpu) {
    if (!gpu.events.contains(event)) return cudaErrorInvalidResourceHandle;
    return call(gpu, *event);
  });
}

}  // namespace

// ---- Streams.

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return api_call([&](Device& gpu) {
    if (flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *stream = add(gpu.streams);
    (*stream)->is_blocking = flags == cudaStreamDefault;
    return cudaSuccess;
  });
}

// Its pending work is still done, as late as that of any other stream.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  Device& gpu = device();
  const std::lock_guard lock(gpu.mutex());
  CUstream_st* const stream = handle == nullptr ? nullptr : gpu.find(handle);
  if (stream == nullptr) return remember(cudaErrorInvalidResourceHandle);
  if (stream->capture) {
    Device::spoil(*stream->capture);
    stream->capture.reset();
  }
  stream->is_destroyed = true;
  if (stream->queue.empty()) gpu.streams.erase(handle);
  return remember(gpu.status());
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return stream_call(stream, [&](Device& gpu, CUstream_st& target) {
    if (target.capture) {
      Device::spoil(*target.capture);
      return cudaErrorStreamCaptureUnsupported;
    }
    if (const cudaError_t error = gpu.check_unsafe_call()) return error;
    gpu.finish(target);
    return gpu.status();
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return stream_call(stream, [&](Device& gpu, CUstream_st& target) {
    if (target.capture) {
      Device::spoil(*target.capture);
      return cudaErrorStreamCaptureUnsupported;
    }
    if (const cudaError_t error = gpu.check_unsafe_call()) return error;
    gpu.advance_by_chance();
    if (const cudaError_t error = gpu.status()) return error;
    return gpu.is_idle(target) ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return stream_call(stream, [&](Device& gpu, CUstream_st& target) {
    if (!gpu.events.contains(event)) return cudaErrorInvalidResourceHandle;
    return gpu.wait_for(target, *event);
  });
}

// ---- Events.

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return api_call([&](Device& gpu) {
    if (flags > (cudaEventBlockingSync | cudaEventDisableTiming)) return cudaErrorInvalidValue;
    *event = add(gpu.events);
    (*event)->has_timing = (flags & cudaEventDisableTiming) == 0;
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Device& gpu = device();
  const std::lock_guard lock(gpu.mutex());
  if (gpu.events.erase(event) == 0) return remember(cudaErrorInvalidResourceHandle);
  return remember(gpu.status());
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return stream_call(stream, [&](Device& gpu, CUstream_st& target) {
    if (!gpu.events.contains(event)) return cudaErrorInvalidResourceHandle;
    return gpu.record(target, *event);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return event_call(event, [](Device& gpu, CUevent_st& target) {
    if (target.capture) return cudaErrorCapturedEvent;
    if (const cudaError_t error = gpu.check_unsafe_call()) return error;
    const TicketPtr recorded = target.recorded;
    if (recorded) gpu.finish(*recorded);
    return gpu.status();
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return event_call(event, [](Device& gpu, CUevent_st& target) {
    if (target.capture) return cudaErrorCapturedEvent;
    if (const cudaError_t error = gpu.check_unsafe_call()) return error;
    gpu.advance_by_chance();
    if (const cudaError_t error = gpu.status()) return error;
    return !target.recorded || target.recorded->is_done ? cudaSuccess : cudaErrorNotReady;
  });
}

// Host time between the moments at which the emulator processed the events.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return api_call([&](Device& gpu) {
    if (!gpu.events.contains(start) || !gpu.events.contains(end)) {
      return cudaErrorInvalidResourceHandle;
    }
    const TicketPtr& from = start->recorded;
    const TicketPtr& to = end->recorded;
    if (!from || !to || !start->has_timing || !end->has_timing) {
      return cudaErrorInvalidResourceHandle;
    }
    if (!from->is_done || !to->is_done) return cudaErrorNotReady;
    using Milliseconds = std::chrono::duration<float, std::milli>;
    *milliseconds = Milliseconds(to->done_at - from->done_at).count();
    return cudaSuccess;
  });
}

// ---- Graphs.

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return stream_call(
      stream, [&](Device& gpu, CUstream_st& target) { return gpu.begin_capture(target, mode); });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return stream_call(stream, [&](Device& gpu, CUstream_st& target) {
    *graph = nullptr;
    Nodes nodes;
    if (const cudaError_t error = gpu.end_capture(target, nodes)) return error;
    *graph = add(gpu.graphs);
    (*graph)->nodes = std::make_shared<const Nodes>(std::move(nodes));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return stream_call(stream, [&](Device&, CUstream_st& target) {
    *status = !target.capture            ? cudaStreamCaptureStatusNone
              : target.capture->is_valid ? cudaStreamCaptureStatusActive
                                         : cudaStreamCaptureStatusInvalidated;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return api_call([&](Device& gpu) {
    if (!gpu.graphs.contains(graph)) return cudaErrorInvalidValue;
    *exec = add(gpu.graph_execs);
    (*exec)->nodes = graph->nodes;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  return stream_call(stream, [&](Device& gpu, CUstream_st&) {
    return gpu.graph_execs.contains(exec) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return stream_call(stream, [&](Device& gpu, CUstream_st& target) {
    if (!gpu.graph_execs.contains(exec)) return cudaErrorInvalidValue;
    if (const cudaError_t error = gpu.next_launch_error()) return error;
    ++gpu.counters.num_graph_launches;
    return gpu.issue(target, [&gpu, nodes = exec->nodes] { gpu.run_nodes(*nodes); });
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  Device& gpu = device();
  const std::lock_guard lock(gpu.mutex());
  return remember(gpu.graphs.erase(graph) == 0 ? cudaErrorInvalidValue : gpu.status());
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  Device& gpu = device();
  const std::lock_guard lock(gpu.mutex());
  return remember(gpu.graph_execs.erase(exec) == 0 ? cudaErrorInvalidValue : gpu.status());
}
