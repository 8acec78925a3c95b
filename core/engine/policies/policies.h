// SPDX-License-Identifier: Apache-2.0
// The factory functions of our own policies, one file each. registry.cpp lists them by name.
#pragma once

#include <memory>

namespace metronome {

class Scheduler;
struct SchedulerContext;

std::unique_ptr<Scheduler> make_static(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_continuous(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_chunked(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_token_budget(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_single_prefill(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_slo(const SchedulerContext& context);

}  // namespace metronome
