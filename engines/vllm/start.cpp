// SPDX-License-Identifier: Apache-2.0
// The settings with which vLLM does not start, and its rules for images.
#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "core/scenario/scenario.h"
#include "engines/vllm/product.h"
#include "engines/vllm/settings.h"

namespace metronome {
namespace {

// Settings that states exclude.
void check_state_groups(const Scenario& scenario, const ModelConfig& model) {
  const PolicyInfo& policy = *find_policy(scenario.scheduler.policy);
  const VllmConfig& vllm = scenario.scheduler.settings<VllmConfig>();
  if (vllm.minor() < kFirstGroupsMinor) {
    throw UnplacedConfigError("scheduler.version",
                              "the rules of vLLM 0." + std::to_string(vllm.minor()) +
                                  " for states are not known; allowed: 0." +
                                  std::to_string(kFirstGroupsMinor) + " or later");
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
  throw UnplacedConfigError("scheduler.max_num_batched_tokens",
                            std::to_string(budget) + " is less than engine.max_model_len " +
                                std::to_string(max_model_len) +
                                ", but without enable_chunked_prefill a prompt is computed in "
                                "one step; allowed: at least " +
                                std::to_string(max_model_len));
}

// An image that no step could compute would wait forever. vLLM refuses to start in the first case
// (vllm/config/scheduler.py).
void check_whole_images(const Scenario& scenario, std::int64_t max_item) {
  const VllmConfig& vllm = scenario.scheduler.settings<VllmConfig>();
  if (!vllm.disable_chunked_mm_input) return;
  const std::string need =
      ", the tokens of the largest image, which disable_chunked_mm_input "
      "computes in one step; allowed: at least " +
      std::to_string(max_item);
  const std::int64_t budget = token_budget(scenario.scheduler);
  if (budget < max_item) {
    throw UnplacedConfigError("scheduler.max_num_batched_tokens",
                              std::to_string(budget) + " is less than " + std::to_string(max_item) +
                                  need + ", or a smaller workload.images.max_pixels");
  }
  const std::int64_t threshold = vllm.long_prefill_token_threshold;
  if (threshold > 0 && threshold < max_item) {
    throw UnplacedConfigError(
        "scheduler.long_prefill_token_threshold",
        std::to_string(threshold) + " is less than " + std::to_string(max_item) + need + ", or 0");
  }
}

void check_image_version(const VllmConfig& vllm) {
  if (vllm.minor() >= kFirstGroupsMinor) return;
  throw UnplacedConfigError("scheduler.version",
                            "the rules of vLLM 0." + std::to_string(vllm.minor()) +
                                " for images are not known; allowed: 0." +
                                std::to_string(kFirstGroupsMinor) + " or later");
}

}  // namespace

void check_vllm_settings(const Scenario& scenario, const ConfigNode& source) {
  const VllmConfig& vllm = scenario.scheduler.settings<VllmConfig>();
  const auto require_version = [&](bool is_used, const std::string& key, int minor,
                                   const std::string& unused) {
    if (!is_used || vllm.minor() >= minor) return;
    fail_setting(source, key,
                 "vLLM " + std::string(kVllmVersions[vllm.version]) +
                     " does not have it; allowed: " + unused + ", or scheduler.version 0." +
                     std::to_string(minor) + " or later");
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
                 std::to_string(vllm.max_num_active_seqs) + " is more than engine.max_num_seqs " +
                     std::to_string(scenario.engine.max_num_seqs) + "; allowed: at most as many");
  }
  if (scenario.speculative.is_on() && vllm.minor() < kFirstGroupsMinor) {
    fail_setting(source, "speculative.method",
                 "the rules of vLLM 0." + std::to_string(vllm.minor()) +
                     " for drafts are not known; allowed: none, or scheduler.version 0." +
                     std::to_string(kFirstGroupsMinor) + " or later");
  }
}

void check_vllm_model(const Scenario& scenario, const ModelConfig& model,
                      std::int64_t max_model_len) {
  check_whole_prompts(scenario, max_model_len);
  if (model.n_linear_layers() > 0) check_state_groups(scenario, model);
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
