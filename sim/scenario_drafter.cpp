// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario_drafter.h"

#include <fmt/core.h>
#include <string>

#include "core/base/error.h"
#include "core/scenario/scenario.h"
#include "core/scenario/simulated_model.h"

namespace metronome {
namespace {

ModelConfig draft_model(const Scenario& scenario, const ModelConfig& target) {
  const std::string key = "speculative.model";
  ModelConfig model = find_served_model(scenario.speculative.model, scenario.location_of(key));
  if (model.vocab_size != target.vocab_size) {
    throw UnplacedConfigError(
        key, fmt::format("{} has a vocabulary of {} tokens, and {} one of {}; allowed: a model "
                         "with the same vocabulary",
                         model.name, model.vocab_size, target.name, target.vocab_size));
  }
  if (scenario.kv_dtype != KvDtype::Auto) model.bytes_per_kv_element = target.bytes_per_kv_element;
  return model;
}

}  // namespace

std::optional<DrafterModel> find_drafter(const Scenario& scenario, const ModelConfig& target) {
  const SpeculativeConfig& config = scenario.speculative;
  if (config.num_speculative_tokens == 0) return std::nullopt;
  DrafterModel drafter;
  switch (config.method) {
    case SpeculativeMethod::None:
    case SpeculativeMethod::Ngram: return std::nullopt;
    case SpeculativeMethod::DraftModel:
      drafter.model = draft_model(scenario, target);
      drafter.has_own_tables = true;
      drafter.num_more_tokens = 1;
      break;
    case SpeculativeMethod::Eagle:
    case SpeculativeMethod::Mtp: drafter = layer_drafter(config.method, target); break;
  }
  drafter.tensor_parallel_size = static_cast<std::int32_t>(
      config.draft_tensor_parallel_size.value_or(scenario.cost_model.tensor_parallel_size));
  return drafter;
}

}  // namespace metronome
