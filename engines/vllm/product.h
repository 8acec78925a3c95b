// SPDX-License-Identifier: Apache-2.0
// vLLM as the registry of policies has it.
#pragma once

#include <memory>

#include "core/engine/policies/registry.h"

namespace metronome {

const PolicyInfo& vllm_policy();

std::unique_ptr<Scheduler> make_vllm(const SchedulerContext& context);

// Its cache rules that depend on settings; see PolicyInfo::adjust_cache.
void adjust_vllm_cache(const SchedulerConfig& config, std::int32_t max_model_len,
                       KvCacheLayout& layout);

}  // namespace metronome
