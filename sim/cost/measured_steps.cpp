// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/measured_steps.h"

#include <algorithm>
#include <cstddef>

#include "core/base/error.h"
#include "core/base/real.h"
#include "core/engine/decode_run.h"
#include "sim/cost/device_share.h"
#include "sim/cost/graph_size.h"

namespace metronome {
namespace {

// (query, key) pairs of a chunk whose queries see at most `window` keys, times two. Continuous, as
// the areas of the tables are: a query at position p sees p + 1/2 keys.
std::int64_t twice_pairs_within(std::int64_t first, std::int64_t num_tokens, std::int64_t window) {
  const std::int64_t full = std::clamp<std::int64_t>(window - first, 0, num_tokens);
  return full * (2 * first + full) + 2 * (num_tokens - full) * window;
}

}  // namespace

PassSums sum_pass(const PassChunks& pass, PassPart part, std::int64_t window) {
  PassSums sums;
  if (const RunMembers* run = pass.run) {
    sums.num_decodes = sums.num_rows = run->size();
    sums.context = run->sum_of_contexts();
    if (window > 0) sums.cut_context = run->sum_of_contexts(window);
  }
  std::int64_t each = pass.run != nullptr ? -1 : 0;  // -1: not equally many
  for (const ScheduledChunk& chunk : pass.chunks) {
    const bool is_decode = chunk.kind == ChunkKind::Decode;
    if (part == PassPart::Decodes && !is_decode) continue;
    const std::int64_t first = chunk.first_position;
    const std::int64_t n = chunk.num_tokens;
    each = is_decode && (each == 0 || each == n) ? n : -1;
    // vLLM computes logits for every sequence of a step, including those in the middle of a prompt.
    sums.num_rows += std::max(pass.num_rows(chunk), 1);
    const std::int64_t cut = window > 0 ? std::min(first, window - 1) + n : 0;
    if (is_decode || n == 1) {
      sums.num_decodes += 1;
      sums.num_drafts += n - 1;
      sums.context += first + n;
      sums.cut_context += cut;
      sums.max_decode_tokens = std::max(sums.max_decode_tokens, n);
      continue;
    }
    sums.num_prompts += 1;
    sums.prompt_tokens += n;
    sums.prompt_context += first + n;
    sums.twice_pairs += n * (2 * first + n);
    sums.cut_prompt_context += cut;
    if (window > 0) sums.twice_cut_pairs += twice_pairs_within(first, n, window);
  }
  sums.tokens_of_each = std::max<std::int64_t>(each, 1);
  return sums;
}

KernelCostModel::KernelCostModel(const ModelConfig& model, const HardwareSpec& hardware,
                                 const CostModelConfig& config)
    : model_(model), hardware_(hardware), config_(config) {
  check_tensor_parallel(model, config.tensor_parallel_size);
}

StepCost KernelCostModel::step_cost(const StepPlan& plan) {
  METRONOME_CHECK(!plan.passes.empty(), "a plan without passes has no cost");
  PassCost all;
  PassCost decodes;
  bool is_outside = false;
  bool ignored = false;
  for (const ForwardPass& pass : plan.passes) {
    const PassChunks of_pass = chunks_of(plan, pass);
    const PassCost cost = pass_cost(of_pass, PassPart::All, is_outside);
    all += cost;
    const auto num_decodes =
        std::count_if(of_pass.chunks.begin(), of_pass.chunks.end(),
                      [](const ScheduledChunk& chunk) { return chunk.kind == ChunkKind::Decode; });
    if (num_decodes == 0 && of_pass.run == nullptr) continue;
    const bool has_prompts = static_cast<std::size_t>(num_decodes) < of_pass.chunks.size();
    decodes += has_prompts ? pass_cost(of_pass, PassPart::Decodes, ignored) : cost;
  }
  StepCost cost = step_cost_of(all, decodes);
  cost.is_extrapolated = is_outside;
  return cost;
}

TimeNs KernelCostModel::host_gap_ns(const StepPlan& plan) const {
  return metronome::host_gap_ns(hardware_, config_, plan.num_chunks());
}

std::int64_t KernelCostModel::kv_capacity_blocks(std::int64_t block_tokens) const {
  return metronome::kv_capacity_blocks(model_, hardware_, config_, block_tokens);
}

double KernelCostModel::graph_tokens(std::int64_t count, const PassSums& sums) const {
  return metronome::graph_tokens(real(count), config_.max_graph_tokens, sums.tokens_of_each);
}

void require_ragged(const CostModelFile& file, const CostModelConfig& config) {
  if (config.batching != Batching::Ragged) {
    throw UnplacedConfigError(
        "cost_model.batching",
        "padded is not the batching that " + file.name + " was measured with; allowed: ragged");
  }
  if (config.gather_kv) {
    throw UnplacedConfigError("cost_model.gather_kv",
                              file.name + " was measured without copies of KV; allowed: false");
  }
}

}  // namespace metronome
