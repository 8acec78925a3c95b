// SPDX-License-Identifier: Apache-2.0
// Findings about late tokens from the result of a benchmark's client alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/distribution.h"
#include "core/base/json_text.h"
#include "reports/measured/measured_run.h"

namespace metronome {

// A gap between two chunks of an answer. Requests are numbered as in MeasuredRun::requests.
struct ClientGap {
  std::size_t request = 0;
  std::size_t chunk = 0;  // the one that came late, from 0
  TimeNs gap_ns = 0;
  TimeNs began = kNoTime;  // after the first request of the run; kNoTime: unknown
  // Other requests that got their first token within the gap, and the tokens of their prompts: what
  // the server computed meanwhile. Only with `began`.
  std::int64_t num_first_tokens = 0;
  std::int64_t num_prompt_tokens = 0;
};

struct LateFirstToken {
  std::size_t request = 0;
  TimeNs ttft_ns = 0;
  TimeNs start = kNoTime;
  std::int32_t num_prompt_tokens = kUnknownTokens;
};

struct ClientFindings {
  Distribution ttft, tpot, itl;
  std::optional<double> itl_limit_ms;
  std::int64_t num_gaps = 0;
  std::int64_t num_gaps_over = 0;      // the limit
  std::int64_t num_requests_over = 0;  // with such a gap
  std::vector<ClientGap> longest_gaps;
  std::vector<LateFirstToken> latest_first_tokens;
  std::vector<std::string> notes;
};

// Lists at most `max_entries` gaps and first tokens.
ClientFindings examine_client(const MeasuredRun& run, std::optional<double> itl_limit_ms,
                              std::size_t max_entries);

std::string client_findings_text(const MeasuredRun& run, const ClientFindings& findings);
void append_client_findings(const MeasuredRun& run, const ClientFindings& findings, JsonText& json);

}  // namespace metronome
