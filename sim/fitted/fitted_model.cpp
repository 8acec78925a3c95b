// SPDX-License-Identifier: Apache-2.0
#include "sim/fitted/fitted_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "sim/cost/device_share.h"
#include "sim/cost/pass_cost.h"

namespace metronome {
namespace {

constexpr double StepFeatures::*kFeatures[] = {
    &StepFeatures::tokens,  &StepFeatures::pairs,     &StepFeatures::prefill_chunks,
    &StepFeatures::decodes, &StepFeatures::decode_kv, &StepFeatures::rows};

PassCost cost_of(const FittedForm& form, const StepFeatures& pass) {
  const bool is_graph =
      pass.is_graph &&
      (!form.max_graph_decodes || pass.tokens <= static_cast<double>(*form.max_graph_decodes));
  PassCost cost;
  cost.linear_ns =
      form.tokens_ns(pass.tokens) + form.row * pass.rows + (pass.rows > 0 ? form.head : 0);
  cost.attention_ns = form.pair * pass.pairs + form.chunk * pass.prefill_chunks +
                      form.decode * pass.decodes + form.decode_kv * pass.decode_kv;
  cost.overhead_ns =
      (is_graph ? form.graph : form.eager) + (pass.prefill_chunks > 0 ? form.prefill : 0);
  return cost;
}

}  // namespace

double FittedForm::tokens_ns(double num_tokens) const {
  const auto behind = std::partition_point(
      tokens.begin(), tokens.end(), [&](const Piece& piece) { return piece.above < num_tokens; });
  if (behind == tokens.begin()) return 0;
  const Piece& piece = *(behind - 1);
  return piece.ns + piece.ns_per_token * (num_tokens - piece.above);
}

double FittedForm::pass_ns(const StepFeatures& pass) const {
  const PassCost cost = cost_of(*this, pass);
  return cost.linear_ns + cost.attention_ns + cost.overhead_ns;
}

void FeatureRange::include(const StepFeatures& pass) {
  for (const auto feature : kFeatures) {
    min.*feature = std::min(min.*feature, pass.*feature);
    max.*feature = std::max(max.*feature, pass.*feature);
  }
}

bool FeatureRange::contains(const StepFeatures& pass) const {
  return std::all_of(std::begin(kFeatures), std::end(kFeatures), [&](const auto feature) {
    return pass.*feature >= min.*feature && pass.*feature <= max.*feature;
  });
}

bool FittedModel::covers(const StepFeatures& pass) const {
  const std::optional<FeatureRange>& range = pass.prefill_chunks > 0 ? prefill_range : decode_range;
  if (!range) return false;
  StepFeatures known = pass;
  if (!knows_contexts) {
    known.pairs = range->min.pairs;
    known.decode_kv = range->min.decode_kv;
    known.rows = range->min.rows;
  }
  return range->contains(known);
}

FittedCostModel::FittedCostModel(FittedModel fitted, const ModelConfig& model,
                                 const HardwareSpec& hardware, const CostModelConfig& config)
    : fitted_(std::move(fitted)), model_(model), hardware_(hardware), config_(config) {}

StepCost FittedCostModel::step_cost(const StepPlan& plan) {
  METRONOME_CHECK(!plan.passes.empty(), "a plan without passes has no cost");
  PassCost all;
  PassCost decodes;
  bool is_outside = false;
  for (const ForwardPass& range : plan.passes) {
    const StepFeatures pass = pass_features(model_, chunks_of(plan, range));
    const PassCost cost = cost_of(fitted_.form, pass);
    all += cost;
    if (pass.decodes > 0) {
      decodes += pass.prefill_chunks > 0 ? cost_of(fitted_.form, decodes_of(pass)) : cost;
    }
    is_outside = is_outside || !fitted_.covers(pass);
  }
  StepCost cost = step_cost_of(all, decodes);
  cost.is_extrapolated = is_outside;
  return cost;
}

TimeNs FittedCostModel::host_gap_ns(const StepPlan& plan) const {
  if (config_.host_gap_us || !fitted_.host_gap_ns) {
    return metronome::host_gap_ns(hardware_, config_, plan.num_chunks());
  }
  return round_ns(*fitted_.host_gap_ns +
                  fitted_.host_gap_chunk_ns * static_cast<double>(plan.num_chunks()));
}

std::int64_t FittedCostModel::kv_capacity_blocks(std::int64_t block_tokens) const {
  return metronome::kv_capacity_blocks(model_, hardware_, config_, block_tokens);
}

}  // namespace metronome
