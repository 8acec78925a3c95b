// SPDX-License-Identifier: Apache-2.0
// The recorded requests of a run, from Metronome, vLLM's benchmark, or a server's request log. Two
// runs can be compared on what both recorded (reports/compare/validation.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "reports/files/result_reader.h"

namespace metronome {

enum class RunFormat : std::uint8_t {
  Metronome,   // a result folder
  VllmBench,   // the JSON of `vllm bench serve --save-result --save-detailed`
  RequestLog,  // JSON Lines with queued_ts, scheduled_ts, first_token_ts, last_token_ts in seconds
};

// A request that received all its tokens. Times are on the run's own clock; kNoTime if not
// recorded.
struct ObservedRequest {
  std::int32_t num_prompt_tokens = 0;
  std::int32_t num_output_tokens = 0;
  // The start of waiting for the first token: the arrival. For a request log, and for a run
  // compared with one, it is queued_ts: when the engine read its input after the arrival.
  TimeNs begin = kNoTime;
  TimeNs scheduled = kNoTime;  // a step was planned with it
  TimeNs first_token = kNoTime;
  TimeNs last_token = kNoTime;
  TimeNs ttft_ns = 0;
  TimeNs e2el_ns = 0;
  std::vector<TimeNs> gaps;  // between tokens, if recorded

  // vLLM's TPOT: time after the first token / number of tokens after the first. Requires two
  // tokens.
  double tpot_ns() const {
    return static_cast<double>(e2el_ns - ttft_ns) / static_cast<double>(num_output_tokens - 1);
  }
};

struct ObservedRun {
  std::string path;
  std::string model;  // of vLLM's benchmark, as the server calls it; empty: not recorded
  RunFormat format = RunFormat::Metronome;
  std::vector<ObservedRequest> requests;  // in the order of the file
  bool counts_from_queue = false;         // ObservedRequest::begin is queued_ts
  TimeNs duration_ns = 0;                 // from the first request's `begin` to the last token
  std::int64_t num_incomplete = 0;        // requests that are left out
  std::optional<StoredRun> stored;        // of a result folder
};

// Reads a result folder of one run, or a file, whose kind its content tells. With `from_queue` a
// result folder's times count from when its engine first planned a step after the arrival. Throws
// ConfigError with the file, the line and the key.
ObservedRun read_observed_run(const std::string& path, bool from_queue = false);

}  // namespace metronome
