// SPDX-License-Identifier: Apache-2.0
#include "reports/files/named_model.h"

#include "core/base/error.h"
#include "core/base/names.h"
#include "core/config/catalogue.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/scenario.h"
#include "core/scenario/simulated_model.h"
#include "reports/files/result_reader.h"

namespace metronome {
namespace {

const ModelConfig* catalogue_model(const std::string& name) {
  if (const std::string known = catalogue_name(name); !known.empty()) {
    return find_entry(all_models(), known);
  }
  return find_entry(all_models(), lower_ascii(name));
}

}  // namespace

NamedModel served_model(const std::string& name) {
  NamedModel model{name, std::nullopt};
  std::string rest = name;
  while (rest.ends_with('/')) rest.pop_back();
  if (const std::size_t slash = rest.rfind('/'); slash != std::string::npos) {
    rest = rest.substr(slash + 1);
  }
  // "Llama-3.1-8B-Instruct": parts behind the name say how the model was trained or stored.
  while (!rest.empty()) {
    if (const ModelConfig* found = catalogue_model(rest)) return {name, *found};
    const std::size_t dash = rest.rfind('-');
    rest = dash == std::string::npos ? std::string() : rest.substr(0, dash);
  }
  return model;
}

NamedModel scenario_model(const Scenario& scenario) {
  NamedModel model{scenario.model, std::nullopt};
  try {
    model.config = simulated_model(scenario);
    model.name = model.config->name;
  } catch (const ConfigError&) {  // its file is not here
  }
  return model;
}

NamedModel stored_model(const StoredRun& run) { return scenario_model(scenario_of(run)); }

}  // namespace metronome
