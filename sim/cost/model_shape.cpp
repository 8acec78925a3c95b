// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/model_shape.h"

#include <fmt/core.h>
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
      throw ConfigError(
          fmt::format("{}: was measured with {}, which has no {}; that of {} is {}; allowed: a "
                      "model of the same shape",
                      file.name, file.model, key, model.name, value));
    }
    const std::int64_t measured =
        measured_shape.at(key).integer(0, std::numeric_limits<std::int64_t>::max());
    if (measured == value) continue;
    throw ConfigError(
        fmt::format("{}: was measured with {}, whose {} is {}; that of {} is {}; allowed: a model "
                    "of the same shape",
                    file.name, file.model, key, measured, model.name, value));
  }
}

}  // namespace metronome
