// SPDX-License-Identifier: Apache-2.0
// The model of a run, by a name that may not be one of the catalogue.
#pragma once

#include <optional>
#include <string>

#include "core/model/model_config.h"

namespace metronome {

struct Scenario;
struct StoredRun;

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
// The model of the scenario of a stored run.
NamedModel stored_model(const StoredRun& run);

}  // namespace metronome
