// SPDX-License-Identifier: Apache-2.0
// Hands an engine the requests of an arrival source when they are due.
#pragma once

#include <cstddef>

#include "core/engine/arrival_source.h"
#include "core/engine/request_source.h"

namespace metronome {

class DueArrivals final : public RequestSource {
 public:
  // `arrivals` outlives this object. Requests of the engine that ended before are not reported.
  DueArrivals(ArrivalSource& arrivals, const Engine& engine);

  void exchange(Engine& engine, TimeNs now, bool receives) override;
  TimeNs next_time(const Engine& engine) const override;
  std::optional<TimeNs> wait(const Engine& engine) override;
  std::size_t num_total() const override { return arrivals_.num_total(); }
  std::optional<Quiet> quiet(const Engine& engine) const override;

 private:
  bool has_news(const Engine& engine) const;
  bool may_skip_steps(const Engine& engine) const;

  ArrivalSource& arrivals_;
  TimeNs next_arrival_ = 0;       // nothing arrives before, unless a request ends
  std::size_t num_reported_ = 0;  // requests that ended, reported to `arrivals`
  std::int64_t num_skipped_ = 0;  // steps in which nothing was computed, for arrivals by step
};

}  // namespace metronome
