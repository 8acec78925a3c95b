// SPDX-License-Identifier: Apache-2.0
#include "gpu/engine/step_timer.h"

#include <algorithm>
#include <cmath>

namespace metronome {
namespace {

TimeNs elapsed_ns(const CudaEvent& from, const CudaEvent& to) {
  return std::llround(elapsed_ms(from, to) * static_cast<double>(kNsPerMs));
}

}  // namespace

StepTimer::StepTimer(const Clock& clock) : clock_(clock) {
  for (Marks& marks : marks_) {
    marks.begin = make_event();
    marks.end = make_event();
  }
}

void StepTimer::begin(cudaStream_t stream) {
  Marks& marks = marks_[num_begun_++ % kMaxSteps];
  marks.launched_at = clock_.now();
  check_cuda(cudaEventRecord(marks.begin.get(), stream), "cudaEventRecord");
}

void StepTimer::end(cudaStream_t stream) {
  check_cuda(cudaEventRecord(marks_[(num_begun_ - 1) % kMaxSteps].end.get(), stream),
             "cudaEventRecord");
}

StepTimer::Times StepTimer::wait() {
  const Marks& marks = marks_[num_waited_ % kMaxSteps];
  const cudaError_t state = cudaEventQuery(marks.end.get());
  if (state != cudaErrorNotReady) check_cuda(state, "a step");
  const bool has_to_wait = state == cudaErrorNotReady;
  if (has_to_wait) check_cuda(cudaEventSynchronize(marks.end.get()), "a step");
  const TimeNs now = clock_.now();
  const TimeNs duration = elapsed_ns(marks.begin, marks.end);
  Times times;
  times.finished_at = now;
  if (!has_to_wait && num_waited_ > 0) {
    const Marks& before = marks_[(num_waited_ - 1) % kMaxSteps];
    times.finished_at = std::min(now, finished_at_ + elapsed_ns(before.end, marks.end));
  }
  // A step starts after its launch and after the end of the step before.
  times.started_at = std::max({times.finished_at - duration, finished_at_, marks.launched_at});
  times.finished_at = std::max(times.finished_at, times.started_at);
  finished_at_ = times.finished_at;
  ++num_waited_;
  return times;
}

}  // namespace metronome
