// SPDX-License-Identifier: Apache-2.0
// A client's result as a result of this program: its figures, and its requests where their tokens
// have times.
#pragma once

#include <optional>

#include "core/metrics/run_record.h"
#include "reports/files/result_files.h"
#include "reports/measured/measured_run.h"

namespace metronome {

// The requests, seen by a client (RunRecord::has_steps() is false), in the order of
// MeasuredRun::requests. nullopt unless the run has the start of all requests and all gaps between
// the chunks of completed ones. A prompt of unknown length has 0 tokens.
std::optional<RunRecord> measured_record(const MeasuredRun& run);

// The figures of the requests by this program's definitions, else the client's own. What is not
// known is undefined.
ResultContent measured_content(const MeasuredRun& run);

}  // namespace metronome
