// SPDX-License-Identifier: Apache-2.0
// Sources of the flags' names and meanings. vLLM: docs/cli/serve, vllm/config/scheduler.py and
// vllm/engine/arg_utils.py of 0.22 (4ff865c38) and 0.33.0. SGLang:
// docs/advanced_features/server_arguments.md, srt/server_args.py and srt/environ.py of 0.5.23.
#include "study/run/engine_flags.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/number_text.h"
#include "core/engine/policies/registry.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/scenario/serve_defaults.h"
#include "core/scenario/simulated_model.h"
#include "engines/fastgen/settings.h"
#include "engines/llama_cpp/settings.h"
#include "engines/sarathi/settings.h"
#include "engines/sglang/serve_defaults.h"
#include "engines/sglang/settings.h"
#include "engines/tensorrt_llm/settings.h"
#include "engines/vllm/serve_defaults.h"
#include "engines/vllm/settings.h"
#include "study/run/flag_list.h"

namespace metronome {
namespace {

// A policy's limits in terms of an engine with a token budget per step.
struct StepLimits {
  std::int64_t budget = 0;  // tokens of a step; 0 = the policy has no limit
  std::int64_t chunk = 0;   // prompt tokens of one request in a step; 0 = no separate limit
  bool takes_whole_prompts = false;
  bool prefills_apart = false;  // prompt-only steps delay the decodes
  bool has_no_size = false;     // a step is limited by its time
  std::string note;             // how the policy differs from such an engine
};

StepLimits own_limits(const SchedulerConfig& config) {
  const std::string& policy = config.policy;
  StepLimits limits;
  if (policy == "static" || policy == "continuous" || policy == "orca") {
    limits.takes_whole_prompts = true;
    limits.note =
        policy == "static" ? "static adds no request to a running batch; no flag does this"
        : policy == "orca"
            ? "orca reserves max_model_len for every request; no flag does this"
            : "continuous has no token budget: it takes the whole prompt of every request "
              "that fits in a step";
  } else if (policy == "chunked") {
    limits.chunk = config.prefill_chunk_size.value_or(512);
    limits.note = "chunked has no token budget: every pending prompt advances in every step";
  } else if (policy == "token_budget") {
    limits.budget = token_budget(config);
    limits.chunk = config.prefill_chunk_size.value_or(0);
  } else if (policy == "single_prefill") {
    limits.budget = token_budget(config);
    limits.note = "single_prefill prefills one request at a time, in a separate pass";
  } else if (policy == "slo") {
    limits.has_no_size = true;
    limits.note =
        "no flag limits the time of a step, as slo does; `metronome tune` finds the best budget";
  } else {
    // An unknown policy.
    limits.budget = token_budget(config);
    limits.note =
        policy + " has no counterpart in this engine; the budget is the nearest fixed one";
  }
  return limits;
}

StepLimits step_limits(const SchedulerConfig& config) {
  const std::string& policy = config.policy;
  StepLimits limits;
  if (policy == "vllm") {
    limits.budget = token_budget(config);
    limits.chunk = config.settings<VllmConfig>().long_prefill_token_threshold;
    limits.takes_whole_prompts = !config.settings<VllmConfig>().enable_chunked_prefill;
  } else if (policy == "sglang") {
    const SglangConfig& sglang = config.settings<SglangConfig>();
    limits.takes_whole_prompts = sglang.chunked_prefill_size <= 0;
    limits.budget =
        limits.takes_whole_prompts ? sglang.max_prefill_tokens : sglang.chunked_prefill_size;
    limits.prefills_apart = !sglang.enable_mixed_chunk;
  } else if (policy == "sarathi" || policy == "simple_chunking") {
    limits.budget = config.settings<SarathiConfig>().chunk_size;
    limits.prefills_apart = policy == "simple_chunking";
    if (policy == "sarathi" && config.settings<SarathiConfig>().enable_dynamic_chunking_schedule) {
      limits.budget = config.settings<SarathiConfig>().high_chunk_size;
      limits.note = "sarathi's chunk shrinks as a prompt advances; the budget is the largest chunk";
    }
  } else if (policy == "fastgen") {
    limits.budget = config.settings<FastGenConfig>().max_ragged_batch_size;
  } else if (policy == "tensorrt_llm") {
    limits.budget = config.settings<TensorRtLlmConfig>().max_num_tokens;
    limits.takes_whole_prompts = !config.settings<TensorRtLlmConfig>().enable_chunked_context;
  } else if (policy == "llama_cpp") {
    limits.budget = config.settings<LlamaCppConfig>().n_batch;
  } else if (policy == "nano_vllm") {
    limits.budget = token_budget(config);
    limits.prefills_apart = true;
  } else if (policy == "vllm_prefill_first") {
    limits.budget = config.max_num_batched_tokens.value_or(0);
    limits.takes_whole_prompts = true;
    limits.prefills_apart = true;
  } else {
    return own_limits(config);
  }
  return limits;
}

bool reads_key(const Scenario& scenario, std::string_view key) {
  const PolicyInfo* policy = find_policy(scenario.scheduler.policy);
  METRONOME_CHECK(policy != nullptr, "scenarios have policies that exist");
  return std::find(policy->keys.begin(), policy->keys.end(), key) != policy->keys.end();
}

bool is_paged(const Scenario& scenario) { return scenario.kv_cache.backend == KvBackend::Paged; }

// Settings without a flag in either engine.
void note_common(const Scenario& scenario, FlagList& list) {
  const SchedulerConfig& config = scenario.scheduler;
  if (reads_key(scenario, "max_num_partial_prefills") && config.max_num_partial_prefills > 0) {
    list.note(
        "scheduler.max_num_partial_prefills has no flag that works: vLLM V1 refuses "
        "--max-num-partial-prefills other than 1; SGLang splits one prompt at a time");
  }
  if (reads_key(scenario, "min_chunk_size") && config.min_chunk_size > 1) {
    list.note("scheduler.min_chunk_size has no flag");
  }
  if (reads_key(scenario, "order") && config.order == QueueOrder::ShortestPrefillFirst) {
    list.note("scheduler.order shortest_prefill_first has no flag");
  }
  if (scenario.engine.step_shape == StepShape::Separate) {
    list.note("engine.step_shape separate has no flag");
  }
  if (!is_paged(scenario)) list.note("a slotted KV cache has no flag");
}

// How the engine's numbers are stored, and whether it launches graphs.
void add_formats(const Scenario& scenario, const char* fp8_cache, const char* eager,
                 const char* largest_graph, FlagList& list) {
  if (scenario.quantization == Quantization::Fp8) {
    // A repository of fp8 says so itself.
    if (!is_stored_in_fp8(scenario)) list.add("--quantization", std::string("fp8"));
  } else if (scenario.quantization > Quantization::Fp8) {
    list.note("quantization: serve a checkpoint in that format; no flag makes one");
  }
  if (scenario.kv_dtype == KvDtype::Fp8) list.add("--kv-cache-dtype", std::string(fp8_cache));
  if (scenario.kv_dtype == KvDtype::Bf16) list.add("--kv-cache-dtype", std::string("bfloat16"));
  const std::optional<std::int64_t>& graph = scenario.cost_model.max_graph_tokens;
  if (!graph || is_default_of(scenario.serve_defaults, "cost_model.max_graph_tokens")) return;
  *graph == 0 ? list.add(eager) : list.add(largest_graph, *graph);
}

// Tokens of the largest pass with prompts in a CUDA graph, if the scenario sets them apart from
// those of decodes, and some prompts are larger.
std::optional<std::int64_t> own_prompt_graphs(const Scenario& scenario) {
  const CostModelConfig& config = scenario.cost_model;
  const std::optional<std::int64_t>& prompts = config.max_prompt_graph_tokens;
  const bool is_eager = config.max_graph_tokens && *config.max_graph_tokens == 0;
  const bool is_plain = prompts == config.max_graph_tokens || prompts == kAllPromptsInGraphs;
  return is_eager || is_plain ? std::nullopt : prompts;
}

// The share of the memory among a server's defaults, which have one.
const ServeDefault& memory_share(const std::vector<ServeDefault>& defaults) {
  const auto found = std::find_if(defaults.begin(), defaults.end(), [](const ServeDefault& each) {
    return each.key == "cost_model.gpu_memory_utilization";
  });
  METRONOME_CHECK(found != defaults.end(), "every server chooses its share of the memory");
  return *found;
}

// ---- vLLM ----

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
void add_vllm_budget(const Scenario& scenario, const StepLimits& limits, FlagList& list) {
  // Above this, a budget only costs memory for activations.
  constexpr std::int64_t kLargestBudget = 65536;
  if (limits.has_no_size) return list.add("--enable-chunked-prefill");
  const std::int64_t num_seqs = scenario.engine.max_num_seqs;
  std::int64_t budget = limits.budget;
  if (budget == 0 && limits.takes_whole_prompts) {
    budget = std::max(longest_request_of(scenario), num_seqs);
  } else if (budget == 0) {
    const std::int64_t num_chunks = scenario.scheduler.max_prefill_chunks_per_step;
    budget = num_chunks > 0 ? num_seqs + num_chunks * limits.chunk : num_seqs * limits.chunk;
    if (budget > kLargestBudget) {
      list.note("the budget is limited to " + count_text(kLargestBudget, "token"));
      budget = std::max(kLargestBudget, num_seqs);
    }
  }
  list.add("--max-num-batched-tokens", budget);
  if (budget < num_seqs) {
    list.refuse("it refuses --max-num-batched-tokens " + std::to_string(budget) +
                " below --max-num-seqs " + std::to_string(num_seqs));
  }
  if (limits.takes_whole_prompts) {
    list.add("--no-enable-chunked-prefill");
    const std::int64_t model_len = longest_request_of(scenario);
    if (budget < model_len) {
      list.refuse("it refuses whole prompts with --max-num-batched-tokens " +
                  std::to_string(budget) + " below --max-model-len " + std::to_string(model_len));
    }
  } else {
    list.add("--enable-chunked-prefill");
  }
  if (limits.chunk > 0) list.add("--long-prefill-token-threshold", limits.chunk);
}

// Options of newer versions, which older ones refuse.
void add_vllm_options(const VllmConfig& vllm, FlagList& list) {
  if (vllm.max_num_active_seqs > 0) list.add("--max-num-active-seqs", vllm.max_num_active_seqs);
  if (vllm.long_prefill_token_threshold_adaptive) {
    list.add("--long-prefill-token-threshold-adaptive");
  }
  if (vllm.prefill_schedule_interval > 1) {
    list.add("--prefill-schedule-interval", vllm.prefill_schedule_interval);
  }
}

void add_vllm_policy(const Scenario& scenario, FlagList& list) {
  const SchedulerConfig& config = scenario.scheduler;
  const StepLimits limits = step_limits(config);
  add_vllm_budget(scenario, limits, list);
  const bool has_priority =
      config.policy == "vllm"
          ? config.settings<VllmConfig>().scheduling_policy == VllmConfig::Policy::Priority
          : reads_key(scenario, "order") && config.order == QueueOrder::Priority;
  list.add("--scheduling-policy", has_priority ? "priority" : "fcfs");
  if (config.policy == "vllm") {
    list.add(config.settings<VllmConfig>().scheduler_reserve_full_isl
                 ? "--scheduler-reserve-full-isl"
                 : "--no-scheduler-reserve-full-isl");
    add_vllm_options(config.settings<VllmConfig>(), list);
    return;
  }
  if (!limits.note.empty()) list.note(limits.note);
  if (limits.prefills_apart) {
    list.note(config.policy +
              " computes prompts in separate steps; vLLM V1 mixes them with "
              "decodes");
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

EngineFlags vllm_flags(const Scenario& scenario) {
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
  note_common(scenario, list);
  return list.take();
}

// ---- SGLang ----

// Options that are off by default.
void add_sglang_options(const SglangConfig& config, FlagList& list) {
  if (config.scheduler_recv_interval > 1) {
    list.add("--scheduler-recv-interval", config.scheduler_recv_interval);
  }
  if (config.prefill_decode_interval > 0) {
    list.add("--prefill-decode-interval", config.prefill_decode_interval);
    list.add("--prefill-decode-interval-min-bs", config.prefill_decode_interval_min_bs);
  }
  if (config.prefill_max_requests) {
    list.add("--prefill-max-requests", *config.prefill_max_requests);
  }
  if (!config.enable_priority_scheduling) return;
  list.add("--enable-priority-scheduling");
  if (config.schedule_low_priority_values_first) list.add("--schedule-low-priority-values-first");
  list.add("--priority-scheduling-preemption-threshold",
           config.priority_scheduling_preemption_threshold);
  if (config.disable_priority_preemption) list.add("--disable-priority-preemption");
  if (config.retraction_policy == SglangConfig::RetractionPolicy::Priority) {
    list.add("--retraction-policy", std::string("priority"));
  }
}

void add_sglang_own(const SglangConfig& config, FlagList& list) {
  list.add("--chunked-prefill-size", config.chunked_prefill_size);
  list.add("--max-prefill-tokens", config.max_prefill_tokens);
  if (config.enable_mixed_chunk) list.add("--enable-mixed-chunk");
  list.add("--schedule-policy",
           std::string(kSglangPolicies[static_cast<std::size_t>(config.schedule_policy)]));
  list.add("--schedule-conservativeness", shortest_text(config.schedule_conservativeness));
  const SglangConfig defaults;
  const auto note_variable = [&list](bool is_other, const char* name, const std::string& value) {
    if (is_other) list.note("set the environment variable " + std::string(name) + "=" + value);
  };
  note_variable(config.init_new_token_ratio != defaults.init_new_token_ratio,
                "SGLANG_INIT_NEW_TOKEN_RATIO", shortest_text(config.init_new_token_ratio));
  note_variable(config.min_new_token_ratio_factor != defaults.min_new_token_ratio_factor,
                "SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR",
                shortest_text(config.min_new_token_ratio_factor));
  note_variable(config.new_token_ratio_decay_steps != defaults.new_token_ratio_decay_steps,
                "SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS",
                std::to_string(config.new_token_ratio_decay_steps));
  note_variable(config.retract_decode_steps != defaults.retract_decode_steps,
                "SGLANG_RETRACT_DECODE_STEPS", std::to_string(config.retract_decode_steps));
  note_variable(config.clip_max_new_tokens != defaults.clip_max_new_tokens,
                "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION",
                std::to_string(config.clip_max_new_tokens));
  add_sglang_options(config, list);
}

// SGLang refuses chunks that do not fill their pages.
std::int64_t whole_pages(const Scenario& scenario, std::int64_t num_tokens) {
  if (!is_paged(scenario)) return num_tokens;
  const std::int64_t page_size = scenario.kv_cache.block_size;
  return std::max(num_tokens / page_size, std::int64_t{1}) * page_size;
}

// With mixed chunks SGLang subtracts the running requests' tokens from the chunk, so the chunk size
// acts as the budget of a step.
void add_sglang_nearest(const Scenario& scenario, FlagList& list) {
  const SchedulerConfig& config = scenario.scheduler;
  const StepLimits limits = step_limits(config);
  const std::int64_t wanted = limits.budget > 0 ? limits.budget : limits.chunk;
  const bool is_chunked = !limits.takes_whole_prompts && wanted > 0;
  const std::int64_t size = whole_pages(scenario, wanted);
  if (!limits.has_no_size) list.add("--chunked-prefill-size", is_chunked ? size : -1);
  if (limits.takes_whole_prompts && limits.budget > 0) {
    list.add("--max-prefill-tokens", limits.budget);
  }
  if (!limits.prefills_apart && (is_chunked || limits.has_no_size)) {
    list.add("--enable-mixed-chunk");
  }
  list.add("--schedule-policy", "fcfs");
  const bool has_priority =
      config.policy == "vllm"
          ? config.settings<VllmConfig>().scheduling_policy == VllmConfig::Policy::Priority
          : reads_key(scenario, "order") && config.order == QueueOrder::Priority;
  if (has_priority) {
    list.add("--enable-priority-scheduling");
    list.add("--schedule-low-priority-values-first");
  }
  if (!limits.note.empty()) list.note(limits.note);
  if (limits.budget > 0 && limits.chunk > 0) {
    list.note("SGLang limits the chunk of a step, but not the chunk of one request");
  }
  if (limits.budget == 0 && limits.chunk > 0) {
    list.note(
        "SGLang's chunk is for all prompts of a step together; only one prompt is split at a "
        "time");
  }
  if (limits.takes_whole_prompts && !limits.prefills_apart) {
    list.note(
        "SGLang only mixes decodes with chunks: whole prompts are prefilled in separate "
        "steps");
  }
  list.note(
      "SGLang prefills whenever it can: a step of prompts comes before the decodes; "
      "--enable-mixed-chunk adds the decodes to it");
}

// SGLang's share is the scenario's for its own policy, or else what its server chooses for the GPU.
void add_sglang_memory(const Scenario& scenario, FlagList& list) {
  constexpr const char* kFlag = "--mem-fraction-static";
  if (find_policy(scenario.scheduler.policy)->memory_share == MemoryShare::OfFree) {
    return list.add(kFlag, shortest_text(scenario.cost_model.gpu_memory_utilization));
  }
  const std::optional<HardwareSpec> gpu = known_hardware(scenario.hardware);
  if (!gpu) return list.note("--mem-fraction-static: SGLang chooses it for its GPU");
  SglangServeOptions chosen;
  chosen.tensor_parallel_size = scenario.cost_model.tensor_parallel_size;
  chosen.max_num_seqs = scenario.engine.max_num_seqs;
  const std::int64_t chunk = largest_prefill(scenario.scheduler);
  chosen.chunked_prefill_size = chunk > 0 ? whole_pages(scenario, chunk) : -1;
  const std::vector<ServeDefault> defaults = sglang_serve_defaults(*gpu, chosen);
  const ServeDefault& share = memory_share(defaults);
  if (!sglang_leaves_memory(*gpu, chosen)) {
    return list.note("SGLang's reserve for such chunks leaves no memory of this GPU");
  }
  list.add(kFlag, share.value);
}

EngineFlags sglang_flags(const Scenario& scenario) {
  FlagList list("SGLang", "0.5.23");
  if (scenario.scheduler.policy == "sglang") {
    add_sglang_own(scenario.scheduler.settings<SglangConfig>(), list);
  } else {
    add_sglang_nearest(scenario, list);
  }
  list.add("--max-running-requests", scenario.engine.max_num_seqs);
  if (scenario.engine.max_model_len) list.add("--context-length", *scenario.engine.max_model_len);
  const KvCacheConfig& cache = scenario.kv_cache;
  if (is_paged(scenario)) list.add("--page-size", cache.block_size);
  const PolicyInfo& policy = *find_policy(scenario.scheduler.policy);
  if (!caches_prefixes(policy, cache)) {
    list.add("--disable-radix-cache");
  }
  if (cache.num_blocks.has_value() && is_paged(scenario)) {
    const std::int64_t num_usable = *cache.num_blocks - (policy.cache.has_null_block ? 1 : 0);
    list.add("--max-total-tokens", num_usable * cache.block_size);
  } else {
    add_sglang_memory(scenario, list);
  }
  if (cache.watermark.value_or(0) > 0) list.note("kv_cache.watermark has no flag");
  if (scenario.engine.async_depth == 1) list.add("--disable-overlap-schedule");
  if (scenario.cost_model.tensor_parallel_size > 1) {
    list.add("--tp-size", scenario.cost_model.tensor_parallel_size);
  }
  add_formats(scenario, "fp8_e4m3", "--disable-cuda-graph", "--cuda-graph-max-bs-decode", list);
  if (const auto prompts = own_prompt_graphs(scenario)) {
    *prompts == 0 ? list.add("--disable-prefill-cuda-graph")
                  : list.add("--cuda-graph-max-bs-prefill", *prompts);
  }
  if (scenario.engine.max_waiting_requests > 0) {
    list.add("--max-queued-requests", scenario.engine.max_waiting_requests);
  }
  if (scenario.speculative.has_drafts()) {
    list.note(
        "drafts are scheduled as by vLLM; SGLang's options of speculative decoding begin with "
        "--speculative-, and it schedules drafts differently");
  }
  note_common(scenario, list);
  return list.take();
}

constexpr FlagNames kEngines[] = {
    {"vllm", "vLLM", "--gpu-memory-utilization", "--max-num-seqs", "--num-gpu-blocks-override",
     true},
    {"sglang", "SGLang", "--mem-fraction-static", "--max-running-requests", "--max-total-tokens",
     true},
    {"llama_cpp", "llama-server", "-c", "-np", "-c", false},
    {"tensorrt_llm", "trtllm-serve", "kv_cache_config.free_gpu_memory_fraction", "max_batch_size",
     "kv_cache_config.max_tokens", true}};

template <class Is>
const FlagNames* find_engine(Is is) {
  const auto* found = std::find_if(std::begin(kEngines), std::end(kEngines), is);
  return found == std::end(kEngines) ? nullptr : found;
}

}  // namespace

const FlagNames* own_engine(std::string_view policy) {
  return find_engine([policy](const FlagNames& row) { return row.policy == policy; });
}

const FlagNames* engine_names(std::string_view engine) {
  return find_engine([engine](const FlagNames& row) { return row.engine == engine; });
}

std::vector<EngineFlags> engine_flags(const Scenario& scenario) {
  const std::string& policy = scenario.scheduler.policy;
  std::vector<EngineFlags> all = {vllm_flags(scenario), sglang_flags(scenario)};
  if (policy == "llama_cpp") all.push_back(llama_server_flags(scenario));
  if (policy == "tensorrt_llm") all.push_back(trtllm_serve_flags(scenario));
  const FlagNames* own = own_engine(policy);
  if (own == nullptr) return all;
  for (EngineFlags& flags : all) flags.is_comparison = flags.engine != own->engine;
  std::stable_partition(all.begin(), all.end(),
                        [](const EngineFlags& flags) { return !flags.is_comparison; });
  return all;
}

std::int64_t largest_prefill(const SchedulerConfig& config) {
  const StepLimits limits = step_limits(config);
  if (limits.takes_whole_prompts || limits.has_no_size) return 0;
  return limits.budget > 0 ? limits.budget : limits.chunk;
}

}  // namespace metronome
