// SPDX-License-Identifier: Apache-2.0
// Benchmarks of servers whose settings are public: what they serve, and how their clients ask.
//
// InferenceX (github.com/SemiAnalysisAI/InferenceX, Apache-2.0, formerly InferenceMAX) publishes a
// script for each model, GPU and engine (benchmarks/single_node). engines/NAME/recipe.cpp has what
// the scripts set for a server. Other models count as in NVIDIA's own sweeps, which started servers
// with their defaults (silicon_sample.csv of aiconfigurator-core 0.12.0).
#pragma once

#include <cstdint>
#include <string>

#include "core/model/model_config.h"
#include "core/scenario/serving_recipe.h"

namespace metronome {

// Models that InferenceX serves.
enum class SweepModel : std::uint8_t {
  None,
  Llama70b,
  GptOss120b,
  MiniMaxM2,
  DeepSeekR1,
  KimiK2,
  Qwen35,  // 397B-A17B
};

// By the model's name or its folder's.
SweepModel sweep_model(const std::string& name);

// A benchmark with a closed loop of clients.
struct BenchmarkRun {
  SweepModel model = SweepModel::None;
  WeightFormat format = WeightFormat::Plain;  // of experts, else of all projections
  bool has_experts = false;
  bool has_states = false;
  std::int64_t num_gpus = 1;
  std::int64_t num_clients = 0;  // 0: not a closed loop
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;

  bool is_public() const { return model != SweepModel::None; }
};
BenchmarkRun benchmark_run(const Scenario& scenario);

// Whether the scripts and sweeps below count for a run.
bool is_sweep(const BenchmarkRun& run, const RecipeContext& context);

// Adds the settings that a sweep's clients have under every engine.
void add_clients(const BenchmarkRun& run, RecipeSteps& steps);
// Adds the client of a benchmark against a server that somebody started with own flags.
void add_own_client(const BenchmarkRun& run, const RecipeContext& context, RecipeSteps& steps);

// The type of the KV cache that NVIDIA's quantised checkpoints ask for.
void add_kv_of_checkpoint(const RecipeContext& context, RecipeSteps& steps);

// "InferenceX's script for it".
extern const char* const kScript;

}  // namespace metronome
