// SPDX-License-Identifier: Apache-2.0
// Facts about architectures that their config.json does not say, or says in a way of its own. The
// others need no row: any_config.h reads them by their keys alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/any_keys.h"
#include "core/model/any_layers.h"
#include "core/model/layer_kind.h"
#include "core/model/model_config.h"

namespace metronome {

struct AnyFamily {
  std::string_view model_type;  // of the language model; an ending "_text" may follow
  bool has_gated_mlp = true;
  bool gates_any_function = false;  // also those that others do not gate
  bool has_learned_positions = false;
  bool has_tied_tables = false;  // where the file does not say it
  bool has_post_norms = false;
  bool has_mlp_beside_experts = false;
  bool gates_attention = false;       // what heads attend to, by a projection of its own
  bool has_states_alone = false;      // no layer attends unless the file lists it
  StateKind state = StateKind::None;  // where keys do not tell which
  std::int64_t ffn_ratio = 4;         // of an MLP whose width the file does not say
  // Changes what the keys say of the layers, of one of them, and of the model.
  void (*fit_plans)(AnyKeys& keys, std::vector<LayerPlan>& plans) = nullptr;
  void (*fit_layer)(AnyKeys& keys, const ModelConfig& model, std::int64_t layer,
                    LayerParts& kind) = nullptr;
  void (*fit_model)(AnyKeys& keys, ModelConfig& model) = nullptr;
};

// The row of the file's model type, or of its architecture, or one without facts.
const AnyFamily& any_family(const JsonSection& root, const JsonSection& text,
                            const std::string& architecture);

}  // namespace metronome
