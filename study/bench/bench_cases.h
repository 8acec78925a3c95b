// SPDX-License-Identifier: Apache-2.0
// The steps that `metronome bench` times and predicts, and the shared parts of its reports.
#pragma once

#include <string>
#include <vector>

#include "core/engine/step_plan.h"
#include "gpu/plan/bench_report.h"

namespace metronome {

// Ordered from a single decode to mixed steps.
std::vector<BenchCase> standard_cases();

// "64 decodes at 2,048", "chunk 512 after 2,048", or both.
std::string case_text(const BenchCase& what);

// The same step as a scheduler plans it: one pass in which every chunk samples a token.
StepPlan plan_of(const BenchCase& what);

// The first lines of a report: the model, the device, and the rates of its floors.
std::string bench_head_text(const ModelConfig& model, const std::string& device,
                            const MachineRates& rates);

// The model's shape as a JSON object, for other programs that build steps of it.
std::string shape_json(const ModelConfig& model);

constexpr const char* kNoCudaBench =
    "bench: this build has no CUDA executor (tools/build cuda builds it, with the CUDA toolkit)";

}  // namespace metronome
