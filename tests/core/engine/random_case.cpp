// SPDX-License-Identifier: Apache-2.0
#include "tests/core/engine/random_case.h"

#include <algorithm>
#include <iterator>

#include "core/base/math.h"
#include "core/base/rng.h"
#include "core/engine/policies/registry.h"
#include "engines/fastgen/settings.h"
#include "engines/llama_cpp/settings.h"
#include "engines/sarathi/settings.h"
#include "engines/sglang/settings.h"
#include "engines/tensorrt_llm/settings.h"
#include "engines/vllm/settings.h"
#include "tests/draws.h"
#include "tests/engine_harness.h"

namespace metronome::testing {
namespace {

// Thinks that a step's time is that of its tokens; the executor has another opinion.
class TokenPredictor final : public StepTimePredictor {
 public:
  TimeNs step_ns(const StepPlan& plan) override {
    return 100'000 + std::int64_t{20'000} * plan.num_tokens();
  }
  TimeNs host_gap_ns(const StepPlan&) const override { return 30'000; }
};

void draw_targets(Rng& rng, EngineSetup& setup) {
  static TokenPredictor predictor;
  SloPolicyConfig& config = setup.scheduler.slo;
  if (chance(rng, 0.8)) config.itl_target_ms = 4 * rng.uniform();
  if (chance(rng, 0.4)) config.tpot_target_ms = 4 * rng.uniform();
  if (chance(rng, 0.6)) config.ttft_deadline_ms = draw(rng, 1, 40);
  config.tile_tokens = draw(rng, 1, 40);
  config.headroom = chance(rng, 0.3) ? 0.5 * rng.uniform() : 0;
  config.late_share = chance(rng, 0.5) ? 0.1 : 0.001 + 0.999 * rng.uniform();
  config.max_held_steps = draw(rng, 0, 20);
  if (chance(rng, 0.9)) setup.predictor = &predictor;
}

// Settings of the policies that reproduce an engine; the others do not read them.
void draw_engine_settings(Rng& rng, EngineSetup& setup) {
  SchedulerConfig& config = setup.scheduler;
  const auto budget = static_cast<std::int32_t>(*config.max_num_batched_tokens);
  config.edit<VllmConfig>().scheduling_policy = static_cast<VllmConfig::Policy>(draw(rng, 0, 1));
  config.edit<VllmConfig>().long_prefill_token_threshold = chance(rng, 0.4) ? draw(rng, 1, 30) : 0;
  config.edit<VllmConfig>().scheduler_reserve_full_isl = chance(rng, 0.6);
  config.edit<VllmConfig>().version = draw(rng, 0, static_cast<int>(std::size(kVllmVersions)) - 1);
  if (chance(rng, 0.3))
    config.edit<VllmConfig>().max_num_active_seqs = draw(rng, 1, setup.max_num_seqs);
  config.edit<VllmConfig>().long_prefill_token_threshold_adaptive = chance(rng, 0.3);
  config.edit<VllmConfig>().prefill_schedule_interval = chance(rng, 0.3) ? draw(rng, 2, 6) : 1;
  config.edit<VllmConfig>().enable_chunked_prefill =
      budget < setup.max_model_len || chance(rng, 0.8);
  config.edit<SarathiConfig>().chunk_size = budget;
  config.edit<SarathiConfig>().enable_dynamic_chunking_schedule = chance(rng, 0.3);
  config.edit<SarathiConfig>().low_chunk_size = 32;
  config.edit<SarathiConfig>().high_chunk_size = 32 * draw(rng, 1, 4);
  config.edit<SarathiConfig>().chunk_schedule_max_tokens = draw(rng, 32, 200);
  config.edit<SarathiConfig>().chunk_schedule_stages = draw(rng, 1, 4);
  config.edit<SglangConfig>().schedule_policy =
      static_cast<SglangConfig::SchedulePolicy>(draw(rng, 0, 1));
  const std::int32_t page_size = setup.kv_cache.block_size;
  config.edit<SglangConfig>().chunked_prefill_size =
      chance(rng, 0.8) ? page_size * draw(rng, 1, 60 / page_size + 1) : -1;
  config.edit<SglangConfig>().max_prefill_tokens = draw(rng, 1, 100);
  config.edit<SglangConfig>().enable_mixed_chunk = chance(rng, 0.4);
  config.edit<SglangConfig>().scheduler_recv_interval = chance(rng, 0.3) ? draw(rng, 2, 12) : 1;
  config.edit<SglangConfig>().prefill_decode_interval = chance(rng, 0.3) ? draw(rng, 1, 3) : 0;
  config.edit<SglangConfig>().prefill_decode_interval_min_bs = draw(rng, 0, 3);
  if (chance(rng, 0.2)) config.edit<SglangConfig>().prefill_max_requests = draw(rng, 1, 3);
  config.edit<SglangConfig>().enable_priority_scheduling = chance(rng, 0.3);
  config.edit<SglangConfig>().schedule_low_priority_values_first = chance(rng, 0.5);
  config.edit<SglangConfig>().priority_scheduling_preemption_threshold = draw(rng, 0, 2);
  config.edit<SglangConfig>().disable_priority_preemption = chance(rng, 0.3);
  config.edit<SglangConfig>().retraction_policy =
      static_cast<SglangConfig::RetractionPolicy>(draw(rng, 0, 1));
  config.edit<SglangConfig>().init_new_token_ratio = rng.uniform();
  config.edit<SglangConfig>().new_token_ratio_decay_steps = draw(rng, 1, 50);
  TensorRtLlmConfig& trt = config.edit<TensorRtLlmConfig>();
  trt.capacity_scheduler_policy = static_cast<TensorRtLlmConfig::Capacity>(draw(rng, 0, 2));
  trt.context_chunking_policy = static_cast<TensorRtLlmConfig::Chunking>(draw(rng, 0, 1));
  trt.max_num_tokens = budget;
  trt.enable_chunked_context = chance(rng, 0.8);
  trt.chunk_unit_size = chance(rng, 0.5) ? draw(rng, 1, setup.max_num_seqs) : 0;
  if (chance(rng, 0.3)) {
    trt.batch_wait_timeout_iters = draw(rng, 1, 8);
    trt.batch_wait_max_tokens_ratio = rng.uniform();
  }
  config.edit<FastGenConfig>().max_ragged_batch_size = budget;
  config.edit<FastGenConfig>().max_ragged_sequence_count = draw(rng, 1, 12);
  config.edit<FastGenConfig>().max_tracked_sequences = draw(rng, 1, 12);
  config.edit<LlamaCppConfig>().n_batch = budget;
  config.edit<LlamaCppConfig>().cont_batching = chance(rng, 0.7);
  config.edit<LlamaCppConfig>().slot_prompt_similarity = chance(rng, 0.5) ? 0.1 : 0;
}

void draw_scheduler(Rng& rng, EngineSetup& setup) {
  const auto policies = all_policies();
  const PolicyInfo& policy = policies[static_cast<std::size_t>(
      draw(rng, 0, static_cast<std::int32_t>(policies.size()) - 1))];
  SchedulerConfig& config = setup.scheduler;
  config.policy = policy.name;
  if (policy.allows_order) config.order = static_cast<QueueOrder>(draw(rng, 0, 2));
  config.max_num_batched_tokens = setup.max_num_seqs + draw(rng, 0, 60);
  if (chance(rng, 0.7)) config.prefill_chunk_size = draw(rng, 1, 40);
  if (chance(rng, 0.5)) config.max_prefill_chunks_per_step = draw(rng, 1, 3);
  if (chance(rng, 0.5)) config.max_num_partial_prefills = draw(rng, 1, 3);
  const std::int64_t budget = *config.max_num_batched_tokens;
  const std::int64_t largest = std::min(budget, config.prefill_chunk_size.value_or(budget));
  if (chance(rng, 0.3)) {
    config.min_chunk_size = draw(rng, 1, static_cast<std::int32_t>(largest));
  }
  if (chance(rng, 0.3)) config.batch_wait_ms = draw(rng, 1, 20);
  draw_engine_settings(rng, setup);
  if (policy.predicts_steps) draw_targets(rng, setup);
  setup.step_shape =
      policy.requires_separate || chance(rng, 0.4) ? StepShape::Separate : StepShape::Mixed;
}

void draw_prefix_caching(Rng& rng, EngineSetup& setup) {
  const PolicyInfo& policy = *find_policy(setup.scheduler.policy);
  if (policy.allows_sliding_window && chance(rng, 0.4)) {
    setup.kv_cache.windows.num_tokens = draw(rng, 1, setup.max_model_len);
    setup.kv_cache.windows.num_groups = chance(rng, 0.3) ? draw(rng, 2, 4) : 1;
    setup.kv_cache.num_groups_before_full = draw(rng, 0, setup.kv_cache.windows.num_groups);
    if (chance(rng, 0.6)) {
      setup.kv_cache.retention_interval = draw(rng, 0, 4) * setup.kv_cache.block_size;
    }
    setup.kv_cache.num_blocks *= 1 + setup.kv_cache.windows.num_groups;
  }
  arrange_cache(setup);
  setup.kv_cache.forgets_unfilled_blocks = true;  // the oracle compares contents
  if (policy.prefix_caching == PrefixCaching::Optional && chance(rng, 0.3)) {
    setup.kv_cache.enable_prefix_caching = false;
  }
  if (policy.prefix_caching == PrefixCaching::OptionalOff && chance(rng, 0.5)) {
    setup.kv_cache.enable_prefix_caching = true;
  }
}

// Prompts that begin alike, up to being the same, so that prefixes are found again.
void draw_requests(Rng& rng, RandomCase& random) {
  const EngineSetup& setup = random.setup;
  Workload& workload = random.workload;
  const int num_requests = draw(rng, 1, 20);
  const std::int32_t longest_prompt = draw(rng, 1, setup.max_model_len);
  const std::int32_t longest_output = draw(rng, 1, setup.max_model_len / 2);
  const bool all_at_once = chance(rng, 0.3);
  workload.segment_begin.push_back(0);
  for (int i = 0; i < num_requests; ++i) {
    const std::int32_t prompt = draw(rng, 1, longest_prompt);
    const std::int32_t shared = chance(rng, 0.3) ? prompt : draw(rng, 0, prompt);
    const auto group = static_cast<std::uint64_t>(draw(rng, 0, 2));
    if (shared > 0) workload.segments.push_back({content_id(ContentKind::Group, group), shared});
    if (shared < prompt) {
      const auto own = static_cast<std::uint64_t>(i);
      workload.segments.push_back({content_id(ContentKind::Request, own), prompt - shared});
    }
    workload.segment_begin.push_back(static_cast<std::uint32_t>(workload.segments.size()));
    workload.requests.push_back({0, prompt, draw(rng, 1, longest_output), draw(rng, 0, 3)});
    random.gap_before.push_back(all_at_once ? 0 : draw(rng, 0, 6));
  }
}

// Images at positions [begin, end), in order.
void draw_items(Rng& rng, std::int32_t begin, std::int32_t end, std::int32_t longest,
                std::vector<EncoderItem>& items) {
  while (begin < end && chance(rng, 0.6)) {
    begin += draw(rng, 0, 12);
    const auto content = static_cast<std::uint64_t>(draw(rng, 1, longest));
    EncoderItem item{
        .content = content, .begin = begin, .num_tokens = static_cast<std::int32_t>(content)};
    // Equal contents are equally long; the first and the last token of some are text.
    const bool has_marks = content >= 3 && content % 2 == 0;
    item.first_embedding = has_marks ? 1 : 0;
    item.num_embeddings = item.num_tokens - (has_marks ? 2 : 0);
    if (item.end() > end) return;
    items.push_back(item);
    begin = item.end();
  }
}

// Prompts with images: those in a shared beginning are the same, and images repeat.
void draw_images(std::uint64_t seed, RandomCase& random) {
  Rng rng(seed, "images");
  if (!chance(rng, 0.5)) return;
  EngineSetup& setup = random.setup;
  Workload& workload = random.workload;
  EncoderSetup& encoder = setup.encoder;
  VllmConfig& vllm = setup.scheduler.edit<VllmConfig>();
  const auto budget = static_cast<std::int32_t>(*setup.scheduler.max_num_batched_tokens);
  std::int32_t longest = draw(rng, 1, 40);
  encoder.limits_chunks = setup.scheduler.policy == "vllm";
  if (encoder.limits_chunks && chance(rng, 0.3)) {
    encoder.disable_chunked_mm_input = true;
    longest = std::min(longest, budget);
    vllm.long_prefill_token_threshold = 0;  // below an image it would wait forever
  }
  encoder.compute_budget = longest + draw(rng, 0, longest);
  encoder.cache_size = longest + draw(rng, 0, 2 * longest);
  encoder.plans_ahead = setup.async_depth > 1;
  encoder.forgets_unfilled = true;  // the oracle follows what is encoded
  std::vector<std::vector<EncoderItem>> of_groups(3);
  for (auto& items : of_groups) draw_items(rng, 0, setup.max_model_len, longest, items);
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    workload.image_begin.push_back(static_cast<std::uint32_t>(workload.images.size()));
    std::int32_t shared = 0;
    std::vector<EncoderItem> items;
    const PromptSegment& first = workload.segments[workload.segment_begin[i]];
    for (std::uint64_t group = 0; group < of_groups.size(); ++group) {
      if (first.content != content_id(ContentKind::Group, group)) continue;
      shared = first.num_tokens;
      for (const EncoderItem& item : of_groups[group]) {
        if (item.end() <= shared) items.push_back(item);
      }
    }
    draw_items(rng, shared, workload.requests[i].num_prompt_tokens, longest, items);
    workload.images.insert(workload.images.end(), items.begin(), items.end());
  }
  workload.image_begin.push_back(static_cast<std::uint32_t>(workload.images.size()));
}

// Requests that come from another engine, or go to one.
void draw_handovers(std::uint64_t seed, RandomCase& random) {
  Rng rng(seed, "handovers");
  const EngineSetup& setup = random.setup;
  const bool is_plain = setup.kv_cache.windows.num_tokens == 0;
  if (!find_policy(setup.scheduler.policy)->allows_handover || !is_plain || !chance(rng, 0.4))
    return;
  for (RequestSpec& spec : random.workload.requests) {
    if (chance(rng, 0.4)) spec.num_received_tokens = draw(rng, 0, spec.num_prompt_tokens - 1);
    spec.hands_over = chance(rng, 0.3);
  }
}

}  // namespace

RandomCase draw_case(std::uint64_t seed) {
  Rng rng(seed, "property");
  RandomCase random;
  EngineSetup& setup = random.setup;
  setup.max_num_seqs = draw(rng, 1, 8);
  setup.max_model_len = draw(rng, 20, 200);
  setup.max_waiting_requests = chance(rng, 0.3) ? draw(rng, 1, 6) : 0;
  setup.async_depth = draw(rng, 1, 2);
  if (chance(rng, 0.25)) {
    setup.kv_cache = {.num_blocks = setup.max_num_seqs, .block_size = setup.max_model_len};
  } else {
    setup.kv_cache.block_size = draw(rng, 1, 20);
    // Tight pools, so that requests fit one by one and crowd each other out together.
    const auto blocks_of_longest =
        static_cast<std::int32_t>(ceil_div(setup.max_model_len, setup.kv_cache.block_size));
    setup.kv_cache.num_blocks =
        chance(rng, 0.8) ? blocks_of_longest + draw(rng, 0, blocks_of_longest) : draw(rng, 1, 60);
    setup.kv_cache.allocation = chance(rng, 0.5) ? KvAllocation::Eager : KvAllocation::Incremental;
    if (chance(rng, 0.3)) {
      setup.kv_cache.watermark_blocks =
          draw(rng, 0, static_cast<std::int32_t>(setup.kv_cache.num_blocks));
    }
  }
  draw_scheduler(rng, setup);
  if (setup.kv_cache.num_blocks != setup.max_num_seqs) draw_prefix_caching(rng, setup);
  draw_requests(rng, random);
  draw_images(seed, random);
  draw_handovers(seed, random);
  random.abort_chance = chance(rng, 0.4) ? 0.05 : 0;
  random.failure_chance = chance(rng, 0.4) ? 0.03 : 0;
  random.stop_chance = chance(rng, 0.6) ? rng.uniform() * 0.3 : 0;
  return random;
}

RandomCase draw_state_case(std::uint64_t seed) {
  // The seeds of other policies are passed over.
  std::uint64_t of_policy = seed * 1'000'003;
  RandomCase random = draw_case(of_policy);
  while (random.setup.scheduler.policy != "vllm") random = draw_case(++of_policy);
  Rng rng(seed, "states");
  EngineSetup& setup = random.setup;
  for (RequestSpec& spec : random.workload.requests) {
    spec.num_received_tokens = 0;
    spec.hands_over = false;
  }
  const auto blocks_of_longest = [&] {
    return ceil_div(setup.max_model_len, setup.kv_cache.block_size);
  };
  KvCacheLayout layout = {.block_size = draw(rng, 1, 20)};
  layout.states = {.num_groups = draw(rng, 1, 3), .hash_unit = layout.block_size};
  layout.enable_prefix_caching = chance(rng, 0.75);
  std::int32_t num_windows = 0;
  if (chance(rng, 0.4)) {
    num_windows = draw(rng, 1, 3);
    layout.windows.num_tokens = draw(rng, 1, setup.max_model_len);
    layout.windows.num_groups = num_windows;
    layout.has_states_before_windows = chance(rng, 0.5);
  }
  layout.num_groups_before_full = draw(rng, 0, layout.states.num_groups + num_windows);
  setup.kv_cache = layout;
  setup.kv_cache.num_blocks =
      blocks_of_longest() * (1 + num_windows) + 1 + layout.states.num_groups * draw(rng, 1, 3) +
      (chance(rng, 0.7) ? draw(rng, 0, static_cast<std::int32_t>(2 * blocks_of_longest())) : 0);
  if (chance(rng, 0.5)) {
    setup.kv_cache.retention_interval = draw(rng, 0, 4) * layout.block_size;
  }
  setup.kv_cache.watermark_blocks = chance(rng, 0.2) ? draw(rng, 0, 3) : 0;
  // States are cached by chunks of a prompt.
  VllmConfig& vllm = setup.scheduler.edit<VllmConfig>();
  if (layout.enable_prefix_caching) vllm.enable_chunked_prefill = true;
  // By vLLM's rules a request may wait forever where the encoder's limits end its chunk before the
  // first block, so here nothing is beyond them. tools/conformance has such limits beside states.
  std::int64_t num_embeddings = 0;
  for (const EncoderItem& image : random.workload.images) num_embeddings += image.num_embeddings;
  if (num_embeddings > 0) {
    setup.encoder.disable_chunked_mm_input = false;
    setup.encoder.compute_budget = setup.encoder.cache_size = num_embeddings;
  }
  if (setup.max_num_seqs + layout.block_size > *setup.scheduler.max_num_batched_tokens) {
    setup.scheduler.max_num_batched_tokens = setup.max_num_seqs + layout.block_size;
  }
  vllm.version = static_cast<std::int32_t>(std::size(kVllmVersions)) - 1;
  arrange_cache(setup);
  setup.kv_cache.forgets_unfilled_blocks = true;
  return random;
}

RandomCase draw_run(std::uint64_t seed) {
  RandomCase random = draw_case(seed);
  Rng rng(seed, "runs");
  Workload& workload = random.workload;
  workload.mode = static_cast<ArrivalMode>(rng.uniform_int(0, 2));
  workload.concurrency = draw(rng, 1, 4);
  workload.think_time = rng.uniform_int(0, 3) * kNsPerMs;
  TimeNs arrival = 0;
  const TimeNs longest_gap = workload.mode == ArrivalMode::Timed ? 8 * kNsPerMs : 8;
  for (RequestSpec& spec : workload.requests) {
    spec.hands_over = false;  // nobody would release it
    arrival += rng.uniform_int(0, longest_gap);
    spec.arrival = arrival;
  }
  return random;
}

}  // namespace metronome::testing
