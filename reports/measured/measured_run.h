// SPDX-License-Identifier: Apache-2.0
// A run of a server as a benchmark's client measured it, read from the client's own file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "core/metrics/figures.h"

namespace metronome {

constexpr std::int32_t kUnknownTokens = -1;

// Times are the client's: from sending the request to reading an answer. kNoTime, kUnknownTokens:
// the file does not have it.
struct MeasuredRequest {
  std::int32_t num_prompt_tokens = kUnknownTokens;
  std::int32_t num_output_tokens = kUnknownTokens;
  TimeNs start = kNoTime;    // when it was sent, after the first request of the run
  TimeNs ttft_ns = kNoTime;  // from then to the first token
  TimeNs e2el_ns = kNoTime;  // from then to the last token
  // Between the chunks of the answer. A chunk of several tokens has one gap.
  std::vector<TimeNs> gaps;
  std::string session;  // empty: none
  std::string error;    // empty: it completed
};

struct MeasuredRun {
  std::string path;        // of the file or folder
  std::string client;      // "vLLM's benchmark", "AIPerf 0.13.0"
  std::size_t number = 1;  // in the file, from 1
  std::size_t num_in_file = 1;
  std::string model;                   // as the server calls it; empty: unknown
  std::optional<double> request_rate;  // per second; infinite: all at once
  std::optional<std::int64_t> max_concurrency;
  TimeNs duration_ns = 0;  // 0: unknown
  // By their start with has_starts(), else in the order of the file; failed ones too. Empty: the
  // file has figures alone.
  std::vector<MeasuredRequest> requests;
  bool has_gaps = false;  // the file has MeasuredRequest::gaps
  std::int64_t num_completed = 0;
  std::int64_t num_failed = 0;
  // Reasons of failed requests, the commonest first: "2 of HTTP 500, 1 of timeout"; empty: unknown.
  std::string failures;
  // Of the file, where it has no requests: those that have our definition. Else all are absent.
  FigureValues figures;
  std::optional<double> mean_prompt_tokens;  // with `figures`
  std::optional<double> mean_output_tokens;
  // Facts that the file lacks, and what that leaves out: sentences without an end.
  std::vector<std::string> lacks;

  // Whether all completed requests have a start, of which there is at least one.
  bool has_starts() const;
  // "run 2 of 3", "4.00 requests/s", "at most 8 at once"; only what is known.
  std::string load_text() const;
};

}  // namespace metronome
