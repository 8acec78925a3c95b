// Step times of a form that was fitted to measured steps (sim/fitted/fitted_fit.h).
//
//   T(pass) = graph or eager + G(tokens) + prefill [has a prefill chunk] + pair x pairs
//           + chunk x prefill chunks + decode x decodes + decode_kv x KV positions
//           + head [has rows of logits] + row x rows
//
// with the features of sim/fitted/step_features.h. G grows with the tokens, in steps or ramps:
// matrix products take their time in tiles. No coefficient is negative. A step is the sum of its
// passes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/metrics/step_regime.h"
#include "core/model/model_config.h"
#include "core/scenario/scenario.h"
#include "sim/cost/cost_model.h"
#include "sim/cost/hardware.h"
#include "sim/fitted/step_features.h"

namespace metronome {

// All in nanoseconds.
struct FittedForm {
  // G from `above` (exclusive) up to the next piece.
  struct Piece {
    double above = 0;  // tokens
    double ns = 0;     // at its begin
    double ns_per_token = 0;
  };

  double graph = 0;
  double eager = 0;
  double prefill = 0;
  double pair = 0;
  double chunk = 0;
  double decode = 0;
  double decode_kv = 0;
  double head = 0;  // its weights are read for one row as for many, and for none not at all
  double row = 0;
  std::vector<Piece> tokens;  // ascending; the first begins at 0
  // Larger batches of decodes are not replayed as a graph; absent: all are.
  std::optional<std::int64_t> max_graph_decodes;

  double tokens_ns(double num_tokens) const;
  double pass_ns(const StepFeatures& pass) const;
};

// The least and the greatest of each feature over measured passes of one kind; those with prefill
// chunks are another kind than those without.
struct FeatureRange {
  StepFeatures min;
  StepFeatures max;

  void include(const StepFeatures& pass);
  bool contains(const StepFeatures& pass) const;
};

// How measured times scatter around the fitted ones in one regime.
struct StepScatter {
  // The shares of steps below each quantile: more towards the ends, where hiccups are.
  static constexpr double kShares[] = {0,   0.005, 0.01, 0.025, 0.05, 0.1,   0.2,  0.3,   0.4, 0.5,
                                       0.6, 0.7,   0.8,  0.9,   0.95, 0.975, 0.99, 0.995, 1};
  StepRegime regime;
  std::vector<double> ratios;  // measured / fitted at each of kShares; ascending
};

// What a file of kind `fitted` holds.
struct FittedModel {
  FittedForm form;
  std::string tokens_shape;                  // of G, in words
  std::optional<FeatureRange> decode_range;  // absent: no such pass was measured
  std::optional<FeatureRange> prefill_range;
  std::optional<double> host_gap_ns;  // absent: it was not measured
  double host_gap_chunk_ns = 0;       // more of it for each chunk of the step behind it
  std::vector<RegimeError> errors;    // of held-out steps
  std::vector<StepScatter> scatter;   // by regime
  std::int64_t num_steps = 0;         // measured
  std::int64_t num_hiccups = 0;       // of the steps fitted to, those that did not count
  // False: nobody recorded how long contexts were, nor which chunks ended their prompts. Pairs, KV
  // positions and rows then cost nothing of their own: tokens and decodes stand for them.
  bool knows_contexts = true;

  // Whether such passes were measured: every feature that is known within the range of its kind.
  bool covers(const StepFeatures& pass) const;
};

class FittedCostModel final : public CostModel {
 public:
  FittedCostModel(FittedModel fitted, const ModelConfig& model, const HardwareSpec& hardware,
                  const CostModelConfig& config);

  // G, head and rows are linear_ns; pairs, chunks, decodes and KV are attention_ns; what a pass
  // costs whatever is in it is overhead_ns. Transfers between devices are inside of all of them.
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
