// SPDX-License-Identifier: Apache-2.0
// Sentences of `metronome diagnose` about what a run or a log shows.
#pragma once

#include <string>
#include <vector>

#include "core/metrics/goals.h"
#include "core/metrics/summary.h"
#include "engines/arguments/engine_settings.h"
#include "engines/log/log_dialect.h"
#include "reports/files/result_reader.h"
#include "reports/terminal/diagnosis.h"

namespace metronome {

// "ITL p50 7.9 ms, p99 74.2 ms, longest 336.2 ms", and the same of TTFT.
std::string itl_text(const Distribution& itl);
std::string ttft_text(const Distribution& ttft);
// "answers during prefill: 1.85 tok/s each; slowest 10 s: 0.9 tok/s in all"; empty: no prompt was
// computed beside an answer.
std::string rates_text(const AnswerRates& rates);
// "of the time in gaps over the p99, 97.5 % is prefill"; empty: there are none.
std::string verdict(const Diagnosis& diagnosis);

// Whether the recorded run itself keeps every side, as far as it has it.
bool keeps_goals(const StoredRun& run, const std::vector<Goal>& goals);
// Whether the run's scenario has the number of KV blocks.
bool sets_pool(const RunInfo& info);

// Empty if no request was preempted in one of the stalls. Names settings of the policy's engine.
// `is_pool_set`: the run's scenario has the number of KV blocks.
std::string preemption_note(const Diagnosis& diagnosis, const std::string& policy,
                            bool is_pool_set);

// The tokens that drafts took from prompts. Empty if no prompt waited in a step with drafts.
std::string draft_note(const Summary& summary);

// The number of prompt tokens per step that keeps the limit, by the token cost of the longest gap
// of a log with these settings. Empty if no gap with prefill is too long.
std::string budget_note(const Diagnosis& diagnosis, const LogDialect& engine,
                        const EngineArguments& settings, double limit_ms);

}  // namespace metronome
