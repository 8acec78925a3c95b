// SPDX-License-Identifier: Apache-2.0
// Recorded requests from a file, read by a mapping of its columns or JSON fields: that of a known
// format (trace_mapping.cpp has the table), of the scenario, or both. Files are CSV, JSON lines or
// JSON arrays of objects; agents' files are documents with requests inside (trace_agents.h).
//
//   azure     A time is YYYY-MM-DD HH:MM:SS with any number of decimals and an optional Z or an
//             offset such as +01:00; digits beyond nanoseconds are dropped.
//   burstgpt  A response of 0 tokens records a failed request: it is left out and counted in
//             Workload::num_skipped.
//   mooncake, bailian
//             Hash ids stand for 512 and 16 prompt tokens each. Equal ids mean equal tokens, so
//             each becomes a PromptSegment. Mooncake's arrivals were recorded in buckets of 3 s.
//   sharegpt  One JSON object per line with the ids of the prompt (LLMServingSim's files). Lines of
//             served requests may also have images, a list of objects with first_token, rows and
//             columns (of tokens), and content (a number), url (data: with a PNG or JPEG file) or
//             both: a url gives the pixels of all images with its content. Or conversations as
//             published, in all their layouts, from which requests are selected as vLLM's benchmark
//             does: entries with at least two turns, shuffled by the seed; the first two turns are
//             prompt and answer, measured by config.tokenizer; prompt and answer have at least 4
//             tokens, at most 1024 the prompt and 2048 both together; `limit` requests, some of
//             them several times if there are fewer. No arrivals.
//
// Sessions: where a later request of a session has no arrival, it waits for the one before, and for
// its delay. Else requests come at their arrivals, and prompts of a session share their beginning.
//
// With a request_log the arrivals come from that file: a JSON object per line with arrival_time
// (s), input_toks and output_toks. The token counts must equal the trace's, line by line.
//
// Columns are found by their names, in any order. Others are noted in Workload::unused_fields. A
// prompt or an output of 0 tokens cannot be served and is an error (but see burstgpt). Blank lines
// are skipped. Requests are sorted by arrival, equal times in file order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/workload/workload.h"
#include "core/workload/workload_config.h"

namespace metronome {

// The file's first config.limit requests (at least one; 0: all) at the recorded times. `seed` is
// that of conversations. Throws ConfigError: for the file, at config.where; for a line,
// "file:line: column: what is wrong; what is allowed".
Workload read_trace(const TraceConfig& config, std::uint64_t seed = 0);
// Reads a file's text in that way; config.file is its name in messages.
Workload parse_trace(std::string_view text, const TraceConfig& config, std::uint64_t seed = 0);

// Applies jitter, shifts arrivals so that the first request comes at 0, and applies rate_scale.
// Requires the result of read_trace, with arrival times. Throws ConfigError when the last arrival
// is too late.
void place_recorded_arrivals(const TraceConfig& config, std::uint64_t seed, Workload& workload);

}  // namespace metronome
