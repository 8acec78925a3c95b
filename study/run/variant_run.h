// SPDX-License-Identifier: Apache-2.0
// Chooses, prepares and runs the variants of a scenario.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/engine/event.h"
#include "core/run/run.h"
#include "reports/files/variant_result.h"

namespace metronome {

class EndedRequestSink;
struct PreparedVariant;
struct Scenario;
struct ScenarioFile;

// The scenarios to run: all variants or the named ones, in the file's order. Throws UsageError for
// a name that the file does not contain.
std::vector<Scenario> chosen_variants(const ScenarioFile& file,
                                      const std::vector<std::string>& names);

// Throws ConfigError.
std::vector<PreparedVariant> prepare_variants(Backend& backend, std::vector<Scenario> scenarios);

// `extra_sink`, `step_sink` and `request_sink` may be nullptr; the last one takes the requests of a
// run that keeps no steps (keeps_steps()). Throws Interrupted if `progress` ends the run.
VariantOutcome run_variant(const Backend& backend, PreparedVariant& variant, EventSink* extra_sink,
                           const ProgressFn& progress, StepSink* step_sink = nullptr,
                           EndedRequestSink* request_sink = nullptr);

}  // namespace metronome
