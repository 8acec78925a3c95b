// SPDX-License-Identifier: Apache-2.0
// DeepSpeed-FastGen as the registry of policies has it.
#pragma once

#include <memory>

#include "core/engine/policies/registry.h"

namespace metronome {

const PolicyInfo& fastgen_policy();

std::unique_ptr<Scheduler> make_fastgen(const SchedulerContext& context);

}  // namespace metronome
