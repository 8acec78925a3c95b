// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/model_shape.h"

#include <limits>
#include <string>

#include "core/base/error.h"
#include "core/base/json_place.h"

namespace metronome {

ModelShape shape_of(const ModelConfig& model) {
  return {{"hidden_dim", model.hidden_dim},
          {"n_heads", model.n_heads},
          {"n_kv_heads", model.n_kv_heads},
          {"head_dim", model.head_dim},
          {"ffn_dim", model.n_moe_layers() < model.n_layers ? model.ffn_dim : 0},
          {"n_experts", model.n_experts},
          {"n_experts_per_token", model.n_experts_per_token},
          {"expert_ffn_dim", model.expert_ffn_dim},
          {"vocab_size", model.vocab_size}};
}

Json shape_json(const ModelShape& shape) {
  Json json = Json::object();
  for (const auto& [key, value] : shape) json[key] = value;
  return json;
}

void require_shape(const CostModelFile& file, const ModelShape& shape, const ModelConfig& model) {
  const JsonPlace measured_shape = JsonPlace(file.name + ": body", *file.body).at("shape");
  for (const auto& [key, value] : shape) {
    if (!measured_shape.has(key)) {
      throw ConfigError(file.name + ": was measured with " + file.model + ", which has no " +
                        std::string(key) + "; that of " + model.name + " is " +
                        std::to_string(value) + "; allowed: a model of the same shape");
    }
    const std::int64_t measured =
        measured_shape.at(key).integer(0, std::numeric_limits<std::int64_t>::max());
    if (measured == value) continue;
    throw ConfigError(file.name + ": was measured with " + file.model + ", whose " +
                      std::string(key) + " is " + std::to_string(measured) + "; that of " +
                      model.name + " is " + std::to_string(value) +
                      "; allowed: a model of the same shape");
  }
}

}  // namespace metronome
