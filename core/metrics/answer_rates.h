// SPDX-License-Identifier: Apache-2.0
// The rates of answers while prompts are computed, and in the slowest ten seconds of a run.
#pragma once

#include <limits>

#include "core/base/types.h"
#include "core/metrics/run_record.h"

namespace metronome {

// Tokens per second. NaN where there is no such time, or no engine recorded the steps.
struct AnswerRates {
  // Tokens of requests in decode, over the seconds that these requests spent in decode, both while
  // some prompt is being computed: from the plan of the step with its first chunk to the end of the
  // step with its last one, with the steps between. A request is in decode from its first to
  // its last token, also while it stalls. A recomputation after a preemption counts as a prompt.
  double during_prefill = std::numeric_limits<double>::quiet_NaN();
  // The fewest output tokens of all requests in ten seconds in which some request is in decode all
  // the time. The windows are half-open: the token at the end counts, the one at the start does
  // not. Of a fleet: on one of its engines.
  double slowest_10s = std::numeric_limits<double>::quiet_NaN();
};

AnswerRates answer_rates(const RunRecord& record);

}  // namespace metronome
