// SPDX-License-Identifier: Apache-2.0
// How long SGLang's batches of prompts took, without what the log says of it: nothing, in versions
// of 2025, and in those with `input throughput` the time since the batch before, whatever ran
// between. The time between two "Decode batch" lines, less the decodes, gives it, within limits
// from the times of these lines.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/types.h"
#include "engines/log/engine_log.h"
#include "reports/terminal/slow_decodes.h"

namespace metronome {

struct BatchTimes {
  std::vector<LogObservation> observations;  // the log's, with elapsed_ns of every batch
  double ns_per_token = 0;                   // over all intervals; 0: the log does not say it
  double requests_per_s = 0;                 // that came, by the batches and the times of lines
  // Of intervals with prompts: what several times the usual time of these leaves for decodes.
  std::vector<DecodeSample> least_decodes;
};

// Whether the log has batches of prompts, and none of them has a time.
bool lacks_batch_times(const EngineLog& log);

// `decode_ns` is the time of a decode step where nothing is known of steps with as many requests;
// `pure` has those without prompts between them. `decode_interval` are between two lines.
BatchTimes estimate_batch_times(const EngineLog& log, TimeNs decode_ns,
                                const std::vector<DecodeSample>& pure,
                                std::int64_t decode_interval);

}  // namespace metronome
