// SPDX-License-Identifier: Apache-2.0
// The gaps between tokens that an engine's log shows, and what they are made of.
//
// vLLM logs every iteration: each is one gap of the requests that it gave a token. SGLang logs
// every batch of prompts, and the decodes 40 at a time. There a gap is what passes between two
// decodes: one decode, and the prefill batches that ran before it without a decode between.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "engines/log/engine_log.h"
#include "reports/terminal/slow_decodes.h"

namespace metronome {

// Gaps of equal length at one place of the log.
struct LoggedGap {
  std::int64_t where = 0;  // the iteration's number, or the line
  TimeNs gap_ns = 0;
  TimeNs decode_ns = 0;  // of it; the rest is prefill
  std::int64_t num_gaps = 0;
  std::int64_t num_waiting = 0;  // requests
  std::int64_t num_prefill_tokens = 0;
  std::int64_t num_prefill_batches = 0;
  std::int64_t line = 0;  // if `where` is an iteration's number; else 0
  std::int32_t rank = 0;  // data-parallel

  DecodePlace place() const { return {where, line, rank}; }
};

struct LogGaps {
  std::string where_word;  // "iteration" or "line"
  bool has_ranks = false;  // several data-parallel ones
  std::vector<LoggedGap> gaps;
  std::vector<SlowDecodes> slow;
  std::vector<std::string> notes;  // what the log does not say, and what was taken instead
};

LogGaps gaps_of(const EngineLog& log);

}  // namespace metronome
