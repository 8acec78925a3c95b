// What the time of a forward pass depends on, in the few numbers that measured step times are
// fitted to.
#pragma once

#include <span>

#include "core/engine/step_plan.h"
#include "core/model/model_config.h"

namespace metronome {

// Of one pass. `pairs` and `decode_kv` are means over the layers: a layer with a window counts at
// most that many positions for each query. Without windows they are those of any layer.
struct StepFeatures {
  double tokens = 0;  // computed: all chunks' lengths, a decode is one
  // Prefill chunks: causal (query, key) pairs, the sum over queries of position + 1.
  double pairs = 0;
  double prefill_chunks = 0;
  double decodes = 0;
  double decode_kv = 0;   // positions that decodes attend to, their own included
  double rows = 0;        // of logits: decodes, and chunks that end their prompt
  bool is_graph = false;  // decodes alone, which engines replay as a graph

  bool operator==(const StepFeatures&) const = default;
};

StepFeatures pass_features(const ModelConfig& model, std::span<const ScheduledChunk> chunks);

// The same pass without its prefill chunks.
StepFeatures decodes_of(const StepFeatures& pass);

}  // namespace metronome
