// SPDX-License-Identifier: Apache-2.0
// Checks rules that span several fields of a scenario.
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/engine/policies/registry.h"
#include "core/metrics/goals.h"
#include "core/scenario/engine_product.h"
#include "core/scenario/fleet_rules.h"
#include "core/scenario/scenario.h"
#include "core/scenario/scenario_keys.h"

namespace metronome {
namespace {

void require_key(const ConfigNode& source, const std::string& key, const std::string& value,
                 const std::string& allowed) {
  if (source.find_path(key) == nullptr) {
    fail_setting(source, key, "required key is missing; allowed: " + allowed);
  }
  if (value.empty()) fail_setting(source, key, "must not be empty; allowed: " + allowed);
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
    fail_setting(source, "scheduler.order",
                 "policy '" + name + "' only supports first come, first served; allowed: fcfs");
  }
  if (policy.requires_separate && scenario.engine.step_shape == StepShape::Mixed) {
    fail_setting(
        source, "engine.step_shape",
        "policy '" + name + "' prefills and decodes in two passes; allowed: auto, separate");
  }
  const bool caches = scenario.kv_cache.enable_prefix_caching.value_or(false);
  if (caches && policy.prefix_caching == PrefixCaching::Never) {
    fail_setting(source, "kv_cache.enable_prefix_caching",
                 "policy '" + name + "' does not reuse cached prefixes; allowed: false");
  }
  const bool is_paged = scenario.kv_cache.backend == KvBackend::Paged;
  if (!is_paged && policy.requires_paged) {
    fail_setting(
        source, "kv_cache.backend",
        "policy '" + name + "' needs a free block in addition to those in use; allowed: paged");
  }
  if (is_paged && !caches && policy.prefix_caching == PrefixCaching::Always) {
    fail_setting(source, "kv_cache.enable_prefix_caching",
                 "policy '" + name + "' always reuses cached prefixes; allowed: true");
  }
  if (!policy.allows_allocation && scenario.kv_cache.allocation != KvAllocation::Incremental) {
    fail_setting(
        source, "kv_cache.allocation",
        "policy '" + name + "' allocates blocks when its engine does; allowed: incremental");
  }
  if (!policy.allows_watermark && *scenario.kv_cache.watermark > 0) {
    fail_setting(
        source, "kv_cache.watermark",
        "policy '" + name + "' keeps no blocks free, like its engine; allowed: 0, or null");
  }
  if (scenario.kv_cache.sliding_window > 0 && !policy.allows_sliding_window) {
    fail_setting(source, "kv_cache.sliding_window",
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
    fail_setting(source, "scheduler.max_num_batched_tokens",
                 fmt::format("{} is less than engine.max_num_seqs {}{}; allowed: at least {}",
                             budget, seqs, reason, seqs));
  }
  fail_setting(
      source, "engine.max_num_seqs",
      fmt::format("{} is more than scheduler.max_num_batched_tokens {}{}; allowed: at most {}",
                  seqs, budget, reason, budget));
}

void check_retention(const Scenario& scenario, const ConfigNode& source) {
  const KvCacheConfig& cache = scenario.kv_cache;
  const std::int64_t interval = cache.prefix_cache_retention_interval.value_or(-1);
  if (interval <= 0) return;
  const std::string key = "kv_cache.prefix_cache_retention_interval";
  if (interval % cache.block_size == 0) return;
  fail_setting(source, key,
               fmt::format("{} is not a multiple of kv_cache.block_size {}; allowed: auto, -1, 0, "
                           "or a multiple of it",
                           interval, cache.block_size));
}

void check_drafts(const Scenario& scenario, const ConfigNode& source, const PolicyInfo& policy) {
  const SpeculativeConfig& drafts = scenario.speculative;
  if (!drafts.is_on()) return;
  if (!policy.verifies_drafts) {
    fail_setting(source, "speculative.method",
                 fmt::format("policy '{}' does not verify drafts; allowed: none, or policy {}",
                             policy.name, policies_with(&PolicyInfo::verifies_drafts)));
  }
  if (drafts.method == SpeculativeMethod::Ngram && scenario.engine.async_depth > 1) {
    fail_setting(
        source, "engine.async_depth",
        "the lookup of speculative.method ngram needs the tokens of the last step; allowed: 1");
  }
  if (scenario.kv_cache.backend == KvBackend::Slotted) {
    fail_setting(source, "speculative.method",
                 "drafts need KV blocks; allowed: none, or kv_cache.backend paged");
  }
  const std::int64_t degree = scenario.cost_model.tensor_parallel_size;
  const std::int64_t draft_degree = drafts.draft_tensor_parallel_size.value_or(degree);
  if (draft_degree != 1 && draft_degree != degree) {
    fail_setting(
        source, "speculative.draft_tensor_parallel_size",
        fmt::format("{} is neither 1 nor cost_model.tensor_parallel_size; allowed: 1, {}or null",
                    draft_degree, degree > 1 ? fmt::format("{}, ", degree) : std::string()));
  }
  if (const auto error = find_error(drafts)) {
    fail_setting(source, "speculative." + error->key, error->message);
  }
}

void check_fleet(const Scenario& scenario, const ConfigNode& source) {
  if (!scenario.fleet.is_on()) return;
  check_fleet_rules(scenario);
  const ConfigNode* const process = source.find_path("workload.arrivals.process");
  if (process == nullptr || process->scalar != "steps") return;
  fail_setting(source, "workload.arrivals.process",
               "counts the steps of one engine, and a fleet has several; allowed: a process by "
               "time, or fleet.replicas 0");
}

void check_host_gap(const Scenario& scenario, const ConfigNode& source) {
  const CostModelConfig& config = scenario.cost_model;
  if (config.host_gap_us || config.host_gap_us_per_request == 0) return;
  fail_setting(
      source, "cost_model.host_gap_us_per_request",
      "is added to cost_model.host_gap_us, which is not given; allowed: 0, or with that key");
}

void check_front_end(const Scenario& scenario, const ConfigNode& source) {
  const FrontEndConfig& other = scenario.cost_model.frontend;
  const bool has_other = other.fixed_ms > 0 || other.us_per_prompt_token > 0;
  if (!has_other || !scenario.client.has_front_end()) return;
  fail_setting(source, "cost_model.frontend",
               "client has a front end, too; allowed: one of the two, or client.preset none");
}

// Runs have percentiles of these shares, and costs with a price.
void check_goals(const Scenario& scenario, const ConfigNode& source) {
  const SloConfig& slo = scenario.slo;
  if (slo.itl_share && !is_known_share(*slo.itl_share)) {
    fail_setting(source, "slo.itl_share",
                 "is no share that runs have a percentile of; allowed: 0.5, 0.9, 0.95, 0.99, 1, "
                 "or null");
  }
  if (slo.cost_per_million_output_tokens && !scenario.price_per_gpu_hour) {
    fail_setting(source, "slo.cost_per_million_output_tokens",
                 "needs price_per_gpu_hour, which is not given; allowed: null, or with that key");
  }
}

void check_targets(const Scenario& scenario, const ConfigNode& source, const PolicyInfo& policy) {
  const SloPolicyConfig& targets = scenario.scheduler.slo;
  if (!policy.predicts_steps || targets.itl_target_ms || targets.tpot_target_ms) return;
  fail_setting(source, "scheduler.itl_target_ms",
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
    fail_setting(source, "scheduler.min_chunk_size",
                 fmt::format("{} is more than scheduler.{} {}; allowed: 1 to {}",
                             config.min_chunk_size, limit_key, limit, limit));
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
  const EngineProduct& product = product_of(policy->name);
  if (product.check_settings != nullptr) product.check_settings(scenario, source);
  check_retention(scenario, source);
  check_token_budget(scenario, source, *policy);
  check_chunk_sizes(scenario, source, *policy);
  check_targets(scenario, source, *policy);
  check_goals(scenario, source);
  check_drafts(scenario, source, *policy);
  check_host_gap(scenario, source);
  check_fleet(scenario, source);
  check_front_end(scenario, source);
}

}  // namespace metronome
