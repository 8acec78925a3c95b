// SPDX-License-Identifier: Apache-2.0
// Step times of a form fitted to measured steps (sim/fitted/fitted_fit.h).
//
//   T(pass) = graph or eager + G(tokens) + prefill [has a prefill chunk] + pair x pairs
//           + chunk x prefill chunks + decode x decodes + decode_kv x KV positions
//           + head [has rows of logits] + row x rows
//
// The features are those of sim/fitted/step_features.h. G grows with the tokens in steps or ramps,
// as matrix products work in tiles. No coefficient is negative. A step is the sum of its passes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/hardware/hardware.h"
#include "core/metrics/step_regime.h"
#include "core/model/model_config.h"
#include "core/scenario/cost_model_config.h"
#include "sim/cost/cost_model.h"
#include "sim/fitted/step_features.h"

namespace metronome {

// All in nanoseconds.
struct FittedForm {
  // G from `above` (exclusive) up to the next piece's `above`.
  struct Piece {
    double above = 0;  // tokens
    double ns = 0;     // at the piece's beginning
    double ns_per_token = 0;
  };

  double graph = 0;
  double eager = 0;
  double prefill = 0;
  double pair = 0;
  double chunk = 0;
  double decode = 0;
  double decode_kv = 0;
  double head = 0;  // a pass with rows reads the head's weights once, whatever the number of rows
  double row = 0;
  std::vector<Piece> tokens;  // ascending; the first begins at 0
  // Decodes of more tokens, with their drafts, do not run as a graph; absent: all do.
  std::optional<std::int64_t> max_graph_decodes;

  double tokens_ns(double num_tokens) const;
  double pass_ns(const StepFeatures& pass) const;
};

// Minimum and maximum of each feature over the measured passes of one kind. Passes with prefill
// chunks are one kind, passes without are the other.
struct FeatureRange {
  StepFeatures min;
  StepFeatures max;

  void include(const StepFeatures& pass);
  bool contains(const StepFeatures& pass) const;
};

// The scatter of measured times around the fitted times in one regime.
struct StepScatter {
  // The shares of steps below each quantile. They are denser near the ends, where hiccups are.
  static constexpr double kShares[] = {0,   0.005, 0.01, 0.025, 0.05, 0.1,   0.2,  0.3,   0.4, 0.5,
                                       0.6, 0.7,   0.8,  0.9,   0.95, 0.975, 0.99, 0.995, 1};
  StepRegime regime;
  std::vector<double> ratios;  // measured / fitted at each of kShares; ascending
};

// The content of a file of kind `fitted`.
struct FittedModel {
  FittedForm form;
  std::string tokens_shape;                  // of G, in words
  std::optional<FeatureRange> decode_range;  // absent: no such pass was measured
  std::optional<FeatureRange> prefill_range;
  std::optional<double> host_gap_ns;  // absent: not measured
  double host_gap_chunk_ns = 0;       // additional gap per chunk of the next step
  std::vector<RegimeError> errors;    // of held-out steps
  std::vector<StepScatter> scatter;   // by regime
  std::int64_t num_steps = 0;         // measured
  std::int64_t num_hiccups = 0;       // among the fitted steps, ignored by the fit
  // False: context lengths and the chunks that end their prompts were not recorded. Pairs, KV
  // positions and rows then have no cost of their own; tokens and decodes stand for them.
  bool knows_contexts = true;

  // Whether such passes were measured: every known feature is within the range of its kind.
  bool covers(const StepFeatures& pass) const;
};

class FittedCostModel final : public CostModel {
 public:
  FittedCostModel(FittedModel fitted, const ModelConfig& model, const HardwareSpec& hardware,
                  const CostModelConfig& config);

  // linear_ns is G, head and rows. attention_ns is pairs, chunks, decodes and KV. overhead_ns is
  // the constant cost of a pass. Each part includes its transfers between devices.
  StepCost step_cost(const StepPlan& plan) override;
  TimeNs host_gap_ns(const StepPlan& plan) const override;
  std::int64_t kv_capacity_blocks(std::int64_t block_tokens) const override;

 private:
  FittedModel fitted_;
  ModelConfig model_;
  HardwareSpec hardware_;
  CostModelConfig config_;
};

}  // namespace metronome
