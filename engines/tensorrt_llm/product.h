// SPDX-License-Identifier: Apache-2.0
// TensorRT-LLM as the registry of policies has it.
#pragma once

#include <memory>

#include "core/engine/policies/registry.h"

namespace metronome {

const PolicyInfo& tensorrt_llm_policy();

std::unique_ptr<Scheduler> make_tensorrt_llm(const SchedulerContext& context);

}  // namespace metronome
