// SPDX-License-Identifier: Apache-2.0
// Gives the requests of a workload to the engine when they are due.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "core/engine/arrival_source.h"
#include "core/engine/request.h"
#include "core/workload/workload.h"

namespace metronome {

class WorkloadArrivals final : public ArrivalSource {
 public:
  // `workload` must outlive this.
  explicit WorkloadArrivals(const Workload& workload);

  std::optional<RequestSpec> pop_due(TimeNs now, std::int64_t step) override;
  TimeNs next_time() const override;
  std::optional<std::int64_t> next_step() const override;
  void on_ended(TimeNs now) override;  // a closed-loop client becomes idle
  std::size_t num_total() const override { return workload_.requests.size(); }
  std::size_t num_taken() const { return next_; }

 private:
  const Workload& workload_;
  std::size_t next_ = 0;
  std::deque<TimeNs> free_clients_;  // ClosedLoop: when each idle client sends its next request
};

}  // namespace metronome
