// SPDX-License-Identifier: Apache-2.0
// Explains late tokens: where the time between tokens went, the longest stalls, and whose prefill
// delayed other requests. Made from a run's record, or from the gaps of an engine's log, which has
// no request ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/distribution.h"
#include "core/base/text_block.h"
#include "core/metrics/gap_analysis.h"
#include "core/metrics/run_record.h"
#include "core/metrics/slo_config.h"
#include "reports/terminal/late_tokens.h"
#include "reports/terminal/slow_decodes.h"

namespace metronome {

class JsonText;
struct LogGaps;

// Prefill that delayed other requests: a chunk of a step or, in a log, all chunks of an iteration
// or of batches without a decode between them.
struct Blame {
  std::int64_t step = 0;
  std::optional<std::int64_t> request;  // nullopt: unknown in a log
  std::int32_t first_position = 0;      // of a request's chunk
  std::int32_t num_tokens = 0;
  std::int32_t num_batches = 1;
  TimeNs added_ns = 0;
  std::int32_t num_delayed = 0;

  TimeNs stall_ns() const { return added_ns * num_delayed; }
};

struct DiagnosedStall {
  TimeNs gap_ns = 0;
  GapParts parts;
  std::optional<std::int64_t> request;  // the first waiting request
  std::int32_t num_waiting = 0;         // GapAnalysis::num_waiting; in a log, of its iteration
  std::optional<TimeNs> began_at;
  std::int64_t step = 0;  // the step that ended the gap
  std::int64_t line = 0;  // of a log, if `step` is an iteration's number; else 0
  std::int32_t rank = 0;  // of a log
  std::optional<Blame> worst;
};

// All gaps, or those above a limit.
constexpr const char* kOverP99 = "over p99";
struct GapRow {
  std::string name;  // "all", kOverP99, "over the limit"
  std::optional<double> limit_ms;
  GapSum sum;
  TimeNs slow_ns = 0;  // of the decodes, in slow spans
};

struct Diagnosis {
  std::string step_word = "step";  // "iteration" or "line" in a log
  bool has_ranks = false;          // a log of several data-parallel ones
  bool is_estimated = false;       // the split into decode and prefill
  std::vector<GapRow> rows;
  std::vector<SlowDecodes> slow;
  std::vector<DiagnosedStall> stalls;    // longest first, one per step
  std::vector<Blame> chunks;             // by the delay caused to others
  std::vector<CulpritRequest> requests;  // in the same order, empty for a log
  std::optional<LateTokens> late;        // first tokens; absent for a log
};

// The limits of a diagnosis: the SLO's or any others.
struct DiagnosisLimits {
  std::optional<double> itl_ms = {};
  std::optional<double> ttft_ms = {};
  EngineLimits engine = {};
};

// At most `max_entries` stalls, first tokens, chunks and requests.
Diagnosis diagnose(const RunRecord& record, const Distribution& itl, const DiagnosisLimits& limits,
                   std::size_t max_entries);

// Diagnoses the gaps of a log. Sets `itl` to their distribution.
Diagnosis diagnose(const LogGaps& gaps, std::optional<double> itl_limit_ms, std::size_t max_entries,
                   Distribution& itl);

// A table each.
std::vector<TextBlock> diagnosis_blocks(const Diagnosis& diagnosis);
// Appends keys to an open object.
void append_diagnosis(const Diagnosis& diagnosis, JsonText& json);

}  // namespace metronome
