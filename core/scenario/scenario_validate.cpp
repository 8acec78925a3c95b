// SPDX-License-Identifier: Apache-2.0
// Checks rules that span several fields of a scenario.
#include "core/base/error.h"
#include "core/engine/policies/registry.h"
#include "core/scenario/scenario.h"
#include "core/scenario/scenario_keys.h"

namespace metronome {
namespace {

// Reports an error at a key's location, or else at its section or the document.
[[noreturn]] void fail_at(const ConfigNode& source, const std::string& key,
                          const std::string& message) {
  const ConfigNode* node = source.find_path(key);
  if (node == nullptr) node = source.find(std::string_view(key).substr(0, key.find('.')));
  fail_config(node == nullptr ? source.where : node->where, key, message);
}

void require_key(const ConfigNode& source, const std::string& key, const std::string& value,
                 const std::string& allowed) {
  if (source.find_path(key) == nullptr) {
    fail_at(source, key, "required key is missing; allowed: " + allowed);
  }
  if (value.empty()) fail_at(source, key, "must not be empty; allowed: " + allowed);
}

// Excludes the workload, which is read later and checks itself.
void check_choices(const Scenario& scenario, const ConfigNode& source) {
  Scenario shown = scenario;
  const ConfigNode chosen =
      fields_to_node([&shown](FieldVisitor& visitor) { visit_before_workload(visitor, shown); });
  refuse_unused_keys(source, chosen, scenario_choices(), scenario_defaults(), "");
}

void check_policy(const Scenario& scenario, const ConfigNode& source, const PolicyInfo& policy) {
  const std::string name(policy.name);
  if (!policy.allows_order && scenario.scheduler.order != QueueOrder::Fcfs) {
    fail_at(source, "scheduler.order",
            "policy '" + name + "' only supports first come, first served; allowed: fcfs");
  }
  if (policy.requires_separate && scenario.engine.step_shape == StepShape::Mixed) {
    fail_at(source, "engine.step_shape",
            "policy '" + name + "' prefills and decodes in two passes; allowed: auto, separate");
  }
  const bool caches = scenario.kv_cache.enable_prefix_caching.value_or(false);
  if (caches && policy.prefix_caching == PrefixCaching::Never) {
    fail_at(source, "kv_cache.enable_prefix_caching",
            "policy '" + name + "' does not reuse cached prefixes; allowed: false");
  }
  const bool is_paged = scenario.kv_cache.backend == KvBackend::Paged;
  if (!is_paged && policy.requires_paged) {
    fail_at(source, "kv_cache.backend",
            "policy '" + name + "' needs a free block in addition to those in use; allowed: paged");
  }
  if (is_paged && !caches && policy.prefix_caching == PrefixCaching::Always) {
    fail_at(source, "kv_cache.enable_prefix_caching",
            "policy '" + name + "' always reuses cached prefixes; allowed: true");
  }
  if (!policy.allows_allocation && scenario.kv_cache.allocation != KvAllocation::Incremental) {
    fail_at(source, "kv_cache.allocation",
            "policy '" + name + "' allocates blocks when its engine does; allowed: incremental");
  }
  if (!policy.allows_watermark && *scenario.kv_cache.watermark > 0) {
    fail_at(source, "kv_cache.watermark",
            "policy '" + name + "' keeps no blocks free, like its engine; allowed: 0, or null");
  }
  if (scenario.kv_cache.sliding_window > 0 && !policy.allows_sliding_window) {
    fail_at(source, "kv_cache.sliding_window",
            "policy '" + name + "' only supports one group of layers; allowed: 0");
  }
}

void check_token_budget(const Scenario& scenario, const ConfigNode& source,
                        const PolicyInfo& policy) {
  if (!reads_key(policy, "max_num_batched_tokens")) return;
  const std::int64_t budget = token_budget(scenario.scheduler);
  const std::int64_t seqs = scenario.engine.max_num_seqs;
  if (budget >= seqs) return;
  const std::string reason = ", but each running request needs one token in each step";
  if (source.find_path("scheduler.max_num_batched_tokens") != nullptr) {
    fail_at(source, "scheduler.max_num_batched_tokens",
            std::to_string(budget) + " is less than engine.max_num_seqs " + std::to_string(seqs) +
                reason + "; allowed: at least " + std::to_string(seqs));
  }
  fail_at(source, "engine.max_num_seqs",
          std::to_string(seqs) + " is more than scheduler.max_num_batched_tokens " +
              std::to_string(budget) + reason + "; allowed: at most " + std::to_string(budget));
}

// Settings of vLLM that the chosen version does not have.
void check_vllm_version(const Scenario& scenario, const ConfigNode& source,
                        const PolicyInfo& policy) {
  if (!reads_key(policy, "version")) return;
  const VllmConfig& vllm = scenario.scheduler.vllm;
  const auto require_version = [&](bool is_used, const std::string& key, int minor,
                                   const std::string& unused) {
    if (!is_used || vllm.minor() >= minor) return;
    fail_at(source, key,
            "vLLM " + std::string(kVllmVersions[vllm.version]) + " does not have it; allowed: " +
                unused + ", or scheduler.version 0." + std::to_string(minor) + " or later");
  };
  require_version(vllm.max_num_active_seqs > 0, "scheduler.max_num_active_seqs", 31, "0");
  require_version(vllm.long_prefill_token_threshold_adaptive,
                  "scheduler.long_prefill_token_threshold_adaptive", 31, "false");
  require_version(vllm.prefill_schedule_interval > 1, "scheduler.prefill_schedule_interval", 33,
                  "1");
  require_version(scenario.kv_cache.prefix_cache_retention_interval.value_or(-1) >= 0,
                  "kv_cache.prefix_cache_retention_interval", 23, "auto, -1");
  if (vllm.max_num_active_seqs > scenario.engine.max_num_seqs) {
    fail_at(source, "scheduler.max_num_active_seqs",
            std::to_string(vllm.max_num_active_seqs) + " is more than engine.max_num_seqs " +
                std::to_string(scenario.engine.max_num_seqs) + "; allowed: at most as many");
  }
}

void check_retention(const Scenario& scenario, const ConfigNode& source) {
  const KvCacheConfig& cache = scenario.kv_cache;
  const std::int64_t interval = cache.prefix_cache_retention_interval.value_or(-1);
  if (interval <= 0) return;
  const std::string key = "kv_cache.prefix_cache_retention_interval";
  if (interval % cache.block_size == 0) return;
  fail_at(source, key,
          std::to_string(interval) + " is not a multiple of kv_cache.block_size " +
              std::to_string(cache.block_size) + "; allowed: auto, -1, 0, or a multiple of it");
}

// Sarathi's chunk includes the decodes, and the rest must not be negative.
void check_sarathi_chunks(const Scenario& scenario, const ConfigNode& source,
                          const PolicyInfo& policy) {
  if (policy.name != "sarathi") return;
  const SarathiConfig& config = scenario.scheduler.sarathi;
  const auto require_room = [&](const std::string& key, std::int64_t chunk) {
    const std::int64_t seqs = scenario.engine.max_num_seqs;
    if (chunk >= seqs) return;
    fail_at(source, "scheduler." + key,
            std::to_string(chunk) + " is less than engine.max_num_seqs " + std::to_string(seqs) +
                ", but every decode takes one token of the chunk; allowed: at least " +
                std::to_string(seqs));
  };
  if (!config.enable_dynamic_chunking_schedule) {
    return require_room("chunk_size", config.chunk_size);
  }
  const auto require_multiple = [&](const std::string& key, std::int64_t chunk) {
    if (chunk % 32 == 0) return;
    fail_at(source, "scheduler." + key,
            std::to_string(chunk) + " is not a multiple of 32; allowed: 32, 64, 96, ...");
  };
  require_multiple("low_chunk_size", config.low_chunk_size);
  require_multiple("high_chunk_size", config.high_chunk_size);
  require_room("low_chunk_size", config.low_chunk_size);
  if (config.high_chunk_size >= config.low_chunk_size) return;
  fail_at(source, "scheduler.high_chunk_size",
          std::to_string(config.high_chunk_size) + " is less than scheduler.low_chunk_size " +
              std::to_string(config.low_chunk_size) + "; allowed: at least as much");
}

// TensorRT-LLM's chunks end at KV block boundaries.
void check_chunk_unit(const Scenario& scenario, const ConfigNode& source,
                      const PolicyInfo& policy) {
  if (!reads_key(policy, "chunk_unit_size")) return;
  const std::int64_t unit = scenario.scheduler.tensorrt_llm.chunk_unit_size;
  const std::int64_t block = scenario.kv_cache.block_size;
  if (scenario.kv_cache.backend == KvBackend::Slotted || unit % block == 0) return;
  fail_at(source, "scheduler.chunk_unit_size",
          std::to_string(unit) + " is not a multiple of kv_cache.block_size " +
              std::to_string(block) + "; allowed: 0 (a block), or a multiple of it");
}

// Settings that SGLang refuses at its start.
void check_sglang(const Scenario& scenario, const ConfigNode& source, const PolicyInfo& policy) {
  if (policy.name != "sglang") return;
  using Order = SglangConfig::SchedulePolicy;
  const SglangConfig& config = scenario.scheduler.sglang;
  const std::int64_t chunk = config.chunked_prefill_size;
  const std::int64_t block = scenario.kv_cache.block_size;
  if (scenario.kv_cache.backend == KvBackend::Paged && chunk > 0 && chunk % block != 0) {
    fail_at(source, "scheduler.chunked_prefill_size",
            std::to_string(chunk) + " is not a multiple of kv_cache.block_size " +
                std::to_string(block) + "; allowed: 0 or -1 (off), or a multiple of it");
  }
  const Order order = config.schedule_policy;
  if (config.enable_priority_scheduling && order != Order::Fcfs && order != Order::Lof) {
    fail_at(source, "scheduler.schedule_policy",
            std::string(kSglangPolicies[static_cast<std::size_t>(order)]) +
                " is not possible with scheduler.enable_priority_scheduling; allowed: fcfs, lof");
  }
  const bool caches_prefixes = scenario.kv_cache.enable_prefix_caching.value_or(true);
  if (order == Order::ShortestPrefillFirst && !caches_prefixes) {
    fail_at(source, "scheduler.schedule_policy",
            "shortest-prefill-first needs cached prefixes; allowed: another order, or "
            "kv_cache.enable_prefix_caching = true");
  }
}

void check_drafts(const Scenario& scenario, const ConfigNode& source, const PolicyInfo& policy) {
  const SpeculativeConfig& drafts = scenario.speculative;
  if (!drafts.is_on()) return;
  if (!reads_key(policy, "version")) {
    fail_at(source, "speculative.method",
            "policy '" + std::string(policy.name) +
                "' does not verify drafts; allowed: none, or policy vllm");
  }
  const VllmConfig& vllm = scenario.scheduler.vllm;
  if (vllm.minor() < kDraftVllmMinor) {
    fail_at(source, "speculative.method",
            "drafts are scheduled as by vLLM 0." + std::to_string(kDraftVllmMinor) + ", not by 0." +
                std::to_string(vllm.minor()) + "; allowed: none, or scheduler.version 0." +
                std::to_string(kDraftVllmMinor));
  }
  if (drafts.method == SpeculativeMethod::Ngram && scenario.engine.async_depth > 1) {
    fail_at(source, "engine.async_depth",
            "the lookup of speculative.method ngram needs the tokens of the last step; allowed: 1");
  }
  if (scenario.kv_cache.backend == KvBackend::Slotted) {
    fail_at(source, "speculative.method",
            "drafts need KV blocks; allowed: none, or kv_cache.backend paged");
  }
  const std::int64_t degree = scenario.cost_model.tensor_parallel_size;
  const std::int64_t draft_degree = drafts.draft_tensor_parallel_size.value_or(degree);
  if (draft_degree != 1 && draft_degree != degree) {
    fail_at(source, "speculative.draft_tensor_parallel_size",
            std::to_string(draft_degree) +
                " is neither 1 nor cost_model.tensor_parallel_size; allowed: 1, " +
                (degree > 1 ? std::to_string(degree) + ", " : std::string()) + "or null");
  }
  if (const auto error = find_error(drafts)) {
    fail_at(source, "speculative." + error->key, error->message);
  }
}

void check_host_gap(const Scenario& scenario, const ConfigNode& source) {
  const CostModelConfig& config = scenario.cost_model;
  if (config.host_gap_us || config.host_gap_us_per_request == 0) return;
  fail_at(source, "cost_model.host_gap_us_per_request",
          "is added to cost_model.host_gap_us, which is not given; allowed: 0, or with that key");
}

void check_targets(const Scenario& scenario, const ConfigNode& source, const PolicyInfo& policy) {
  const SloPolicyConfig& targets = scenario.scheduler.slo;
  if (!policy.predicts_steps || targets.itl_target_ms || targets.tpot_target_ms) return;
  fail_at(source, "scheduler.itl_target_ms",
          "policy '" + std::string(policy.name) +
              "' needs an inter-token latency (ITL) target; allowed: a number, or slo.itl_ms, "
              "slo.tpot_ms or scheduler.tpot_target_ms instead");
}

void check_chunk_sizes(const Scenario& scenario, const ConfigNode& source,
                       const PolicyInfo& policy) {
  if (!reads_key(policy, "min_chunk_size")) return;
  const SchedulerConfig& config = scenario.scheduler;
  const auto require_at_most = [&](std::int64_t limit, const std::string& limit_key) {
    if (config.min_chunk_size <= limit) return;
    fail_at(source, "scheduler.min_chunk_size",
            std::to_string(config.min_chunk_size) + " is more than scheduler." + limit_key + " " +
                std::to_string(limit) + "; allowed: 1 to " + std::to_string(limit));
  };
  if (config.prefill_chunk_size.has_value()) {
    require_at_most(*config.prefill_chunk_size, "prefill_chunk_size");
  }
  require_at_most(token_budget(config), "max_num_batched_tokens");
}

}  // namespace

void validate_scenario(const Scenario& scenario, const ConfigNode& source) {
  require_key(source, "model", scenario.model,
              "a name of the catalogue, or a path to a config.json or model folder");
  const PolicyInfo* policy = find_policy(scenario.scheduler.policy);
  METRONOME_CHECK(policy != nullptr, "reading refuses unknown policies");
  check_choices(scenario, source);
  check_policy(scenario, source, *policy);
  check_vllm_version(scenario, source, *policy);
  check_retention(scenario, source);
  check_token_budget(scenario, source, *policy);
  check_sarathi_chunks(scenario, source, *policy);
  check_chunk_unit(scenario, source, *policy);
  check_sglang(scenario, source, *policy);
  check_chunk_sizes(scenario, source, *policy);
  check_targets(scenario, source, *policy);
  check_drafts(scenario, source, *policy);
  check_host_gap(scenario, source);
}

}  // namespace metronome
