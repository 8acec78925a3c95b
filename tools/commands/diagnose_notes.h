// SPDX-License-Identifier: Apache-2.0
// Sentences of `metronome diagnose` about what a run or a log shows.
#pragma once

#include <string>

#include "core/metrics/summary.h"
#include "engines/arguments/engine_settings.h"
#include "engines/log/log_dialect.h"
#include "reports/terminal/diagnosis.h"

namespace metronome {

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
