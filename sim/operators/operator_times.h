// SPDX-License-Identifier: Apache-2.0
// The measured operators of one model on one GPU, or one of several: what an operator cost model
// composes steps from.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/cost/curve.h"
#include "sim/cost/grid.h"
#include "sim/link/link.h"

namespace metronome {

// Attention of the layers of one kind, microseconds of a layer.
struct LayerAttention {
  Grid prompts;  // their number; (query, key) pairs of each, or with a window its tokens
  Grid decodes;  // their number; context of each
};

// Convolution and delta rule of a layer of linear attention.
struct StateTimes {
  Grid prompts;   // their number; tokens of each
  Curve decodes;  // by their number
};

// Latent attention between its projections, beside the kernels themselves.
struct LatentTimes {
  Curve expansion;   // keys and values of prompts, by the positions of their contexts
  Curve absorption;  // into the latent space and out of it, by decoded tokens
};

struct OperatorTimes {
  Curve projections;         // QKV, its gate, and output of a layer that attends, by tokens
  Curve mlp;                 // of a dense layer; empty: the model has none
  Curve experts;             // router and experts of a layer; empty: the model has none
  Curve shared_experts;      // of a layer; empty: the model has none
  Curve head;                // by rows of logits
  LayerAttention attention;  // without a window
  std::optional<LatentTimes> latent;         // of latent attention; absent: plain attention
  std::optional<LayerAttention> windowed;    // absent: `attention`, with lengths cut to the window
  Curve linear_projections;                  // of a layer of linear attention; empty: no such layer
  std::optional<StateTimes> states;          // with linear_projections
  std::vector<CollectiveTimes> collectives;  // among the model's devices
  double memory_bandwidth = 0;               // peak, bytes/s
  bool fuses_norms = false;                  // norms run inside the all-reduces before them
  std::optional<double> max_fused_bytes;     // of such an all-reduce; empty: no limit
  std::vector<std::string> remarks;          // what was not measured as the model needs it
};

}  // namespace metronome
