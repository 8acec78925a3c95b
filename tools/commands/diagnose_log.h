// SPDX-License-Identifier: Apache-2.0
// `metronome diagnose LOG`.
#pragma once

#include "core/scenario/scenario.h"
#include "engines/arguments/engine_settings.h"
#include "engines/log/engine_log.h"
#include "tools/commands/diagnose_finding.h"

namespace metronome {

// The only variant of --scenario, or the one of --variant, with the engine's settings.
Scenario chosen_variant(const DiagnoseOptions& options, const EngineSettings& settings);

// Findings of a log, and a search for better settings: with the requests of --scenario, else with
// those that the log itself has.
Finding examine_log(const EngineLog& log, const DiagnoseOptions& options);

}  // namespace metronome
