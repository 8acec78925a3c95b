// SPDX-License-Identifier: Apache-2.0
// SGLang as the registry of policies has it.
#pragma once

#include <memory>

#include "core/engine/policies/registry.h"

namespace metronome {

const PolicyInfo& sglang_policy();

std::unique_ptr<Scheduler> make_sglang(const SchedulerContext& context);

}  // namespace metronome
