// The variants of a scenario: chosen, prepared and run.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/engine/event.h"
#include "core/run/run.h"
#include "core/scenario/scenario.h"
#include "reports/files/variant_result.h"

namespace metronome {

// The scenarios to run: all variants, or those that were asked for, in the file's order. Throws
// UsageError for a name that the file does not have.
std::vector<Scenario> chosen_variants(const ScenarioFile& file,
                                      const std::vector<std::string>& names);

// Throws ConfigError.
std::vector<PreparedVariant> prepare_variants(Backend& backend, std::vector<Scenario> scenarios);

// `extra_sink` may be nullptr. Throws Interrupted when `progress` ends the run.
VariantOutcome run_variant(const Backend& backend, PreparedVariant& variant, EventSink* extra_sink,
                           const ProgressFn& progress);

// Simulates a variant whose step times are noisy as often as its `cost_model.noise_seeds` asks, of
// which run_variant() gave the first, and adds the bands of its figures to the outcome. Nothing
// where times are measured, or have no noise. Throws Interrupted when `progress` ends a run.
void add_noise_bands(const Backend& backend, PreparedVariant& variant, const ProgressFn& progress,
                     VariantOutcome& outcome);

}  // namespace metronome
