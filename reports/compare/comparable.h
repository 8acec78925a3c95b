// SPDX-License-Identifier: Apache-2.0
// Whether the figures of two runs can be compared: the same model and the same requests.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/model_config.h"
#include "core/scenario/scenario.h"
#include "reports/compare/observed_run.h"

namespace metronome {

// A model by the name that a run or a log has for it, and its shape if that is known.
struct NamedModel {
  std::string name;  // empty: the run does not say
  std::optional<ModelConfig> config;
};

// The catalogue's model of a name that a server was given: a repository of Hugging Face, a folder,
// or the name of a model with parts behind it ("/models/Llama-3.1-8B-Instruct"). Looks at no file.
NamedModel served_model(const std::string& name);
// The scenario's model. Its file may be missing here; then the shape is unknown.
NamedModel scenario_model(const Scenario& scenario);
// The model of a run, as its file says.
NamedModel model_of(const ObservedRun& run);

struct ModelComparison {
  bool differs = false;  // the shapes differ
  // A sentence without an end: "the model is a, not b"; where it does not differ but the shapes
  // are not both known and the names are not the same, why it was not compared. Else empty.
  std::string text;
};
ModelComparison compare_models(const NamedModel& measured, const NamedModel& simulated);

struct RunDifferences {
  std::vector<std::string> found;    // "3 requests, not 2"
  std::vector<std::string> remarks;  // what may differ
};

// Differences in the model, the number of requests and their lengths. Requests that did not
// complete have unknown lengths. Requests in another order are the same. Remarks on a model that is
// not known, and on requests that arrive more than twice as fast in one of the runs.
RunDifferences differences_of(const ObservedRun& measured, const ObservedRun& simulated);

// "a; b".
std::string joined_differences(const std::vector<std::string>& found);

}  // namespace metronome
