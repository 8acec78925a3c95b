// Builds an engine setup from a scenario. Fills in values that depend on the model, the policy, or
// the memory of the executing machine.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/engine/engine.h"
#include "core/model/model_config.h"
#include "core/scenario/scenario.h"

namespace metronome {

// The number of blocks of `block_tokens` tokens that fit the executor's memory.
using KvCapacityFn = std::function<std::int64_t(std::int64_t block_tokens)>;

// Resolves `auto` to the step shape of the policy's engine.
StepShape resolved_step_shape(const Scenario& scenario);

// Blocks of the scenario's paged KV cache that fit the executor's memory; kMaxBlocks at most.
std::int64_t blocks_of_memory(const Scenario& scenario, const ModelConfig& model,
                              const KvCapacityFn& kv_capacity);

// VllmConfig::drafts_by_batch_size for up to `max_num_seqs` requests, from the rows of
// SpeculativeConfig::num_speculative_tokens_per_batch_size; at most `num_drafts` each. Empty
// without rows.
std::vector<std::int32_t> drafts_by_batch_size(const std::vector<std::vector<std::int64_t>>& rows,
                                               std::int32_t num_drafts, std::int32_t max_num_seqs);

// Throws UnplacedConfigError when the scenario exceeds the model's or the memory's limits.
EngineSetup make_engine_setup(const Scenario& scenario, const ModelConfig& model,
                              const KvCapacityFn& kv_capacity);

}  // namespace metronome
