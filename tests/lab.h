// SPDX-License-Identifier: Apache-2.0
// Shared by the labs on CPU and GPU: prompts, settings, results of a run, and whether two runs gave
// a request the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "core/engine/engine.h"
#include "core/engine/kv/prefix_hash.h"
#include "core/metrics/output_log.h"
#include "core/model/model_config.h"
#include "core/run/forward_batch.h"
#include "core/workload/workload_arrivals.h"
#include "engines/vllm/settings.h"
#include "tests/engine_harness.h"

namespace metronome::testing {

enum class Family : std::uint8_t { Llama, Qwen3, Gemma3, Qwen3Next, DeepSeek };
// The families that the GPU computes, too; the others are apart.
constexpr Family kFamilies[] = {Family::Llama, Family::Qwen3, Family::Gemma3};

inline std::string name_of(Family family) {
  switch (family) {
    case Family::Llama: return "llama";
    case Family::Qwen3: return "qwen3";
    case Family::Gemma3: return "gemma3";
    case Family::Qwen3Next: return "qwen3-next";
    case Family::DeepSeek: return "deepseek-v3";
  }
  return "?";
}

constexpr std::int64_t kGemmaWindow = 12;  // shorter than most prompts of the tests

// Sets what makes an architecture; sizes and window are left to the caller.
inline void set_architecture(Family family, ModelConfig& model) {
  model.name = name_of(family);
  switch (family) {
    case Family::Llama:
      model.architecture = "LlamaForCausalLM";
      model.rope_scaling = {.kind = RopeScaling::Kind::Llama3,
                            .factor = 4,
                            .low_freq_factor = 1,
                            .high_freq_factor = 4,
                            .original_max_positions = 32};
      break;
    case Family::Qwen3:
      model.architecture = "Qwen3ForCausalLM";
      model.has_qk_norm = true;
      model.has_tied_embeddings = true;
      break;
    case Family::Gemma3:
      model.architecture = "Gemma3ForCausalLM";
      model.has_qk_norm = model.has_post_norms = model.has_tied_embeddings = true;
      model.has_unit_offset_norms = model.scales_embeddings = true;
      model.activation = Activation::GeluTanh;
      model.global_layer_interval = 2;
      model.rope_theta = 1e6;
      model.rope_local_theta = 1e4;
      model.query_pre_attn_scalar = 20;
      break;
    case Family::Qwen3Next:
      model.architecture = "Qwen3NextForCausalLM";
      model.has_qk_norm = true;
      apply_architecture(model);
      break;
    case Family::DeepSeek:
      model.architecture = "DeepseekV3ForCausalLM";
      apply_architecture(model);
      break;
  }
}

struct LabPrompt {
  std::vector<TokenId> ids;
  std::int32_t max_output = 12;
  std::int64_t arrival_step = 0;
  std::vector<EncoderItem> images = {};
};

inline std::vector<TokenId> random_ids(std::uint64_t seed, std::int32_t count,
                                       std::int64_t vocab_size) {
  Rng rng(seed, "lab prompt");
  std::vector<TokenId> ids;
  for (std::int32_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<TokenId>(rng.uniform_int(0, vocab_size - 1)));
  }
  return ids;
}

// Prompts that begin alike and repeat themselves, one after the other.
inline std::vector<LabPrompt> repetitive_prompts(std::int64_t vocab_size, std::uint64_t count,
                                                 std::int32_t max_output) {
  std::vector<LabPrompt> prompts;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::vector<TokenId> ids = random_ids(90, 18, vocab_size);
    const std::vector<TokenId> own = random_ids(91 + i, 5, vocab_size);
    for (int repeat = 0; repeat < 3; ++repeat) ids.insert(ids.end(), own.begin(), own.end());
    prompts.push_back({ids, max_output, static_cast<std::int64_t>(2 * i)});
  }
  return prompts;
}

struct LabSettings {
  std::string policy = "chunked";
  std::int64_t chunk = 512;   // prefill_chunk_size where the policy reads it
  std::int64_t budget = 512;  // max_num_batched_tokens, likewise
  std::int32_t max_chunks = 0;
  bool is_slotted = false;
  std::int32_t block_size = 4;  // paged
  std::int64_t num_blocks = 512;
  StepShape shape = StepShape::Mixed;
  std::int32_t async_depth = 1;
  std::int32_t max_num_seqs = 8;
  std::int32_t max_model_len = 128;
  bool caches_prefixes = false;
  std::int32_t sliding_window = 0;    // of window layers with block tables of their own
  std::int32_t num_state_groups = 0;  // of policy vllm, for a model with states
  SamplingParams sampling = {.ignore_eos = true};
  EncoderSetup encoder = {};  // but for its items
  // Before each forward pass; what it throws fails the step.
  std::function<void(const ForwardBatch&)> hook = {};
  std::function<void(Engine&)> between_steps = {};
  // Of the engines' own keys, for policies that read them.
  std::function<void(SchedulerConfig&)> adjust = {};
};

// The settings under policy vllm, with so many drafts of a decode.
inline LabSettings with_drafts(LabSettings settings, std::int32_t num_tokens, DraftMethod method) {
  settings.policy = "vllm";
  settings.adjust = [num_tokens, method, adjust = settings.adjust](SchedulerConfig& config) {
    if (adjust) adjust(config);
    config.edit<VllmConfig>().version = kFirstGroupsMinor - kFirstVllmMinor;
    config.drafts.num_tokens = num_tokens;
    config.drafts.method = method;
  };
  return settings;
}

struct LabRun {
  // By request and position of the sampled token.
  std::map<std::pair<RequestId, std::int32_t>, std::vector<float>> logits;
  // By request, of the positions cached when its latest token was sampled: layer by layer, position
  // by position, head by head, the key and then the value.
  std::map<RequestId, std::vector<float>> kv;
  std::vector<std::vector<TokenId>> tokens;  // by request
  std::vector<OutputLog::Output> outputs;
  Journal journal;
  std::int64_t num_free_blocks = 0;
  std::int64_t num_blocks = 0;
  std::vector<EndReason> ends;
  std::string failure;  // of the first request that failed with its step
  std::vector<std::int32_t> prefix_hits;
  std::int32_t num_preemptions = 0;
  std::int64_t num_encoded = 0;     // images
  std::size_t num_images_left = 0;  // whose features are in memory
};

inline Workload workload_of(const std::vector<LabPrompt>& prompts) {
  Workload workload;
  workload.mode = ArrivalMode::Steps;
  workload.token_begin.push_back(0);
  for (const LabPrompt& prompt : prompts) {
    workload.requests.push_back(
        {prompt.arrival_step, static_cast<std::int32_t>(prompt.ids.size()), prompt.max_output, 0});
    workload.token_ids.insert(workload.token_ids.end(), prompt.ids.begin(), prompt.ids.end());
    workload.token_begin.push_back(workload.token_ids.size());
    workload.image_begin.push_back(static_cast<std::uint32_t>(workload.images.size()));
    workload.images.insert(workload.images.end(), prompt.images.begin(), prompt.images.end());
  }
  workload.image_begin.push_back(static_cast<std::uint32_t>(workload.images.size()));
  return workload;
}

inline EngineSetup setup_of(const LabSettings& settings) {
  EngineSetup setup = make_setup(settings.policy);
  setup.scheduler.prefill_chunk_size = settings.chunk;
  setup.scheduler.max_num_batched_tokens = settings.budget;
  setup.scheduler.max_prefill_chunks_per_step = settings.max_chunks;
  setup.step_shape = settings.shape;
  setup.async_depth = settings.async_depth;
  setup.max_num_seqs = settings.max_num_seqs;
  setup.max_model_len = settings.max_model_len;
  if (settings.adjust) settings.adjust(setup.scheduler);
  if (settings.is_slotted) {
    setup.kv_cache = {.num_blocks = settings.max_num_seqs, .block_size = settings.max_model_len};
  } else {
    setup.kv_cache = {.num_blocks = settings.num_blocks, .block_size = settings.block_size};
    setup.kv_cache.enable_prefix_caching = settings.caches_prefixes;
    setup.kv_cache.windows.num_tokens = settings.sliding_window;
    setup.kv_cache.states.num_groups = settings.policy == "vllm" ? settings.num_state_groups : 0;
    setup.kv_cache.states.hash_unit = settings.block_size;
    metronome::arrange_cache(*find_policy(settings.policy), setup);
  }
  setup.kv_cache.forgets_unfilled_blocks = true;
  setup.encoder = settings.encoder;
  setup.encoder.plans_ahead = settings.async_depth > 1;
  setup.encoder.forgets_unfilled = true;
  return setup;
}

// Runs an engine over the workload until all requests have ended, and notes what became of them.
inline void serve(const LabSettings& settings, const EngineSetup& setup, const Workload& workload,
                  Executor& executor, Clock& clock, LabRun& run) {
  OutputLog outputs;
  EndedRequests ended;
  std::vector<EventSink*> sinks = {&run.journal, &outputs, &ended};
  const PrefixHasher hasher(&workload);
  EngineSetup with_items = setup;
  if (!workload.images.empty()) with_items.encoder.items = &workload;
  BenchEngine engine(with_items, executor, clock, sinks, &hasher);
  WorkloadArrivals arrivals(workload);
  const ProgressFn between_steps = [&](const RunProgress&) {
    if (settings.between_steps) settings.between_steps(engine);
    return true;
  };
  METRONOME_CHECK(engine.run(arrivals, between_steps, 1), "the run ends");
  run.failure = engine.first_message(EndReason::StepFailed);
  run.outputs = outputs.outputs();
  run.outputs.resize(workload.requests.size());
  for (const OutputLog::Output& output : run.outputs) run.tokens.push_back(output.token_ids);
  const KvCacheManager& cache = engine.kv_cache();
  run.num_free_blocks = cache.num_blocks() - cache.num_used_blocks();  // cached ones are free
  run.num_blocks = engine.kv_cache().num_blocks();
  for (const Request& request : ended.requests) {
    run.ends.push_back(request.end_reason);
    run.prefix_hits.push_back(request.num_prefix_hit_tokens);
    run.num_preemptions += request.num_preemptions;
  }
}

inline bool has_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The logits of one request, by position.
inline std::map<std::int32_t, const std::vector<float>*> logits_of(const LabRun& run,
                                                                   std::uint32_t request) {
  std::map<std::int32_t, const std::vector<float>*> logits;
  for (const auto& [key, values] : run.logits) {
    if (key.first == RequestId{request}) logits[key.second] = &values;
  }
  return logits;
}

inline bool has_same_logits(const LabRun& a, std::uint32_t i, const LabRun& b, std::uint32_t j) {
  const auto of_a = logits_of(a, i);
  const auto of_b = logits_of(b, j);
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(),
                    [](const auto& x, const auto& y) {
                      return x.first == y.first && has_same_bits(*x.second, *y.second);
                    });
}

// Its text and the logits that led to it.
inline bool is_same_text(const LabRun& a, std::uint32_t i, const LabRun& b, std::uint32_t j) {
  return a.tokens.at(i) == b.tokens.at(j) && has_same_logits(a, i, b, j);
}

// Logits, KV and tokens of request `i` of a and request `j` of b are the same to the bit.
inline bool is_same(const LabRun& a, std::uint32_t i, const LabRun& b, std::uint32_t j) {
  return is_same_text(a, i, b, j) && has_same_bits(a.kv.at(RequestId{i}), b.kv.at(RequestId{j}));
}
inline bool is_same(const LabRun& a, const LabRun& b, std::uint32_t i = 0) {
  return is_same(a, i, b, i);
}

}  // namespace metronome::testing
