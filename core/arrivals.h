// Hands the requests of a workload to the engine when they are due.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "core/request.h"
#include "core/workload.h"

namespace metronome {

class ArrivalSource {
 public:
  explicit ArrivalSource(const Workload& workload);

  // The next request due at time `now`, before step `step`; its arrival is a time.
  std::optional<RequestSpec> take_due(TimeNs now, std::int64_t step);

  // When idle: the time of the next arrival, kNever if none is due by time alone.
  TimeNs next_time() const;
  // When idle: the step of the next arrival, nullopt if arrivals do not go by steps or are over.
  std::optional<std::int64_t> next_step() const;

  // Tells a closed loop that a client has got its answer (or its refusal).
  void on_ended(TimeNs now);

  std::size_t num_taken() const { return next_; }
  std::size_t num_total() const { return workload_.requests.size(); }

 private:
  const Workload& workload_;
  std::size_t next_ = 0;
  std::deque<TimeNs> free_clients_;  // ClosedLoop: when each idle client sends its next request
};

}  // namespace metronome
