// SPDX-License-Identifier: Apache-2.0
// Requests of a log that has reports alone: drawn so that they have the tokens of each report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "study/rebuilt/rebuilt_requests.h"
#include "study/rebuilt/report_windows.h"

namespace metronome {

struct DrawSetup {
  std::optional<std::int64_t> pool_tokens;  // of the KV cache
  std::int64_t block_tokens = 16;
  std::int64_t max_model_len = 0;  // 0: not known
  std::uint64_t seed = 1;
  std::string advice;  // a sentence: how the log gets arrivals
};

struct DrawnRequests {
  std::string obstacle;  // why there are none; a sentence. Empty: there are some
  std::vector<RebuiltRequest> requests;
  std::size_t first_window = 0, last_window = 0;  // that they are of; both included
  std::string summary;                            // "60 requests drawn to match 10 reports: ..."
  std::vector<std::string> remarks;
};

// Their number is that of the logged arrivals, or of the answered calls. Without either it follows
// from the KV cache's use: running requests hold their prompts and half of their outputs on
// average, and the reports say how many tokens of both came. Prompts and outputs have the spread of
// public conversations around their mean, prompts the sum of each report, outputs the sum of all;
// none is longer than a logged `max_tokens`.
DrawnRequests draw_requests(const ReportWindows& reports, const DrawSetup& setup);

}  // namespace metronome
