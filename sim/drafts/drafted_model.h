// SPDX-License-Identifier: Apache-2.0
// The cost of steps with drafts: the target model's pass, in which drafts are verified, and then
// the drafter's own passes.
//
//   verification  the target's cost model prices decodes of several tokens itself (cost_model.h).
//   first pass    the drafter computes all tokens of the step, prompts and rejected drafts among
//                 them; a draft model one more for each request. Logits: of each request's last
//                 token (propose() in vllm/v1/worker/gpu/spec_decode/autoregressive/speculator.py).
//   more passes   K - 1 for K = StepPlan::num_next_drafts, each with one token of every request of
//                 the step, at contexts that grow by one. With rejected drafts contexts are a few
//                 positions shorter; here all count as accepted.
// Without a request that can use drafts, the first pass still fills the drafter's KV, but computes
// no logits, and no pass follows (github.com/vllm-project/vllm/pull/48244). So it is with K = 0 of
// a schedule by batch size.
//
// Each pass may have a time for which the device waits for the host (Proposer::pass_overhead_ns).
//
// Lookups (ngram) take host time between two steps: a time for each token of the texts of the
// requests that decode next.
//
// decode_only_ns counts the drafter's passes over decodes alone. draft_ns is what remains of it
// when the same decodes have no drafts and no drafter.
#pragma once

#include <cstdint>
#include <memory>

#include "core/engine/step_plan.h"
#include "core/hardware/hardware.h"
#include "core/model/model_config.h"
#include "core/scenario/cost_model_config.h"
#include "sim/cost/cost_model.h"
#include "sim/cost/device_share.h"

namespace metronome {

class DraftedCostModel final : public CostModel {
 public:
  // The proposer of drafts. Without a cost model of a drafter they are looked up.
  struct Proposer {
    std::unique_ptr<CostModel> cost_model;
    std::int32_t num_more_tokens = 0;  // DrafterModel's
    DraftMemory memory;
    TimeNs pass_overhead_ns = 0;  // the device waits so long for the host in each pass
    double lookup_us_per_kilotoken = 0;
  };
  // The other arguments are those of `target`, for the memory that a drafter leaves.
  DraftedCostModel(std::unique_ptr<CostModel> target, Proposer proposer, const ModelConfig& model,
                   const HardwareSpec& hardware, const CostModelConfig& config);

  // Requires a plan without a run, which drafts exclude.
  StepCost step_cost(const StepPlan& plan) override;
  TimeNs host_gap_ns(const StepPlan& plan) const override;
  std::int64_t kv_capacity_blocks(std::int64_t block_tokens) const override;

 private:
  enum class Part : std::uint8_t { All, Decodes };
  StepCost drafter_pass_cost(bool has_logits);
  StepCost drafting_cost(const StepPlan& plan, Part part);
  TimeNs plain_decodes_ns(const StepPlan& plan);
  void list_single_pass(bool has_logits);

  std::unique_ptr<CostModel> target_;
  Proposer proposer_;
  ModelConfig model_;
  HardwareSpec hardware_;
  CostModelConfig config_;
  StepPlan pass_;  // scratch: a pass of the drafter, or decodes without drafts
};

}  // namespace metronome
