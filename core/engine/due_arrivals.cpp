// SPDX-License-Identifier: Apache-2.0
#include "core/engine/due_arrivals.h"

#include <algorithm>

#include "core/engine/engine.h"

namespace metronome {

DueArrivals::DueArrivals(ArrivalSource& arrivals, const Engine& engine)
    : arrivals_(arrivals), num_reported_(engine.num_ended()) {}

// A client may send its next request as soon as one has ended or was rejected.
bool DueArrivals::has_news(const Engine& engine) const {
  return num_reported_ < engine.num_ended();
}

// Arrivals by step pause while the scheduler or a front end waits for a time.
bool DueArrivals::may_skip_steps(const Engine& engine) const {
  return engine.is_idle() && arrivals_.next_step() && arrivals_.next_time() == kNever &&
         engine.wake_time() == kNever;
}

void DueArrivals::exchange(Engine& engine, TimeNs now, bool receives) {
  if (now < next_arrival_ && !has_news(engine)) return;
  if (!has_news(engine) && may_skip_steps(engine)) {
    num_skipped_ = std::max(num_skipped_, *arrivals_.next_step() - engine.num_plans());
  }
  do {
    for (; has_news(engine); ++num_reported_) arrivals_.on_ended(now);
    while (receives) {
      const auto spec = arrivals_.pop_due(now, engine.num_plans() + num_skipped_);
      if (!spec) break;
      engine.submit(*spec);
    }
  } while (has_news(engine));
  next_arrival_ = arrivals_.next_step() ? 0 : arrivals_.next_time();
}

TimeNs DueArrivals::next_time(const Engine& engine) const {
  if (has_news(engine) || may_skip_steps(engine)) return engine.now();
  return arrivals_.next_time();
}

std::optional<TimeNs> DueArrivals::wait(const Engine& engine) {
  const TimeNs next = engine.next_time();
  return next == kNever ? std::nullopt : std::optional(next);
}

std::optional<RequestSource::Quiet> DueArrivals::quiet(const Engine& engine) const {
  const auto next_step = arrivals_.next_step();
  return Quiet{arrivals_.next_time(),
               next_step ? *next_step - engine.num_plans() - num_skipped_ : INT64_MAX};
}

}  // namespace metronome
