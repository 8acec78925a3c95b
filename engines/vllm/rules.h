// SPDX-License-Identifier: Apache-2.0
// How vLLM's scheduler changed from version to version, as one table. Policy `vllm` and its cache
// read these rules. By version differ, too: the settings that there are (start.cpp), its server's
// defaults (serve_defaults.cpp) and memory (memory.cpp). Source: vllm/v1/core of the wheels on
// PyPI, in which each rule was looked up, 0.19.0 to 0.33.0.
#pragma once

#include "core/engine/scheduler_config.h"
#include "engines/vllm/settings.h"

namespace metronome {

struct VllmRules {
  // long_prefill_token_threshold does not apply in a step that begins with one request.
  bool lone_request_ignores_threshold = false;
  // Under scheduling_policy `priority`, the running requests behind one that preempted itself are
  // still scheduled.
  bool continues_after_own_preemption = false;
  // Under `priority`, the place in the running list moves back when the victim stood before it.
  // Otherwise it moves back when the victim had a chunk in this step, and may skip a request.
  bool moves_back_by_position = false;
  // Of window groups, only blocks are hashed that a later request can reach:
  // kv_cache.prefix_cache_retention_interval.
  bool retains_boundaries_only = false;
  // The boundaries include the end of a prefix that the full attention shares and the window does
  // not.
  bool retains_shared_prefixes = false;
  // A window of one token is hashed like others. Otherwise its group never caches a block.
  bool caches_one_token_windows = false;
  // Blocks before the window are released when the steps in flight no longer read them.
  bool releases_computed_windows = false;
  // A request is admitted by the most blocks of a window group that it holds at once. Otherwise by
  // the blocks of all its tokens.
  bool caps_window_admission = false;
  // These blocks count the tokens of every step in flight.
  bool caps_windows_by_steps_in_flight = false;
  // Freed blocks without a hash are reused before those with one: only those of window groups, all
  // of them with prefix caching, all of them without prefix caching.
  bool reuses_unhashed_windows_first = false;
  bool reuses_unhashed_first = false;
  bool reuses_first_without_caching = false;
};

VllmRules vllm_rules(const VllmConfig& config);

}  // namespace metronome
