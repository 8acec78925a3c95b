// SPDX-License-Identifier: Apache-2.0
// Shared by the cost models that compose steps of measured times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/base/error.h"
#include "core/engine/step_plan.h"
#include "core/scenario/scenario.h"
#include "sim/cost/cost_model_file.h"
#include "sim/cost/pass_cost.h"

namespace metronome {

// The part of a pass that is priced.
enum class PassPart : std::uint8_t { All, Decodes };

// The tokens of every chunk that is priced, if they are decodes of equally many tokens; else 1.
inline std::int64_t tokens_of_each_decode(const PassChunks& pass, PassPart part) {
  if (pass.run != nullptr) return 1;
  std::int64_t num_tokens = 0;
  for (const ScheduledChunk& chunk : pass.chunks) {
    const bool is_decode = chunk.kind == ChunkKind::Decode;
    if (part == PassPart::Decodes && !is_decode) continue;
    if (!is_decode || (num_tokens > 0 && num_tokens != chunk.num_tokens)) return 1;
    num_tokens = chunk.num_tokens;
  }
  return std::max<std::int64_t>(num_tokens, 1);
}

// The cost of a step's passes. `price(chunks, part, is_outside)` gives that of one, and sets
// is_outside where no measurement is near. Requires a plan with passes.
template <class Price>
StepCost measured_step_cost(const StepPlan& plan, const Price& price) {
  METRONOME_CHECK(!plan.passes.empty(), "a plan without passes has no cost");
  PassCost all;
  PassCost decodes;
  bool is_outside = false;
  bool ignored = false;
  for (const ForwardPass& pass : plan.passes) {
    const PassChunks of_pass = chunks_of(plan, pass);
    const PassCost cost = price(of_pass, PassPart::All, is_outside);
    all += cost;
    const auto num_decodes =
        std::count_if(of_pass.chunks.begin(), of_pass.chunks.end(),
                      [](const ScheduledChunk& chunk) { return chunk.kind == ChunkKind::Decode; });
    if (num_decodes == 0 && of_pass.run == nullptr) continue;
    const bool has_prompts = static_cast<std::size_t>(num_decodes) < of_pass.chunks.size();
    decodes += has_prompts ? price(of_pass, PassPart::Decodes, ignored) : cost;
  }
  StepCost cost = step_cost_of(all, decodes);
  cost.is_extrapolated = is_outside;
  return cost;
}

// Throws UnplacedConfigError for batching that such times do not have: padding, or copies of KV.
inline void require_ragged(const CostModelFile& file, const CostModelConfig& config) {
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
