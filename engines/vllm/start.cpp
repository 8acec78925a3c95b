// SPDX-License-Identifier: Apache-2.0
// The settings with which vLLM does not start, and its rules for images.
#include <algorithm>
#include <fmt/core.h>
#include <string>

#include "core/base/error.h"
#include "core/engine/engine.h"
#include "core/scenario/scenario.h"
#include "engines/vllm/product.h"
#include "engines/vllm/settings.h"

namespace metronome {
namespace {

constexpr int kFirstNullBlockMinor = 30;

// Settings that states exclude.
void check_state_groups(const Scenario& scenario, const ModelConfig& model) {
  const PolicyInfo& policy = *find_policy(scenario.scheduler.policy);
  const VllmConfig& vllm = scenario.scheduler.settings<VllmConfig>();
  if (vllm.minor() < kFirstGroupsMinor) {
    throw UnplacedConfigError(
        "scheduler.version",
        fmt::format("the rules of vLLM 0.{} for states are not known; allowed: 0.{} or later",
                    vllm.minor(), kFirstGroupsMinor));
  }
  if (scenario.kv_cache.backend != KvBackend::Paged) {
    throw UnplacedConfigError("kv_cache.backend",
                              "slotted has no blocks for the states of " + model.name +
                                  "; allowed: paged, or another policy than vllm");
  }
  if (caches_prefixes(policy, scenario.kv_cache) && vllm.disable_chunked_mm_input) {
    throw UnplacedConfigError("scheduler.disable_chunked_mm_input",
                              "true leaves no states of " + model.name +
                                  " to cache inside an image; allowed: false, or "
                                  "kv_cache.enable_prefix_caching: false");
  }
  if (caches_prefixes(policy, scenario.kv_cache) && !vllm.enable_chunked_prefill) {
    throw UnplacedConfigError("scheduler.enable_chunked_prefill",
                              "false leaves no states of " + model.name +
                                  " to cache; allowed: true, or "
                                  "kv_cache.enable_prefix_caching: false");
  }
}

// A prompt longer than the budget would wait forever, so vLLM refuses to start.
void check_whole_prompts(const Scenario& scenario, std::int64_t max_model_len) {
  if (scenario.scheduler.settings<VllmConfig>().enable_chunked_prefill) return;
  const std::int64_t budget = token_budget(scenario.scheduler);
  if (budget >= max_model_len) return;
  throw UnplacedConfigError(
      "scheduler.max_num_batched_tokens",
      fmt::format("{} is less than engine.max_model_len {}, but without enable_chunked_prefill a "
                  "prompt is computed in one step; allowed: at least {}",
                  budget, max_model_len, max_model_len));
}

// An image that no step could compute would wait forever. vLLM refuses to start in the first case
// (vllm/config/scheduler.py).
void check_whole_images(const Scenario& scenario, std::int64_t max_item) {
  const VllmConfig& vllm = scenario.scheduler.settings<VllmConfig>();
  if (!vllm.disable_chunked_mm_input) return;
  const std::string need = fmt::format(
      ", the tokens of the largest image, which disable_chunked_mm_input computes in one step; "
      "allowed: at least {}",
      max_item);
  const std::int64_t budget = token_budget(scenario.scheduler);
  if (budget < max_item) {
    throw UnplacedConfigError(
        "scheduler.max_num_batched_tokens",
        fmt::format("{} is less than {}{}, or a smaller workload.images.max_pixels", budget,
                    max_item, need));
  }
  const std::int64_t threshold = vllm.long_prefill_token_threshold;
  if (threshold > 0 && threshold < max_item) {
    throw UnplacedConfigError("scheduler.long_prefill_token_threshold",
                              fmt::format("{} is less than {}{}, or 0", threshold, max_item, need));
  }
}

void check_image_version(const VllmConfig& vllm) {
  if (vllm.minor() >= kFirstGroupsMinor) return;
  throw UnplacedConfigError(
      "scheduler.version",
      fmt::format("the rules of vLLM 0.{} for images are not known; allowed: 0.{} or later",
                  vllm.minor(), kFirstGroupsMinor));
}

// Blocks for the states of one request (MambaSpec::max_memory_usage_bytes in
// vllm/v1/kv_cache_interface.py). With cached prefixes it has the running state, the one before,
// and one that a chunk exports.
std::int64_t state_blocks(const KvCacheLayout& layout) {
  const std::int64_t cached = layout.states.checkpoint_alignment > 0 ? 3 : 2;
  const std::int64_t each = layout.states.caches_states ? cached : 1;
  return layout.states.num_groups * (each + layout.states.num_drafts);
}

// Blocks that a group with a window has for one request
// (SlidingWindowSpec::max_memory_usage_bytes).
std::int64_t window_blocks(const EngineSetup& setup) {
  const KvCacheLayout& layout = setup.kv_cache;
  if (layout.windows.max_blocks < INT64_MAX) return layout.windows.max_blocks;
  const std::int64_t num_tokens = layout.windows.num_tokens - 1 + token_budget(setup.scheduler);
  return ceil_div(num_tokens, layout.block_size) + 1;
}

// vLLM must hold one request of max_model_len (_check_enough_kv_cache_memory in
// vllm/v1/core/kv_cache_planning.py), from 0.30 on beside the null block. The most tokens that it
// holds.
std::int64_t longest_request(const EngineSetup& setup) {
  const KvCacheLayout& layout = setup.kv_cache;
  const VllmConfig& vllm = setup.scheduler.settings<VllmConfig>();
  const bool counts_null_block = vllm.minor() >= kFirstNullBlockMinor;
  const std::int64_t usable =
      layout.num_blocks - (counts_null_block ? 1 : 0) - state_blocks(layout);
  if (layout.windows.num_tokens == 0) return usable * layout.block_size;
  const std::int64_t groups = layout.windows.num_groups;
  const std::int64_t most = window_blocks(setup);
  // Short requests have one block more in each window than in full attention.
  const std::int64_t in_windows = (usable - groups) / (1 + groups);
  const std::int64_t full = in_windows < most ? in_windows : usable - groups * most;
  return full * layout.block_size;
}

void check_longest_request(const Scenario& scenario, const ModelConfig& model,
                           const EngineSetup& setup, const std::string& device) {
  // Layers with windows alone hold any length.
  const bool has_full = setup.kv_cache.windows.num_tokens == 0 || model.n_global_layers() > 0;
  if (scenario.kv_cache.num_blocks || model.n_attention_layers() == 0 || !has_full) return;
  if (scenario.kv_cache.backend != KvBackend::Paged) return;
  const std::int64_t length = setup.max_model_len;
  const std::int64_t longest = std::max<std::int64_t>(longest_request(setup), 0);
  if (length <= longest) return;
  throw UnplacedConfigError(
      "engine.max_model_len",
      fmt::format(
          "{} tokens of a request are more than the KV cache of {} holds, with which vLLM does not "
          "start; allowed: at most {}, a higher cost_model.gpu_memory_utilization, fewer tokens or "
          "sequences in a step, or kv_cache.dtype fp8",
          length, device, longest));
}

// Graphs of decodes are captured with a state for each sequence
// (resolve_cudagraph_mode_and_sizes in vllm/config/compilation.py of 0.20 and later; 0.19 captures
// no graphs larger than the pool).
void check_states_of_graphs(const Scenario& scenario, const EngineSetup& setup,
                            const std::string& device) {
  const bool has_graphs = scenario.cost_model.max_graph_tokens.value_or(1) > 0;
  const std::int64_t num_blocks = setup.kv_cache.num_blocks;
  const std::int64_t num_seqs = setup.max_num_seqs;
  if (!has_graphs || setup.kv_cache.states.num_groups == 0 || num_seqs <= num_blocks) return;
  throw UnplacedConfigError(
      "engine.max_num_seqs",
      fmt::format("{} sequences are more than the {} blocks of states on {}, with which vLLM does "
                  "not start: CUDA graphs need a state for each; allowed: at most {}, a higher "
                  "cost_model.gpu_memory_utilization, or cost_model.max_graph_tokens 0",
                  num_seqs, num_blocks, device, num_blocks));
}

}  // namespace

void check_vllm_settings(const Scenario& scenario, const ConfigNode& source) {
  const VllmConfig& vllm = scenario.scheduler.settings<VllmConfig>();
  const auto require_version = [&](bool is_used, const std::string& key, int minor,
                                   const std::string& unused) {
    if (!is_used || vllm.minor() >= minor) return;
    fail_setting(
        source, key,
        fmt::format("vLLM {} does not have it; allowed: {}, or scheduler.version 0.{} or later",
                    kVllmVersions[vllm.version], unused, minor));
  };
  require_version(vllm.max_num_active_seqs > 0, "scheduler.max_num_active_seqs", 31, "0");
  require_version(vllm.long_prefill_token_threshold_adaptive,
                  "scheduler.long_prefill_token_threshold_adaptive", 31, "false");
  require_version(vllm.prefill_schedule_interval > 1, "scheduler.prefill_schedule_interval", 33,
                  "1");
  require_version(scenario.kv_cache.prefix_cache_retention_interval.value_or(-1) >= 0,
                  "kv_cache.prefix_cache_retention_interval", 23, "auto, -1");
  if (vllm.max_num_active_seqs > scenario.engine.max_num_seqs) {
    fail_setting(source, "scheduler.max_num_active_seqs",
                 fmt::format("{} is more than engine.max_num_seqs {}; allowed: at most as many",
                             vllm.max_num_active_seqs, scenario.engine.max_num_seqs));
  }
  if (scenario.speculative.is_on() && vllm.minor() < kFirstGroupsMinor) {
    fail_setting(source, "speculative.method",
                 fmt::format("the rules of vLLM 0.{} for drafts are not known; allowed: none, or "
                             "scheduler.version 0.{} or later",
                             vllm.minor(), kFirstGroupsMinor));
  }
}

void check_vllm_model(const Scenario& scenario, const ModelConfig& model,
                      std::int64_t max_model_len) {
  check_whole_prompts(scenario, max_model_len);
  if (model.n_linear_layers() > 0) check_state_groups(scenario, model);
}

void check_vllm_pool(const Scenario& scenario, const ModelConfig& model, const EngineSetup& setup,
                     const std::string& device) {
  check_longest_request(scenario, model, setup, device);
  check_states_of_graphs(scenario, setup, device);
}

void set_vllm_images(const Scenario& scenario, std::int64_t max_item_tokens,
                     EncoderSetup& encoder) {
  const VllmConfig& vllm = scenario.scheduler.settings<VllmConfig>();
  if (scenario.workload.images.is_on()) check_image_version(vllm);
  check_whole_images(scenario, max_item_tokens);
  encoder.limits_chunks = true;
  encoder.disable_chunked_mm_input = vllm.disable_chunked_mm_input;
}

std::int64_t longest_vllm_image(const Scenario& scenario, std::int64_t cache_tokens) {
  const VllmConfig& vllm = scenario.scheduler.settings<VllmConfig>();
  check_image_version(vllm);
  if (!vllm.disable_chunked_mm_input) return cache_tokens;
  const std::int64_t longest =
      std::min<std::int64_t>(cache_tokens, token_budget(scenario.scheduler));
  const std::int64_t threshold = vllm.long_prefill_token_threshold;
  return threshold > 0 ? std::min(longest, threshold) : longest;
}

}  // namespace metronome
