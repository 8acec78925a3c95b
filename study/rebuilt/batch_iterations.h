// SPDX-License-Identifier: Apache-2.0
// A log of batches as iterations: each batch of prompts is one, and the decode steps between them
// are counted by the lines about decodes and by the time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engines/log/engine_log.h"

namespace metronome {

struct BatchIterations {
  EngineLog log;             // with iterations of one rank in the place of its observations
  std::vector<TimeNs> ends;  // of each, on a clock of their own
  // Iterations that step times are fitted to. A batch that followed another has its own time,
  // others that of their tokens there; decode steps have it where no batch came between two lines.
  std::vector<bool> is_timed;
  std::size_t num_ranks = 1;
  std::int32_t rank = 0;
  std::int64_t num_cached_tokens = 0;  // of prompts, which were not computed
  // Lines of the busiest stretch with as many requests as can be searched; 0: those of all.
  std::int64_t first_line = 0, last_line = 0;
};

// Whether it has batches with their times, and lines about decodes.
bool has_timed_batches(const EngineLog& log);

// Requires has_timed_batches(). A line about decodes comes every `decode_interval` decode steps.
// The steps between a batch and the one before follow from the time between their lines, without
// the batch's own, as far as these lines allow. A step in which running requests wait has no decode
// tokens. `seed` is that of the steps in which requests ended. Step times are those of all lines.
BatchIterations batch_iterations(const EngineLog& log, std::uint64_t seed);

}  // namespace metronome
