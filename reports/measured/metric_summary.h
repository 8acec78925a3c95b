// SPDX-License-Identifier: Apache-2.0
// The summary that AIPerf and genai-perf export: an object of metrics, each with a unit and
// statistics.
#pragma once

#include "core/base/json_place.h"
#include "reports/measured/measured_run.h"

namespace metronome {

// Whether an object has at least one such metric of requests.
bool has_metric_summary(const Json& value);

// A duration {"value": 12.5, "unit": "ms"} in nanoseconds.
TimeNs metric_time(const JsonPlace& metric);

// Sets the counts, figures and mean lengths of a run without requests. `inter_token_latency` of
// both clients is (latency - TTFT) / (tokens - 1) of a request, the TPOT here. AIPerf's
// `inter_chunk_latency` has the gaps of all requests, the ITL here.
void read_metric_summary(const JsonPlace& metrics, MeasuredRun& run);

}  // namespace metronome
