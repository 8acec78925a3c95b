// SPDX-License-Identifier: Apache-2.0
#include "core/workload/workload_arrivals.h"

#include "core/base/error.h"

namespace metronome {

WorkloadArrivals::WorkloadArrivals(const Workload& workload) : workload_(workload) {
  if (workload.mode != ArrivalMode::ClosedLoop) return;
  METRONOME_CHECK(workload.concurrency > 0, "a closed loop has at least one client");
  free_clients_.assign(static_cast<std::size_t>(workload.concurrency), TimeNs{0});
}

std::optional<RequestSpec> WorkloadArrivals::pop_due(TimeNs now, std::int64_t step) {
  if (next_ == num_total()) return std::nullopt;
  RequestSpec spec = workload_.requests[next_];
  switch (workload_.mode) {
    case ArrivalMode::Timed:
      if (spec.arrival > now) return std::nullopt;
      break;
    case ArrivalMode::Steps:
      if (spec.arrival > step) return std::nullopt;
      spec.arrival = now;
      break;
    case ArrivalMode::ClosedLoop:
      if (free_clients_.empty() || free_clients_.front() > now) return std::nullopt;
      spec.arrival = free_clients_.front();
      free_clients_.pop_front();
      break;
  }
  ++next_;
  return spec;
}

TimeNs WorkloadArrivals::next_time() const {
  if (next_ == num_total()) return kNever;
  switch (workload_.mode) {
    case ArrivalMode::Timed: return workload_.requests[next_].arrival;
    case ArrivalMode::Steps: return kNever;
    case ArrivalMode::ClosedLoop: return free_clients_.empty() ? kNever : free_clients_.front();
  }
  return kNever;
}

std::optional<std::int64_t> WorkloadArrivals::next_step() const {
  if (workload_.mode != ArrivalMode::Steps || next_ == num_total()) return std::nullopt;
  return workload_.requests[next_].arrival;
}

void WorkloadArrivals::on_ended(TimeNs now) {
  // All clients have the same think time, so the queue stays in order of time.
  if (workload_.mode == ArrivalMode::ClosedLoop)
    free_clients_.push_back(now + workload_.think_time);
}

}  // namespace metronome
