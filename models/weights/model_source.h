// SPDX-License-Identifier: Apache-2.0
// Where a scenario's model comes from: its configuration, and weights from files or from a draw.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/model/model_config.h"
#include "models/weights/model_weights.h"

namespace metronome {

struct Scenario;

struct ModelSource {
  std::string key;  // equal keys mean equal models
  ModelConfig config;
  std::shared_ptr<const WeightSource> weights;
  bool is_drawn = false;  // drawn from the scenario's seed: random_weights(config, seed)
  std::uint64_t seed = 0;
  std::string text;     // origin of the weights, for messages
  std::string warning;  // for an allowed but probably unintended setting; or empty
};

// Throws ConfigError for a model that no executor computes, and for missing or malformed weights.
ModelSource find_model_source(const Scenario& scenario);

// The draft model of speculative decoding. Throws ConfigError as find_model_source() does, and for
// a model that cannot draft for `model`: another vocabulary, or less than engine.max_model_len.
ModelSource find_draft_source(const Scenario& scenario, const ModelConfig& model);

}  // namespace metronome
