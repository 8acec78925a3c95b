// SPDX-License-Identifier: Apache-2.0
// Builds an engine setup from a scenario. Fills in values that depend on the model, the policy, or
// the memory of the executing machine.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/engine_choices.h"
#include "core/model/model_config.h"

namespace metronome {

struct Scenario;

// The number of blocks of `block_tokens` tokens of all layers that attend that fit the executor's
// memory.
using KvCapacityFn = std::function<std::int64_t(std::int64_t block_tokens)>;

// Resolves `auto` to the step shape of the policy's engine.
StepShape resolved_step_shape(const Scenario& scenario);

// Embeddings of the largest image of the scenario, or that the model takes; 0: it takes text only.
std::int64_t max_image_tokens(const Scenario& scenario, const ModelConfig& model);

// Rules by which a backend stores recurrent states.
struct StateRules {
  // The model's kernels export a state from inside a chunk, at multiples of so many tokens
  // (get_prefill_checkpoint_alignment in vllm/model_executor/layers/mamba/abstract.py); 0 = they do
  // not. With prefix caching, blocks are then multiples of it.
  std::int64_t export_unit = 0;
  // Memory is divided between states and KV as the policy's engine does
  // (EngineProduct::divide_memory). Then prefix hits need no states.
  bool divides_memory = false;
};

// Blocks of the scenario's paged KV cache that fit the executor's memory; kMaxBlocks at most.
//
// Models with recurrent states (LinearAttention): under policy vllm a state takes a block, in a
// group of layers (KvCacheLayout::states), and a block is as large as a state. Under other policies
// states lie beside the blocks: of each of engine.max_num_seqs requests, unless
// StateRules::divides_memory.
std::int64_t blocks_of_memory(const Scenario& scenario, const ModelConfig& model,
                              const KvCapacityFn& kv_capacity, const StateRules& rules);

// The blocks whose memory the states of engine.max_num_seqs requests take, where states are beside
// the blocks.
std::int64_t blocks_of_states(const Scenario& scenario, const ModelConfig& model);

// DraftConfig::by_batch_size for up to `max_num_seqs` requests, from the rows of
// SpeculativeConfig::num_speculative_tokens_per_batch_size; at most `num_drafts` each. Empty
// without rows.
std::vector<std::int32_t> drafts_by_batch_size(const std::vector<std::vector<std::int64_t>>& rows,
                                               std::int32_t num_drafts, std::int32_t max_num_seqs);

// Throws UnplacedConfigError when the scenario exceeds the model's or the memory's limits. Backends
// that compute export no states, and have as many as requests.
EngineSetup make_engine_setup(const Scenario& scenario, const ModelConfig& model,
                              const KvCapacityFn& kv_capacity, const StateRules& rules = {});

}  // namespace metronome
