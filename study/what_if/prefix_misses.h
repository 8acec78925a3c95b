// SPDX-License-Identifier: Apache-2.0
// Prompt tokens that a run computed although they were computed before.
#pragma once

#include <optional>

#include "core/metrics/first_tokens.h"
#include "study/what_if/what_if.h"

namespace metronome {

class Replays;

// Replays the run in caches that forget nothing, and looks for the smallest one that is nearly as
// good. `record` and `tokens` are those of the baseline. nullopt: its prompts share nothing, or
// nothing is cached.
std::optional<PrefixMisses> find_prefix_misses(const WhatIf& what_if, Replays& replays,
                                               const RunRecord& record, const FirstTokens& tokens);

}  // namespace metronome
