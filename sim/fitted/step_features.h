// SPDX-License-Identifier: Apache-2.0
// Features of a forward pass that measured step times are fitted to.
#pragma once

#include "core/engine/step_plan.h"
#include "core/model/model_config.h"

namespace metronome {

// Features of one pass. `pairs` and `decode_kv` are means over the layers: a layer with a window
// counts at most that many positions per query. Without windows all layers have the same value.
struct StepFeatures {
  double tokens = 0;  // computed: the lengths of all chunks; of a decode 1, and its drafts
  // Prefill chunks: causal (query, key) pairs, the sum over queries of position + 1.
  double pairs = 0;
  double prefill_chunks = 0;
  double decodes = 0;
  double decode_kv = 0;   // positions that decodes attend to, including their own
  double rows = 0;        // of logits: of decodes all tokens, and chunks that end their prompt
  bool is_graph = false;  // decodes only, which engines replay as a graph
  double drafts = 0;      // of decodes: among their tokens and rows

  bool operator==(const StepFeatures&) const = default;
};

StepFeatures pass_features(const ModelConfig& model, const PassChunks& pass);

// The same pass without its prefill chunks.
StepFeatures decodes_of(const StepFeatures& pass);

}  // namespace metronome
