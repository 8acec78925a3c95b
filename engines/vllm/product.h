// SPDX-License-Identifier: Apache-2.0
// vLLM as the registry of engines has it.
#pragma once

#include <memory>
#include <string>

#include "core/scenario/engine_product.h"

namespace metronome {

struct KernelRules;

const EngineProduct& vllm_product();
extern const DecisionFormat kVllmDecisions;
extern const EngineMetrics kVllmMetrics;
extern const LogDialect kVllmLog;
extern const ServerArguments kVllmArguments;
extern const ServerFlags kVllmFlags;
extern const KernelRules kVllmKernels;

std::unique_ptr<Policy> make_vllm(const PolicyContext& context);

// See PolicyInfo::reserved_gib; V0 is its first engine.
double vllm_reserved_gib(const MemoryFacts& facts, const ModelConfig& model);
double vllm_v0_reserved_gib(const MemoryFacts& facts, const ModelConfig& model);

// Its cache rules that depend on settings; see PolicyInfo::adjust_cache.
void adjust_vllm_cache(const SchedulerConfig& config, std::int32_t max_model_len,
                       KvCacheLayout& layout);

// See EngineProduct.
void check_vllm_settings(const Scenario& scenario, const ConfigNode& source);
void check_vllm_model(const Scenario& scenario, const ModelConfig& model,
                      std::int64_t max_model_len);
void check_vllm_pool(const Scenario& scenario, const ModelConfig& model, const EngineSetup& setup,
                     const std::string& device);
void set_vllm_images(const Scenario& scenario, std::int64_t max_item_tokens, EncoderSetup& encoder);
std::int64_t longest_vllm_image(const Scenario& scenario, std::int64_t cache_tokens);

}  // namespace metronome
