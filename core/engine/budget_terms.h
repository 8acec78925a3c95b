// SPDX-License-Identifier: Apache-2.0
// A policy in the terms of engines with a token budget for each step.
#pragma once

#include <cstdint>
#include <string>

#include "core/engine/scheduler_config.h"

namespace metronome {

struct BudgetTerms {
  std::int64_t budget = 0;  // tokens of a step; 0: the policy has no limit
  std::int64_t chunk = 0;   // prompt tokens of one request in a step; 0: no separate limit
  bool takes_whole_prompts = false;
  bool prefills_apart = false;  // prompt-only steps delay the decodes
  bool has_no_size = false;     // a step is limited by its time
  bool orders_by_priority = false;
  std::string note = {};  // how the policy differs from such an engine
};

// PolicyInfo::budget_terms; a policy without it has its budget alone.
BudgetTerms budget_terms(const SchedulerConfig& config);

// The most prompt tokens that the policy puts into one step: its budget, or the chunk of one
// prompt. 0: whole prompts, or a step limited by its time.
std::int64_t largest_prefill(const SchedulerConfig& config);

}  // namespace metronome
