// SPDX-License-Identifier: Apache-2.0
// The certainty of a run's figures.
#pragma once

#include "core/run/run.h"
#include "reports/files/variant_result.h"

namespace metronome {

struct PreparedVariant;

// The error of the step times in runs like this, at the load of the run (Little's law).
std::optional<TimeAccuracy> accuracy_of(const PreparedRun& run, const Summary& summary);

// Repeats the simulation of a variant with other draws, and adds the bands of its figures to the
// outcome. With `cost_model.noise`, the draws are `noise_seeds` draws of the noise; run_variant()
// did the first. With `results.bands` they are also so many other seeds, and the two ends of the
// band of step times; TTFTs then have the band of TTFT, too. Does nothing for measured step times.
// Throws Interrupted if `progress` ends a run.
void add_bands(Backend& backend, PreparedVariant& variant, const ProgressFn& progress,
               VariantOutcome& outcome);

}  // namespace metronome
