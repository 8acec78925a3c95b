// SPDX-License-Identifier: Apache-2.0
#include "engines/vllm/settings.h"

#include "core/config/config_limits.h"
#include "core/config/config_reader.h"

namespace metronome {

void visit_fields(FieldVisitor& visitor, VllmConfig& config) {
  visitor.choice("version", config.version, kVllmVersions, "vllm: the version whose rules decide");
  visitor.choice("scheduling_policy", config.scheduling_policy, kVllmPolicies,
                 "vllm: which request leaves the queue first and is preempted last");
  visitor.boolean("enable_chunked_prefill", config.enable_chunked_prefill,
                  "vllm: prompts may be computed in chunks");
  visitor.integer("long_prefill_token_threshold", config.long_prefill_token_threshold, 0,
                  kMaxTokens, "vllm: tokens of one request in a step; 0: no limit");
  visitor.boolean("scheduler_reserve_full_isl", config.scheduler_reserve_full_isl,
                  "vllm: admit a request only when its whole prompt has room");
  visitor.integer("max_num_active_seqs", config.max_num_active_seqs, 0, kMaxSeqs,
                  "vllm 0.31 and later: requests running at once; 0: engine.max_num_seqs");
  visitor.boolean("long_prefill_token_threshold_adaptive",
                  config.long_prefill_token_threshold_adaptive,
                  "vllm 0.31 and later: the threshold is at least the budget divided by the "
                  "requests that run or wait");
  visitor.integer("prefill_schedule_interval", config.prefill_schedule_interval, 1, 1 << 20,
                  "vllm 0.33 and later: steps from one with prompt tokens to the next, while "
                  "requests decode and the queue is short");
  visitor.boolean("disable_chunked_mm_input", config.disable_chunked_mm_input,
                  "vllm 0.33: no chunk ends inside an image");
}

}  // namespace metronome
