// SPDX-License-Identifier: Apache-2.0
// vLLM's flags. Sources of their names and meanings: docs/cli/serve, vllm/config/scheduler.py and
// vllm/engine/arg_utils.py of 0.22 (4ff865c38) and 0.33.0.
#include <algorithm>
#include <fmt/core.h>
#include <optional>
#include <string>

#include "core/base/count_text.h"
#include "core/base/json.h"
#include "core/engine/budget_terms.h"
#include "core/engine/policies/registry.h"
#include "core/scenario/scenario.h"
#include "core/scenario/simulated_model.h"
#include "engines/flags/flag_list.h"
#include "engines/vllm/product.h"
#include "engines/vllm/serve_defaults.h"
#include "engines/vllm/settings.h"

namespace metronome {

extern const std::string_view kVllmFlagsYaml;  // engines/vllm/flags.yaml

namespace {

// Engines mean different things by their share of memory: vLLM's has room for activations, those of
// SGLang and TensorRT-LLM do not. So a share of theirs is none of vLLM's.
std::string vllm_memory_share(const Scenario& scenario) {
  if (find_policy(scenario.scheduler.policy)->memory_share == MemoryShare::OfAll) {
    return shortest_text(scenario.cost_model.gpu_memory_utilization);
  }
  return memory_share(vllm_serve_defaults(VllmConfig{}.minor(), {}, {})).value;
}

// The most tokens of a request: the model's own where the scenario does not say.
std::int64_t longest_request_of(const Scenario& scenario) {
  if (scenario.engine.max_model_len) return *scenario.engine.max_model_len;
  return find_served_model(scenario.model, scenario.location_of("model")).default_max_model_len();
}

// One budget for all tokens of a step.
void add_vllm_budget(const Scenario& scenario, const BudgetTerms& terms, FlagList& list) {
  // Above this, a budget only costs memory for activations.
  constexpr std::int64_t kLargestBudget = 65536;
  if (terms.has_no_size) return list.add("--enable-chunked-prefill");
  const std::int64_t num_seqs = scenario.engine.max_num_seqs;
  std::int64_t budget = terms.budget;
  if (budget == 0 && terms.takes_whole_prompts) {
    budget = std::max(longest_request_of(scenario), num_seqs);
  } else if (budget == 0) {
    const std::int64_t num_chunks = scenario.scheduler.max_prefill_chunks_per_step;
    budget = num_chunks > 0 ? num_seqs + num_chunks * terms.chunk : num_seqs * terms.chunk;
    if (budget > kLargestBudget) {
      list.note("the budget is limited to " + count_text(kLargestBudget, "token"));
      budget = std::max(kLargestBudget, num_seqs);
    }
  }
  list.add("--max-num-batched-tokens", budget);
  if (budget < num_seqs) {
    list.refuse(fmt::format("it refuses --max-num-batched-tokens {} below --max-num-seqs {}",
                            budget, num_seqs));
  }
  if (terms.takes_whole_prompts) {
    list.add("--no-enable-chunked-prefill");
    const std::int64_t model_len = longest_request_of(scenario);
    if (budget < model_len) {
      list.refuse(fmt::format(
          "it refuses whole prompts with --max-num-batched-tokens {} below --max-model-len {}",
          budget, model_len));
    }
  } else {
    list.add("--enable-chunked-prefill");
  }
  if (terms.chunk > 0) list.add("--long-prefill-token-threshold", terms.chunk);
}

// Settings that are listed whatever they are, and one that is no flag.
constexpr std::string_view kListed[] = {"version", "scheduling_policy", "enable_chunked_prefill",
                                        "long_prefill_token_threshold",
                                        "scheduler_reserve_full_isl"};

void add_vllm_policy(const Scenario& scenario, FlagList& list) {
  const SchedulerConfig& config = scenario.scheduler;
  const BudgetTerms terms = budget_terms(config);
  add_vllm_budget(scenario, terms, list);
  list.add("--scheduling-policy", terms.orders_by_priority ? "priority" : "fcfs");
  if (config.policy == "vllm") {
    list.add(config.settings<VllmConfig>().scheduler_reserve_full_isl
                 ? "--scheduler-reserve-full-isl"
                 : "--no-scheduler-reserve-full-isl");
    add_settings(config, kListed, list);  // options of newer versions, which older ones refuse
    return;
  }
  if (!terms.note.empty()) list.note(terms.note);
  if (terms.prefills_apart) {
    list.note(fmt::format("{} computes prompts in separate steps; vLLM V1 mixes them with decodes",
                          config.policy));
  }
  list.note("vLLM serves running requests in order of admission, both decodes and prompts");
}

// The attention backends of vLLM on GPUs take blocks of so many tokens, or of a multiple.
constexpr std::int64_t kVllmBlock = 16;

std::int64_t vllm_block_size(std::int64_t block_size) {
  return std::max((block_size + kVllmBlock / 2) / kVllmBlock, std::int64_t{1}) * kVllmBlock;
}

void add_vllm_cache(const Scenario& scenario, FlagList& list) {
  const KvCacheConfig& cache = scenario.kv_cache;
  const PolicyInfo& policy = *find_policy(scenario.scheduler.policy);
  const std::int64_t block_size = vllm_block_size(cache.block_size);
  if (is_paged(scenario)) {
    list.add("--block-size", block_size);
    list.note_nearest("kv_cache.block_size", cache.block_size, block_size,
                      "vLLM takes multiples of 16 on a GPU");
  }
  list.add(caches_prefixes(policy, cache) ? "--enable-prefix-caching"
                                          : "--no-enable-prefix-caching");
  if (cache.num_blocks.has_value() && is_paged(scenario)) {
    // vLLM's count includes its null block.
    const std::int64_t num_usable = *cache.num_blocks - (policy.cache.has_null_block ? 1 : 0);
    list.add("--num-gpu-blocks-override",
             std::max(num_usable * cache.block_size / block_size, std::int64_t{1}) + 1);
  } else {
    list.add("--gpu-memory-utilization", vllm_memory_share(scenario));
  }
  if (cache.watermark.value_or(0) > 0) {
    list.note("kv_cache.watermark is --watermark " + shortest_text(*cache.watermark) +
              " from vLLM 0.24 on, and has no flag before");
  }
  if (const auto interval = cache.prefix_cache_retention_interval) {
    list.add("--prefix-cache-retention-interval",
             *interval < 0 ? "None" : std::to_string(*interval));
  }
}

// The value of --speculative-config: JSON, in the shell's quotes.
std::string vllm_draft_config(const SpeculativeConfig& drafts) {
  Json config = Json::object();
  constexpr const char* kMethods[] = {"", "ngram", "draft_model", "eagle", "mtp"};
  config["method"] = kMethods[static_cast<std::size_t>(drafts.method)];
  config["num_speculative_tokens"] = drafts.num_speculative_tokens;
  if (drafts.method == SpeculativeMethod::DraftModel) config["model"] = drafts.model;
  if (drafts.method == SpeculativeMethod::Ngram) {
    config["prompt_lookup_max"] = drafts.prompt_lookup_max;
    config["prompt_lookup_min"] = drafts.prompt_lookup_min;
  }
  if (!drafts.num_speculative_tokens_per_batch_size.empty()) {
    Json rows = Json::array();
    for (const std::vector<std::int64_t>& row : drafts.num_speculative_tokens_per_batch_size) {
      rows.push_back(row);
    }
    config["num_speculative_tokens_per_batch_size"] = std::move(rows);
  }
  return "'" + config.dump() + "'";
}

void add_vllm_drafts(const SpeculativeConfig& drafts, FlagList& list) {
  if (!drafts.has_drafts()) return;
  list.add("--speculative-config", vllm_draft_config(drafts));
  if (drafts.method == SpeculativeMethod::Eagle) {
    list.note("--speculative-config also needs the path of the EAGLE head, as \"model\"");
  }
}

// vLLM refuses asynchronous scheduling with the drafts of ngram, which the CPU finds.
void add_vllm_async(const Scenario& scenario, FlagList& list) {
  const SpeculativeConfig& drafts = scenario.speculative;
  const bool is_async = scenario.engine.async_depth > 1;
  const bool is_refused = drafts.has_drafts() && drafts.method == SpeculativeMethod::Ngram;
  list.add(is_async && !is_refused ? "--async-scheduling" : "--no-async-scheduling");
  if (is_async && is_refused) {
    list.note("engine.async_depth: vLLM has no asynchronous scheduling with drafts of ngram");
  }
}

EngineFlags write_flags(const Scenario& scenario) {
  const SchedulerConfig& config = scenario.scheduler;
  const VllmConfig vllm = config.policy == "vllm" ? config.settings<VllmConfig>() : VllmConfig{};
  FlagList list("vLLM", std::string(kVllmVersions[vllm.version]));
  add_vllm_policy(scenario, list);
  list.add("--max-num-seqs", scenario.engine.max_num_seqs);
  if (scenario.engine.max_model_len) list.add("--max-model-len", *scenario.engine.max_model_len);
  add_vllm_cache(scenario, list);
  add_vllm_drafts(scenario.speculative, list);
  add_vllm_async(scenario, list);
  if (scenario.cost_model.tensor_parallel_size > 1) {
    list.add("--tensor-parallel-size", scenario.cost_model.tensor_parallel_size);
  }
  add_formats(scenario, "fp8", "--enforce-eager", "--max-cudagraph-capture-size", list);
  if (const auto prompts = own_prompt_graphs(scenario)) {
    if (*prompts == 0) {
      list.add("--compilation-config", std::string(R"('{"cudagraph_mode":"FULL_DECODE_ONLY"}')"));
    } else {
      list.note("cost_model.max_prompt_graph_tokens has no flag: vLLM captures the same sizes");
    }
  }
  if (scenario.engine.max_waiting_requests > 0) {
    list.note("engine.max_waiting_requests has no flag: put a limit in front of vLLM");
  }
  note_without_flags(scenario, "vLLM V1 refuses --max-num-partial-prefills other than 1", list);
  return list.take();
}

}  // namespace

constexpr ServerFlags kVllmFlags = {.server = "vLLM",
                                    .memory = "--gpu-memory-utilization",
                                    .num_seqs = "--max-num-seqs",
                                    .pool = "--num-gpu-blocks-override",
                                    .graphs = "--max-cudagraph-capture-size",
                                    .blocking_advice =
                                        "--long-prefill-token-threshold lets short "
                                        "prompts pass long ones.",
                                    .no_priorities = "--scheduling-policy fcfs",
                                    .priority_advice =
                                        "vLLM preempts nobody where requests wait "
                                        "for a slot: it only orders the queue. More "
                                        "slots (--max-num-seqs) avoid it while there "
                                        "is KV memory.",
                                    .takes_other_policies = true,
                                    .write = write_flags,
                                    .known = &kVllmFlagsYaml};

}  // namespace metronome
