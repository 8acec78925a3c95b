// SPDX-License-Identifier: Apache-2.0
// Late first tokens of a run, as text and as JSON: where the time went, and whose prompts they
// waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/text_block.h"
#include "core/metrics/first_tokens.h"
#include "core/metrics/run_record.h"

namespace metronome {

class JsonText;

struct LateToken {
  std::size_t request = 0;
  TimeNs arrival = 0;
  TimeNs ttft_ns = 0;
  std::int32_t num_prompt_tokens = 0;
  FirstTokenParts parts;
  FirstTokenCulprit culprit;
};

struct LateTokens {
  std::vector<FirstTokenRow> rows;
  std::vector<LateToken> latest;  // the latest first
};

LateTokens find_late_tokens(const RunRecord& record, const EngineLimits& limits,
                            std::optional<double> ttft_limit_ms, std::size_t max_entries);

// A table each.
std::vector<TextBlock> late_token_blocks(const LateTokens& late);
// "Of the time to the first tokens over the p99, 81.2 % is waiting for a slot."; empty: there are
// none.
std::string late_verdict(const LateTokens& late);
// Appends an object.
void append_late_tokens(const LateTokens& late, JsonText& json);

}  // namespace metronome
