// SPDX-License-Identifier: Apache-2.0
// The recorded requests of a run, from Metronome, a benchmark's client, or a server's request log.
// Two runs can be compared on what both recorded (reports/compare/validation.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "reports/files/result_reader.h"
#include "reports/measured/measured_run.h"

namespace metronome {

enum class RunFormat : std::uint8_t {
  Metronome,   // a result folder
  Client,      // a result of vLLM's benchmark, AIPerf, ... (reports/measured)
  RequestLog,  // JSON Lines with queued_ts, scheduled_ts, first_token_ts, last_token_ts in seconds
};

// A request that received all its tokens. Times are on the run's own clock. What was not recorded
// is kNoTime or kUnknownTokens.
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

  bool has_tpot() const {
    return num_output_tokens > 1 && ttft_ns != kNoTime && e2el_ns != kNoTime;
  }
  // vLLM's TPOT: time after the first token / number of tokens after the first. Requires
  // has_tpot().
  double tpot_ns() const {
    return static_cast<double>(e2el_ns - ttft_ns) / static_cast<double>(num_output_tokens - 1);
  }
};

struct ObservedRun {
  std::string path;
  std::string model;  // that a client was given, as the server calls it; empty: not recorded
  RunFormat format = RunFormat::Metronome;
  // In the order of the file; those of a client's result by their start, if known. A client's
  // result may have figures instead (MeasuredRun::figures).
  std::vector<ObservedRequest> requests;
  bool counts_from_queue = false;  // ObservedRequest::begin is queued_ts
  // From the first request's `begin` to the last token; 0: unknown.
  TimeNs duration_ns = 0;
  std::int64_t num_incomplete = 0;    // requests that are left out
  std::optional<StoredRun> stored;    // of a result folder
  std::optional<MeasuredRun> client;  // of a client's result, its requests too

  // Requests that received all their tokens, in `requests` or not.
  std::int64_t num_completed() const;
};

struct ObservedRunOptions {
  // A result folder's times count from when its engine first planned a step after the arrival.
  bool from_queue = false;
  // Of a client's result with several runs, from 1; absent: it has one.
  std::optional<std::int64_t> run_number = std::nullopt;
};

// Reads a result folder of one run, or another file or folder, whose kind its content tells. Throws
// ConfigError with the file, the line and the key, also for a run number of something else.
ObservedRun read_observed_run(const std::string& path, const ObservedRunOptions& options = {});

// The completed requests of a client's result.
ObservedRun observed_run_of(MeasuredRun measured);
// A run of this program, as read_observed_run() gives it.
ObservedRun observed_run_of(StoredRun stored, bool from_queue);

}  // namespace metronome
