// SPDX-License-Identifier: Apache-2.0
// The structure of a step that is composed of measured kernels. Operators and profiles share it;
// they differ in the tables that they look up.
#pragma once

#include <cstdint>

#include "core/engine/step_plan.h"
#include "core/hardware/hardware.h"
#include "core/model/model_config.h"
#include "core/scenario/cost_model_config.h"
#include "sim/cost/cost_model.h"
#include "sim/cost/cost_model_file.h"
#include "sim/cost/pass_cost.h"

namespace metronome {

// The part of a pass that is priced.
enum class PassPart : std::uint8_t { All, Decodes };

// Integer sums over the chunks that are priced. For kernels the last token of a prompt is a decode.
struct PassSums {
  std::int64_t num_decodes = 0;
  std::int64_t num_drafts = 0;
  std::int64_t num_rows = 0;     // of logits
  std::int64_t context = 0;      // of decodes, with the decoded tokens
  std::int64_t cut_context = 0;  // the same, each cut to the window
  std::int64_t num_prompts = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t prompt_context = 0;  // with the computed tokens
  std::int64_t cut_prompt_context = 0;
  std::int64_t twice_pairs = 0;  // of (query, key) in prompts
  std::int64_t twice_cut_pairs = 0;
  std::int64_t max_decode_tokens = 1;
  // Of every chunk, if all are decodes of equally many tokens; else 1.
  std::int64_t tokens_of_each = 1;

  std::int64_t num_decoded() const { return num_decodes + num_drafts; }
  std::int64_t num_tokens() const { return num_decoded() + prompt_tokens; }
};

// `window` is that of the cut sums; 0: they stay 0.
PassSums sum_pass(const PassChunks& pass, PassPart part, std::int64_t window = 0);

// Prices a step pass by pass.
class KernelCostModel : public CostModel {
 public:
  // Throws UnplacedConfigError if the devices cannot share the model.
  KernelCostModel(const ModelConfig& model, const HardwareSpec& hardware,
                  const CostModelConfig& config);

  StepCost step_cost(const StepPlan& plan) final;
  TimeNs host_gap_ns(const StepPlan& plan) const final;
  std::int64_t kv_capacity_blocks(std::int64_t block_tokens) const final;

 protected:
  // Sets `is_outside` where no measurement is near.
  virtual PassCost pass_cost(const PassChunks& pass, PassPart part, bool& is_outside) = 0;

  // So many tokens, or rows, of a pass, padded to a captured graph.
  double graph_tokens(std::int64_t count, const PassSums& sums) const;

  const ModelConfig model_;
  const HardwareSpec hardware_;
  const CostModelConfig config_;
};

// Throws UnplacedConfigError for batching that such times do not have: padding, or copies of KV.
void require_ragged(const CostModelFile& file, const CostModelConfig& config);

}  // namespace metronome
