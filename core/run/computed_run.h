// What backends that compute have in common before they run: where weights come from, how requests
// sample, and whether the scenario's sizes fit the machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/engine/sampling.h"
#include "core/model/model_config.h"
#include "core/model/model_weights.h"
#include "core/scenario/scenario.h"
#include "core/workload/workload.h"

namespace metronome {

struct ModelSource {
  std::string key;  // equal keys mean equal models
  ModelConfig config;
  std::shared_ptr<const WeightSource> weights;
  bool is_drawn = false;  // from the scenario's seed: random_weights(config, seed)
  std::uint64_t seed = 0;
  std::string text;     // where the weights are from, for people
  std::string warning;  // what is allowed and hardly meant; or empty
};

// Throws ConfigError for a model that no executor computes, and for weights that are missing or
// malformed.
ModelSource find_model_source(const Scenario& scenario);

// Of every request, before it gets a seed of its own. Throws ConfigError for stop tokens outside of
// the vocabulary.
SamplingParams sampling_params(const Scenario& scenario, std::int64_t vocab_size);

// Throws ConfigError for token ids outside of the vocabulary.
void check_token_ids(const Scenario& scenario, const Workload& workload, std::int64_t vocab_size);

// Throws ConfigError when window layers were given blocks for another window than the model's.
void check_cache_window(const Scenario& scenario, const ModelConfig& model);

// Of `capacity` blocks those that can be of use: without prefix caching, none beyond what every
// sequence at full length needs.
std::int64_t useful_kv_blocks(const Scenario& scenario, const ModelConfig& model,
                              std::int64_t block_size, std::int64_t capacity);

// Throws ConfigError at `key` when `bytes` are more than `available` on `owner` ("the machine").
void check_memory(const Scenario& scenario, const char* key, const std::string& what,
                  const std::string& owner, std::int64_t bytes, std::int64_t available);

// "1.5 GiB", "12.0 MiB".
std::string bytes_text(std::int64_t bytes);
std::int64_t bytes_of_gib(double gib);

}  // namespace metronome
