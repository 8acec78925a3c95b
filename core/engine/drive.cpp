// SPDX-License-Identifier: Apache-2.0
#include "core/engine/drive.h"

#include <cstddef>
#include <optional>

#include "core/base/error.h"

namespace metronome {

bool drive(Engine& engine, RequestSource& source, Clock& clock, const ProgressFn& progress,
           std::int64_t steps_per_progress) {
  engine.receive_from(source);
  const std::size_t num_before = engine.requests().size();
  std::int64_t next_progress = progress ? steps_per_progress : INT64_MAX;
  while (true) {
    const auto next = engine.is_idle() ? source.wait(engine) : std::optional(engine.next_time());
    if (!next) break;
    clock.wait_until(*next);
    engine.take_turn(clock.now(), next_progress);
    if (engine.num_steps() < next_progress || engine.awaits_step()) continue;
    next_progress = engine.num_steps() + steps_per_progress;
    if (!progress({engine.num_ended(), source.num_total(), clock.now()})) return false;
  }
  METRONOME_CHECK(!engine.has_work(), "some requests can never be scheduled");
  const std::size_t num_total = source.num_total();
  METRONOME_CHECK(num_total == 0 || engine.requests().size() - num_before == num_total,
                  "every request of the source was submitted");
  METRONOME_CHECK(engine.num_ended() == engine.requests().size(), "every request ended");
  engine.check_integrity();
  return true;
}

}  // namespace metronome
