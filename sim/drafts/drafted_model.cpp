// SPDX-License-Identifier: Apache-2.0
#include "sim/drafts/drafted_model.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "sim/cost/pass_cost.h"

namespace metronome {
namespace {

constexpr std::size_t kReserve = 4096;

bool is_decode(const ScheduledChunk& chunk) { return chunk.kind == ChunkKind::Decode; }

void add(StepCost& sum, const StepCost& pass) {
  sum.total_ns += pass.total_ns;
  sum.linear_ns += pass.linear_ns;
  sum.attention_ns += pass.attention_ns;
  sum.comm_ns += pass.comm_ns;
  sum.overhead_ns += pass.overhead_ns;
  sum.is_extrapolated = sum.is_extrapolated || pass.is_extrapolated;
}

}  // namespace

DraftedCostModel::DraftedCostModel(std::unique_ptr<CostModel> target, Proposer proposer,
                                   const ModelConfig& model, const HardwareSpec& hardware,
                                   const CostModelConfig& config)
    : target_(std::move(target)),
      proposer_(std::move(proposer)),
      model_(model),
      hardware_(hardware),
      config_(config) {
  pass_.chunks.reserve(kReserve);
  pass_.passes.reserve(1);
}

// A pass of the drafter over the chunks that pass_ lists.
StepCost DraftedCostModel::drafter_pass_cost(bool has_logits) {
  list_single_pass(has_logits);
  StepCost cost = proposer_.cost_model->step_cost(pass_);
  cost.overhead_ns += proposer_.pass_overhead_ns;
  cost.total_ns += proposer_.pass_overhead_ns;
  return cost;
}

// Completes pass_, whose chunks are listed.
void DraftedCostModel::list_single_pass(bool has_logits) {
  pass_.num_prefill_tokens = pass_.num_decode_tokens = 0;
  for (ScheduledChunk& chunk : pass_.chunks) {
    chunk.samples_token = has_logits;
    (is_decode(chunk) ? pass_.num_decode_tokens : pass_.num_prefill_tokens) += chunk.num_tokens;
  }
  pass_.passes.assign(1, {0, static_cast<std::int32_t>(pass_.chunks.size())});
}

// The drafter's passes over the step's chunks, or over its decodes alone.
StepCost DraftedCostModel::drafting_cost(const StepPlan& plan, Part part) {
  pass_.has_last_rows_only = true;
  pass_.chunks.clear();
  for (ScheduledChunk chunk : plan.chunks) {
    if (part == Part::Decodes && !is_decode(chunk)) continue;
    chunk.num_tokens += proposer_.num_more_tokens;
    pass_.chunks.push_back(chunk);
  }
  StepCost sum;
  if (pass_.chunks.empty()) return sum;
  add(sum, drafter_pass_cost(plan.num_next_drafts > 0));
  for (std::int32_t i = 1; i < plan.num_next_drafts; ++i) {
    for (ScheduledChunk& chunk : pass_.chunks) {
      chunk.first_position = chunk.end_position();
      chunk.num_tokens = 1;
      chunk.kind = ChunkKind::Decode;
    }
    add(sum, drafter_pass_cost(true));
  }
  return sum;
}

// The step with its decodes alone, if they had no drafts.
TimeNs DraftedCostModel::plain_decodes_ns(const StepPlan& plan) {
  pass_.has_last_rows_only = false;
  pass_.chunks.clear();
  for (ScheduledChunk chunk : plan.chunks) {
    if (!is_decode(chunk)) continue;
    chunk.num_tokens = 1;
    pass_.chunks.push_back(chunk);
  }
  if (pass_.chunks.empty()) return 0;
  list_single_pass(true);
  return target_->step_cost(pass_).total_ns;
}

StepCost DraftedCostModel::step_cost(const StepPlan& plan) {
  METRONOME_CHECK(plan.run.num_decodes == 0, "decodes with drafts are no run");
  StepCost cost = target_->step_cost(plan);
  pass_.step_index = plan.step_index;
  const bool has_decodes = plan.num_decode_tokens > 0;
  if (has_decodes) {
    cost.draft_ns = std::max<TimeNs>(cost.decode_only_ns - plain_decodes_ns(plan), 0);
  }
  if (!proposer_.cost_model) return cost;
  const StepCost all = drafting_cost(plan, Part::All);
  add(cost, all);
  if (!has_decodes) return cost;
  const bool has_prompts = plan.num_prefill_tokens > 0;
  const StepCost decodes = has_prompts ? drafting_cost(plan, Part::Decodes) : all;
  // Measurements scatter: passes over decodes alone may appear longer than those over all.
  const TimeNs drafting_ns = std::min(decodes.total_ns, all.total_ns);
  cost.decode_only_ns += drafting_ns;
  cost.decode_only_attention_ns += std::min(decodes.attention_ns, drafting_ns);
  cost.decode_only_comm_ns +=
      std::min(decodes.comm_ns, drafting_ns - std::min(decodes.attention_ns, drafting_ns));
  cost.draft_ns += drafting_ns;
  return cost;
}

// The lookups before this plan were those for its decodes, but for requests just admitted.
TimeNs DraftedCostModel::host_gap_ns(const StepPlan& plan) const {
  const TimeNs gap_ns = target_->host_gap_ns(plan);
  if (proposer_.lookup_us_per_kilotoken == 0) return gap_ns;
  std::int64_t num_tokens = 0;
  for (const ScheduledChunk& chunk : plan.chunks) {
    const bool is_new =
        std::find(plan.admitted.begin(), plan.admitted.end(), chunk.request) != plan.admitted.end();
    if (is_decode(chunk) && !is_new) num_tokens += chunk.first_position + 1;
  }
  const double us = proposer_.lookup_us_per_kilotoken * static_cast<double>(num_tokens) / 1e3;
  return gap_ns + round_ns(us * kNsPerMicro);
}

std::int64_t DraftedCostModel::kv_capacity_blocks(std::int64_t block_tokens) const {
  if (!proposer_.cost_model) return target_->kv_capacity_blocks(block_tokens);
  return metronome::kv_capacity_blocks(model_, hardware_, config_, block_tokens, proposer_.memory);
}

}  // namespace metronome
