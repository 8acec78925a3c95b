// SPDX-License-Identifier: Apache-2.0
// Sarathi-Serve, and the schedulers that it is compared with in its own repository as the registry
// of policies has it.
#pragma once

#include <memory>

#include "core/engine/policies/registry.h"

namespace metronome {

const PolicyInfo& sarathi_policy();
const PolicyInfo& vllm_prefill_first_policy();
const PolicyInfo& orca_policy();
const PolicyInfo& simple_chunking_policy();

std::unique_ptr<Scheduler> make_sarathi(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_vllm_prefill_first(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_orca(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_simple_chunking(const SchedulerContext& context);

}  // namespace metronome
