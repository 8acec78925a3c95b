#include "sim/fitted_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "core/error.h"
#include "sim/device_share.h"

namespace metronome {
namespace {

constexpr double StepFeatures::*kFeatures[] = {
    &StepFeatures::tokens,  &StepFeatures::pairs,     &StepFeatures::prefill_chunks,
    &StepFeatures::decodes, &StepFeatures::decode_kv, &StepFeatures::rows};

struct PassParts {
  double linear = 0;
  double attention = 0;
  double overhead = 0;

  void operator+=(const PassParts& other) {
    linear += other.linear;
    attention += other.attention;
    overhead += other.overhead;
  }
  double total() const { return linear + attention + overhead; }
};

PassParts parts_of(const FittedForm& form, const StepFeatures& pass) {
  const bool is_graph =
      pass.is_graph &&
      (!form.max_graph_decodes || pass.decodes <= static_cast<double>(*form.max_graph_decodes));
  PassParts parts;
  parts.linear = form.tokens_ns(pass.tokens) + form.row * pass.rows;
  parts.attention = form.pair * pass.pairs + form.chunk * pass.prefill_chunks +
                    form.decode * pass.decodes + form.decode_kv * pass.decode_kv;
  parts.overhead =
      (is_graph ? form.graph : form.eager) + (pass.prefill_chunks > 0 ? form.prefill : 0);
  return parts;
}

// A step of more than eleven days is a mistake in the file, and no reason to leave the integers.
TimeNs round_ns(double ns) { return std::llround(std::min(ns, 1e15)); }

}  // namespace

double FittedForm::tokens_ns(double num_tokens) const {
  const auto behind = std::partition_point(
      tokens.begin(), tokens.end(), [&](const Piece& piece) { return piece.above < num_tokens; });
  if (behind == tokens.begin()) return 0;
  const Piece& piece = *(behind - 1);
  return piece.ns + piece.ns_per_token * (num_tokens - piece.above);
}

double FittedForm::pass_ns(const StepFeatures& pass) const { return parts_of(*this, pass).total(); }

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
  const std::span<const ScheduledChunk> chunks(plan.chunks);
  PassParts all;
  double decodes_ns = 0;
  StepCost cost;
  for (const ForwardPass& range : plan.passes) {
    const auto begin = static_cast<std::size_t>(range.begin);
    const auto end = static_cast<std::size_t>(range.end);
    const StepFeatures pass = pass_features(model_, chunks.subspan(begin, end - begin));
    const PassParts parts = parts_of(fitted_.form, pass);
    all += parts;
    if (pass.decodes > 0) {
      decodes_ns +=
          pass.prefill_chunks > 0 ? fitted_.form.pass_ns(decodes_of(pass)) : parts.total();
    }
    cost.is_extrapolated = cost.is_extrapolated || !fitted_.covers(pass);
  }
  cost.linear_ns = round_ns(all.linear);
  cost.attention_ns = round_ns(all.attention);
  cost.overhead_ns = round_ns(all.overhead);
  cost.total_ns = cost.linear_ns + cost.attention_ns + cost.overhead_ns;
  // Decodes alone may run eager where a graph is dearer.
  cost.decode_only_ns = std::min(round_ns(decodes_ns), cost.total_ns);
  return cost;
}

TimeNs FittedCostModel::host_gap_ns(const StepPlan& plan) const {
  if (config_.host_gap_us) return round_ns(*config_.host_gap_us * 1e3);
  if (!fitted_.host_gap_ns) return round_ns(hardware_.host_gap_us * 1e3);
  return round_ns(*fitted_.host_gap_ns +
                  fitted_.host_gap_chunk_ns * static_cast<double>(plan.chunks.size()));
}

std::int64_t FittedCostModel::kv_capacity_blocks(std::int64_t block_tokens) const {
  return metronome::kv_capacity_blocks(model_, hardware_, config_, block_tokens);
}

}  // namespace metronome
