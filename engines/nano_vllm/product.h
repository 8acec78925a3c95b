// SPDX-License-Identifier: Apache-2.0
// nano-vllm as the registry of policies has it.
#pragma once

#include <memory>

#include "core/engine/policies/registry.h"

namespace metronome {

const PolicyInfo& nano_vllm_policy();

std::unique_ptr<Scheduler> make_nano_vllm(const SchedulerContext& context);

}  // namespace metronome
