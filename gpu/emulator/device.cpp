// SPDX-License-Identifier: Apache-2.0
#include "gpu/emulator/device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "gpu/emulator/sanitizer.h"

namespace metronome::emulator {

namespace {

constexpr std::size_t kAlignment = 256;  // of cudaMalloc

template <class T>
bool is_done(const std::shared_ptr<T>& ticket) {
  return ticket == nullptr || ticket->is_done;
}

}  // namespace

Device& device() {
  static Device& the_device = *new Device;  // never destroyed: objects may free its memory later
  return the_device;
}

Device::Device() { legacy_.is_blocking = true; }

cudaError_t Device::status() const {
  return settings.device_count_error != cudaSuccess ? settings.device_count_error : sticky_error;
}

void Device::set_seed(std::uint64_t seed) {
  settings.seed = seed;
  random = FastRandom(seed);
}

void Device::reset() {
  for (CUstream_st* stream : all_streams()) {
    for (const Work& work : stream->queue) work.ticket->is_done = true;
    stream->queue.clear();
    stream->capture.reset();
    stream->frontier.clear();
  }
  std::erase_if(streams, [](const auto& entry) { return entry.second->is_destroyed; });
  captures_.clear();
  settings = {};
  counters = {};
  max_dynamic_shared.clear();
  random = FastRandom(settings.seed);
  sticky_error = cudaSuccess;
  failure.clear();
}

CUstream_st* Device::find(cudaStream_t handle) {
  if (handle == nullptr) return &legacy_;
  const auto found = streams.find(handle);
  return found == streams.end() || found->second->is_destroyed ? nullptr : found->second.get();
}

std::vector<CUstream_st*> Device::all_streams() {
  std::vector<CUstream_st*> result = {&legacy_};
  for (const auto& [handle, stream] : streams) result.push_back(stream.get());
  return result;
}

// ---- Work.

cudaError_t Device::issue(CUstream_st& stream, Action action) {
  if (stream.capture) {
    Capture& capture = *stream.capture;
    if (!capture.is_valid) return cudaErrorStreamCaptureInvalidated;
    capture.nodes.push_back({std::move(action), std::move(stream.frontier)});
    stream.frontier = {capture.nodes.size() - 1};
    return cudaSuccess;
  }
  Work work{std::move(action), {}, std::make_shared<Ticket>()};
  work.ticket->stream = &stream;
  // The legacy stream waits for all blocking streams, and they wait for it.
  for (CUstream_st* other : all_streams()) {
    const bool is_pair =
        (&stream == &legacy_ && other->is_blocking) || (stream.is_blocking && other == &legacy_);
    if (other == &stream || !is_pair) continue;
    if (other->capture) {
      spoil(*other->capture);
      return cudaErrorStreamCaptureImplicit;
    }
    if (!is_done(other->last)) work.after.push_back(other->last);
  }
  stream.last = work.ticket;
  stream.queue.push_back(std::move(work));
  return cudaSuccess;
}

cudaError_t Device::wait_for(CUstream_st& stream, const CUevent_st& event) {
  if (event.capture) {
    if (stream.capture && stream.capture != event.capture) {
      spoil(*stream.capture);
      spoil(*event.capture);
      return cudaErrorStreamCaptureMerge;
    }
    if (event.capture->origin == nullptr) return cudaErrorCapturedEvent;  // the capture has ended
    if (!stream.capture) {
      stream.capture = event.capture;
      stream.frontier.clear();
    }
    stream.frontier.insert(event.frontier.begin(), event.frontier.end());
    return cudaSuccess;
  }
  if (stream.capture) {
    spoil(*stream.capture);
    return cudaErrorStreamCaptureIsolation;
  }
  if (is_done(event.recorded)) return cudaSuccess;
  const TicketPtr recorded = event.recorded;
  const cudaError_t error = issue(stream, nullptr);
  if (error == cudaSuccess) stream.queue.back().after.push_back(recorded);
  return error;
}

cudaError_t Device::record(CUstream_st& stream, CUevent_st& event) {
  if (stream.capture) {
    if (!stream.capture->is_valid) return cudaErrorStreamCaptureInvalidated;
    event.capture = stream.capture;
    event.frontier = stream.frontier;
    event.recorded.reset();
    return cudaSuccess;
  }
  if (const cudaError_t error = issue(stream, nullptr)) return error;
  event.capture.reset();
  event.recorded = stream.last;
  return cudaSuccess;
}

bool Device::is_ready(const Work& work) const {
  return std::all_of(work.after.begin(), work.after.end(), is_done<Ticket>);
}

bool Device::is_idle(const CUstream_st& stream) const { return stream.queue.empty(); }

void Device::run_head(CUstream_st& stream) {
  Work work = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (work.action && sticky_error == cudaSuccess) work.action();  // a broken device does nothing
  work.ticket->is_done = true;
  work.ticket->done_at = std::chrono::steady_clock::now();
  if (stream.is_destroyed && stream.queue.empty()) streams.erase(&stream);
}

// Does one piece of work of any stream; false if there is none.
bool Device::run_any() {
  std::vector<CUstream_st*> ready;
  for (CUstream_st* stream : all_streams()) {
    if (!stream->queue.empty() && is_ready(stream->queue.front())) ready.push_back(stream);
  }
  if (ready.empty()) return false;
  run_head(*ready[random.below(ready.size())]);
  return true;
}

// Does one piece of work that the ticket depends on.
void Device::run_towards(const Ticket& ticket) {
  CUstream_st* stream = ticket.stream;
  for (;;) {
    const std::vector<TicketPtr>& after = stream->queue.front().after;
    const auto blocking = std::find_if_not(after.begin(), after.end(), is_done<Ticket>);
    if (blocking == after.end()) break;
    stream = (*blocking)->stream;
  }
  run_head(*stream);
}

void Device::finish(const Ticket& ticket) {
  const MemoryAccess access(*this);
  const bool is_eager = random.chance_in_power(1);  // at random also does other work
  while (!ticket.is_done) {
    if (!is_eager || random.chance_in_power(1)) {
      run_towards(ticket);
    } else {
      run_any();
    }
  }
}

void Device::finish(const CUstream_st& stream) {
  const TicketPtr last = stream.last;
  if (last) finish(*last);
}

void Device::finish_all() {
  const MemoryAccess access(*this);
  while (run_any()) {
  }
}

void Device::advance_by_chance() {
  const MemoryAccess access(*this);
  for (std::size_t rest = random.below(4); rest > 0 && run_any(); --rest) {
  }
}

// ---- Kernels.

void Device::execute(const KernelLaunch& launch) {
  if (sticky_error != cudaSuccess) return;  // an earlier node of the same graph
  const std::int64_t number = counters.num_executed++;
  if (settings.executions_before_failure >= 0 && settings.executions_before_failure-- == 0) {
    fail(settings.execution_error, "a failure that the test asked for");
    return;
  }
  const std::uint64_t seed = mix64(settings.seed) + static_cast<std::uint64_t>(number);
  if (const auto broken = run_kernel(launch, seed)) fail(broken->error, broken->message);
}

void Device::fail(cudaError_t error, const std::string& message) {
  sticky_error = error;
  failure = message;
  if (!settings.are_failures_silent) {
    std::fprintf(stderr, "CUDA emulator: %s\n", message.c_str());
  }
}

cudaError_t Device::next_launch_error() {
  if (settings.launches_before_failure < 0) return cudaSuccess;
  return settings.launches_before_failure-- == 0 ? settings.launch_error : cudaSuccess;
}

// ---- Capture.

cudaError_t Device::begin_capture(CUstream_st& stream, cudaStreamCaptureMode mode) {
  if (&stream == &legacy_) return cudaErrorStreamCaptureUnsupported;
  if (stream.capture) return cudaErrorIllegalState;
  stream.capture = std::make_shared<Capture>();
  stream.capture->origin = &stream;
  stream.capture->mode = mode;
  stream.capture->thread = std::this_thread::get_id();
  stream.frontier.clear();
  captures_.push_back(stream.capture);
  return cudaSuccess;
}

cudaError_t Device::end_capture(CUstream_st& stream, Nodes& nodes) {
  const CapturePtr capture = stream.capture;
  if (!capture) return cudaErrorIllegalState;
  if (capture->origin != &stream) {
    spoil(*capture);
    return cudaErrorStreamCaptureUnmatched;
  }
  std::set<std::size_t> leaves;
  for (std::size_t i = 0; i < capture->nodes.size(); ++i) leaves.insert(i);
  for (const Node& node : capture->nodes) {
    for (const std::size_t earlier : node.after) leaves.erase(earlier);
  }
  const bool is_joined =
      std::includes(stream.frontier.begin(), stream.frontier.end(), leaves.begin(), leaves.end());
  for (CUstream_st* other : all_streams()) {
    if (other->capture != capture) continue;
    other->capture.reset();
    other->frontier.clear();
  }
  capture->origin = nullptr;
  std::erase_if(captures_, [&](const auto& entry) { return entry.lock() == capture; });
  if (!capture->is_valid) return cudaErrorStreamCaptureInvalidated;
  if (!is_joined) return cudaErrorStreamCaptureUnjoined;
  nodes = std::move(capture->nodes);
  return cudaSuccess;
}

// In global mode no thread may make an unsafe call. In thread-local mode only the capturing thread
// may not.
cudaError_t Device::check_unsafe_call() {
  cudaError_t error = cudaSuccess;
  for (const auto& entry : captures_) {
    const CapturePtr capture = entry.lock();
    if (!capture || capture->mode == cudaStreamCaptureModeRelaxed) continue;
    if (capture->mode == cudaStreamCaptureModeThreadLocal &&
        capture->thread != std::this_thread::get_id()) {
      continue;
    }
    spoil(*capture);
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

cudaError_t Device::check_synchronising_call() {
  for (const auto& entry : captures_) {
    if (const CapturePtr capture = entry.lock()) spoil(*capture);
  }
  return captures_.empty() ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}

// Runs the nodes in a random order that the graph allows.
void Device::run_nodes(const Nodes& nodes) {
  std::vector<std::size_t> num_missing(nodes.size());
  std::vector<std::vector<std::size_t>> next(nodes.size());
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    num_missing[i] = nodes[i].after.size();
    if (num_missing[i] == 0) ready.push_back(i);
    for (const std::size_t earlier : nodes[i].after) next[earlier].push_back(i);
  }
  while (!ready.empty()) {
    std::swap(ready[random.below(ready.size())], ready.back());
    const std::size_t node = ready.back();
    ready.pop_back();
    if (nodes[node].action) nodes[node].action();
    for (const std::size_t later : next[node]) {
      if (--num_missing[later] == 0) ready.push_back(later);
    }
  }
}

// ---- Memory.

Device::MemoryAccess::MemoryAccess(const Device& gpu) : gpu_(gpu) {
  for (const auto& [pointer, allocation] : gpu_.device_memory_) unpoison(pointer, allocation.size);
}

Device::MemoryAccess::~MemoryAccess() {
  for (const auto& [pointer, allocation] : gpu_.device_memory_) poison(pointer, allocation.size);
}

bool Device::contains(const Allocations& allocations, const void* pointer, std::size_t size) {
  auto found = allocations.upper_bound(pointer);
  if (found == allocations.begin()) return false;
  --found;
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(pointer) -
                                               static_cast<const char*>(found->first));
  return offset <= found->second.size && size <= found->second.size - offset;
}

bool Device::is_device_memory(const void* pointer, std::size_t size) const {
  return contains(device_memory_, pointer, size);
}

bool Device::is_device_memory(const void* pointer) const {
  return contains(device_memory_, pointer, 1);
}

bool Device::is_pinned_memory(const void* pointer, std::size_t size) const {
  return contains(pinned_memory_, pointer, size);
}

cudaError_t Device::allocate(void** pointer, std::size_t size) {
  *pointer = nullptr;
  if (size == 0) return cudaSuccess;
  if (size > settings.memory_limit || bytes_allocated_ > settings.memory_limit - size) {
    return cudaErrorMemoryAllocation;
  }
  AlignedMemory memory = allocate_aligned(kAlignment, size);
  if (!memory) return cudaErrorMemoryAllocation;
  std::memset(memory.get(), 0xff, size);
  *pointer = memory.get();
  device_memory_[*pointer] = {std::move(memory), size};
  poison(*pointer, size);
  bytes_allocated_ += size;
  return cudaSuccess;
}

bool Device::free(void* pointer) {
  const auto found = device_memory_.find(pointer);
  if (found == device_memory_.end()) return false;
  unpoison(pointer, found->second.size);
  bytes_allocated_ -= found->second.size;
  device_memory_.erase(found);
  return true;
}

cudaError_t Device::allocate_pinned(void** pointer, std::size_t size) {
  *pointer = nullptr;
  if (size == 0) return cudaSuccess;
  AlignedMemory memory = allocate_aligned(kAlignment, size);
  if (!memory) return cudaErrorMemoryAllocation;
  std::memset(memory.get(), 0xff, size);
  *pointer = memory.get();
  pinned_memory_[*pointer] = {std::move(memory), size};
  pinned_bytes_allocated_ += size;
  return cudaSuccess;
}

bool Device::free_pinned(void* pointer) {
  const auto found = pinned_memory_.find(pointer);
  if (found == pinned_memory_.end()) return false;
  pinned_bytes_allocated_ -= found->second.size;
  pinned_memory_.erase(found);
  return true;
}

// ---- Resources of devices (CUDA C++ programming guide, "Technical specifications per compute
// capability").

std::size_t max_shared_per_block(int major, int minor) {
  const std::size_t kib = major >= 9 ? 227 : major == 8 && minor == 0 ? 163 : 99;
  return kib * 1024;
}

std::size_t shared_per_multiprocessor(int major, int minor) {
  const std::size_t kib = major >= 9 ? 228 : major == 8 && minor == 0 ? 164 : 100;
  return kib * 1024;
}

int max_threads_per_multiprocessor(int major, int minor) {
  return major == 8 && minor != 0 ? 1536 : 2048;
}

}  // namespace metronome::emulator
