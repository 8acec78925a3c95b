// SPDX-License-Identifier: Apache-2.0
// llama.cpp's server as the registry of policies has it.
#pragma once

#include <memory>

#include "core/engine/policies/registry.h"

namespace metronome {

const PolicyInfo& llama_cpp_policy();

std::unique_ptr<Scheduler> make_llama_cpp(const SchedulerContext& context);

}  // namespace metronome
