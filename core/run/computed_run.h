// SPDX-License-Identifier: Apache-2.0
// Preparation shared by the computing backends: how requests sample, and whether the scenario's
// sizes fit the machine.
#pragma once

#include <cstdint>
#include <string>

#include "core/engine/sampling.h"
#include "core/model/model_config.h"
#include "core/workload/workload.h"

namespace metronome {

struct Scenario;

// The sampling parameters of every request, before it gets its own seed. Throws ConfigError for
// stop tokens outside of the vocabulary.
SamplingParams sampling_params(const Scenario& scenario, std::int64_t vocab_size);

// Throws ConfigError for token ids outside of the vocabulary.
void check_token_ids(const Scenario& scenario, const Workload& workload, std::int64_t vocab_size);

// Throws ConfigError when the window layers' KV blocks are for another window than the model's.
void check_cache_window(const Scenario& scenario, const ModelConfig& model);

// The KV blocks with which every sequence can have its full length.
std::int64_t full_kv_blocks(const Scenario& scenario, const ModelConfig& model,
                            std::int64_t block_size);

// The number of useful KV blocks, at most `capacity`. Without prefix caching that is no more than
// full_kv_blocks().
std::int64_t useful_kv_blocks(const Scenario& scenario, const ModelConfig& model,
                              std::int64_t block_size, std::int64_t capacity);

// Throws ConfigError at `key` when `bytes` exceed the `available` bytes of `owner` ("the machine").
void check_memory(const Scenario& scenario, const char* key, const std::string& what,
                  const std::string& owner, std::int64_t bytes, std::int64_t available);

// "1.5 GiB", "12.0 MiB".
std::string bytes_text(std::int64_t bytes);
std::int64_t bytes_of_gib(double gib);

}  // namespace metronome
