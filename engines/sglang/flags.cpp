// SPDX-License-Identifier: Apache-2.0
// SGLang's flags. Sources of their names and meanings: docs/advanced_features/server_arguments.md,
// srt/server_args.py and srt/environ.py of 0.5.23.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/budget_terms.h"
#include "core/engine/policies/registry.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/scenario/scenario.h"
#include "engines/flags/flag_list.h"
#include "engines/sglang/product.h"
#include "engines/sglang/serve_defaults.h"
#include "engines/sglang/settings.h"

namespace metronome {

extern const std::string_view kSglangFlagsYaml;  // engines/sglang/flags.yaml

namespace {

void add_own(const SchedulerConfig& config, FlagList& list) {
  const SglangConfig& sglang = config.settings<SglangConfig>();
  list.add("--chunked-prefill-size", sglang.chunked_prefill_size);
  list.add("--max-prefill-tokens", sglang.max_prefill_tokens);
  list.add("--schedule-policy",
           std::string(kSglangPolicies[static_cast<std::size_t>(sglang.schedule_policy)]));
  list.add("--schedule-conservativeness", shortest_text(sglang.schedule_conservativeness));
  std::vector<std::string_view> skipped = {"chunked_prefill_size", "max_prefill_tokens",
                                           "schedule_policy", "schedule_conservativeness"};
  for (const SglangVariable& variable : kSglangVariables) skipped.push_back(variable.key);
  add_settings(config, skipped, list);
  for (const auto& [key, value] : changed_settings(config)) {
    const auto* const variable =
        std::find_if(std::begin(kSglangVariables), std::end(kSglangVariables),
                     [&key = key](const SglangVariable& one) { return one.key == key; });
    if (variable == std::end(kSglangVariables)) continue;
    list.note("set the environment variable " + std::string(variable->name) + "=" + value.dump());
  }
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
  const BudgetTerms terms = budget_terms(config);
  const std::int64_t wanted = terms.budget > 0 ? terms.budget : terms.chunk;
  const bool is_chunked = !terms.takes_whole_prompts && wanted > 0;
  const std::int64_t size = whole_pages(scenario, wanted);
  if (!terms.has_no_size) list.add("--chunked-prefill-size", is_chunked ? size : -1);
  if (terms.takes_whole_prompts && terms.budget > 0) {
    list.add("--max-prefill-tokens", terms.budget);
  }
  if (!terms.prefills_apart && (is_chunked || terms.has_no_size)) {
    list.add("--enable-mixed-chunk");
  }
  list.add("--schedule-policy", "fcfs");
  if (terms.orders_by_priority) {
    list.add("--enable-priority-scheduling");
    list.add("--schedule-low-priority-values-first");
  }
  if (!terms.note.empty()) list.note(terms.note);
  if (terms.budget > 0 && terms.chunk > 0) {
    list.note("SGLang limits the chunk of a step, but not the chunk of one request");
  }
  if (terms.budget == 0 && terms.chunk > 0) {
    list.note(
        "SGLang's chunk is for all prompts of a step together; only one prompt is split at a "
        "time");
  }
  if (terms.takes_whole_prompts && !terms.prefills_apart) {
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
  chosen.vision_dim = vision_dim_of(scenario);
  const std::int64_t chunk = largest_prefill(scenario.scheduler);
  chosen.chunked_prefill_size = chunk > 0 ? whole_pages(scenario, chunk) : -1;
  const std::vector<ServeDefault> defaults = sglang_serve_defaults(*gpu, chosen);
  const ServeDefault& share = memory_share(defaults);
  if (!sglang_leaves_memory(*gpu, chosen)) {
    return list.note("SGLang's reserve for such chunks leaves no memory of this GPU");
  }
  list.add(kFlag, share.value);
}

EngineFlags write_flags(const Scenario& scenario) {
  FlagList list("SGLang", "0.5.23");
  if (scenario.scheduler.policy == "sglang") {
    add_own(scenario.scheduler, list);
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
  note_without_flags(scenario, "SGLang splits one prompt at a time", list);
  return list.take();
}

}  // namespace

constexpr ServerFlags kSglangFlags = {.server = "SGLang",
                                      .memory = "--mem-fraction-static",
                                      .num_seqs = "--max-running-requests",
                                      .pool = "--max-total-tokens",
                                      .graphs = "--cuda-graph-max-bs-decode",
                                      .apart_advice =
                                          "--enable-mixed-chunk lets answers go on in these steps, "
                                          "and --prefill-decode-interval between them.",
                                      .no_priorities = "--enable-priority-scheduling is off",
                                      .priority_advice =
                                          "SGLang preempts for urgent requests only beyond its "
                                          "threshold (--priority-scheduling-preemption-threshold), "
                                          "and not with --disable-priority-preemption.",
                                      .takes_other_policies = true,
                                      .write = write_flags,
                                      .known = &kSglangFlagsYaml};

}  // namespace metronome
