// SPDX-License-Identifier: Apache-2.0
// Recorded requests from a file. The formats:
//
//   azure     CSV with TIMESTAMP, ContextTokens, GeneratedTokens (the 2023 and 2024 releases of
//             AzurePublicDataset). A time is YYYY-MM-DD HH:MM:SS with any number of decimals and
//             an optional Z or +HH:MM; digits beyond nanoseconds are dropped.
//   vidur     CSV with arrived_at, num_prefill_tokens, num_decode_tokens, or with arrival_s,
//             prompt_tokens, output_tokens; seconds.
//   burstgpt  CSV with Timestamp, Request tokens, Response tokens; seconds. A response of 0 tokens
//             records a failed request: it is left out and counted in Workload::num_skipped.
//   mooncake  One JSON object per line with timestamp (ms), input_length, output_length and
//             hash_ids, one id per 512 prompt tokens. Equal ids mean equal tokens, so each becomes
//             a PromptSegment. Arrivals were recorded in buckets of 3 s.
//   sharegpt  One JSON object per line with input_toks, output_toks, arrival_time_ns and
//             input_tok_ids, the ids of the prompt (LLMServingSim's files). Lines of served
//             requests may also have images, a list of objects with first_token, rows and columns
//             (of tokens), and content (a number), url (data: with a PNG or JPEG file) or both: a
//             url gives the pixels of all images with its content. Or a JSON array of
//             conversations as published, from which requests are selected as vLLM's benchmark
//             does: entries with at least two turns, shuffled by the seed; the first two turns are
//             prompt and answer, measured by config.tokenizer; prompt and answer have at least 4
//             tokens, at most 1024 the prompt and 2048 both together; `limit` requests, some of
//             them several times if there are fewer. Seed and tokenizer alike, the requests are
//             those of vLLM. They have no arrival times.
//
// With a request_log the arrivals come from that file: a JSON object per line with arrival_time
// (s), input_toks and output_toks. The token counts must equal the trace's, line by line.
//
// CSV columns are found by their names in the first line, in any order; other columns are ignored.
// A prompt or an output of 0 tokens cannot be served and is an error (but see burstgpt). Blank
// lines are skipped. Requests are sorted by arrival, equal times in file order.
#pragma once

#include <cstdint>
#include <string>

#include "core/workload/workload.h"
#include "core/workload/workload_config.h"

namespace metronome {

// The file's first config.limit requests (at least one; 0: all) at the recorded times. `seed` is
// that of conversations. Throws ConfigError: for the file, at config.where; for a line,
// "file:line: column: what is wrong; what is allowed".
Workload read_trace(const TraceConfig& config, std::uint64_t seed = 0);

// Applies jitter, shifts arrivals so that the first request comes at 0, and applies rate_scale.
// Requires the result of read_trace, with arrival times. Throws ConfigError when the last arrival
// is too late.
void place_recorded_arrivals(const TraceConfig& config, std::uint64_t seed, Workload& workload);

}  // namespace metronome
