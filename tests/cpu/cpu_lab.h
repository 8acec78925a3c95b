// SPDX-License-Identifier: Apache-2.0
// Small models of three architectures under a real engine on the CPU executor: what a request's
// logits, KV and tokens are, whatever policy, cache and neighbours it was served with.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/run/workload_input.h"
#include "cpu/cpu_executor.h"
#include "cpu/model_drafter.h"
#include "tests/catch.h"
#include "tests/draft_counter.h"
#include "tests/lab.h"

namespace metronome::testing {

// Sizes that are multiples of nothing, bfloat16 weights.
inline ModelConfig small_model(Family family) {
  ModelConfig model;
  model.n_layers = 2;
  model.hidden_dim = 40;
  model.n_heads = 4;
  model.n_kv_heads = 2;
  model.head_dim = 12;
  model.ffn_dim = 70;
  model.vocab_size = 131;
  model.max_position_embeddings = 512;
  set_architecture(family, model);
  if (family == Family::Qwen3) model.n_heads = 6;
  if (family == Family::Gemma3) {
    model.n_layers = 4;
    model.n_kv_heads = 1;
    model.sliding_window = kGemmaWindow;
  }
  if (family == Family::Qwen3Next) {
    model.n_layers = 5;
    model.rotary_dim = 6;
    model.n_experts = 5;
    model.n_experts_per_token = 2;
    model.expert_ffn_dim = 11;
    model.shared_expert_ffn_dim = 17;
    model.linear_attention = {.layers = {0, 1, 2, 4},
                              .n_key_heads = 2,
                              .n_value_heads = 6,
                              .key_head_dim = 9,
                              .value_head_dim = 21,
                              .conv_width = 4};
  }
  if (family == Family::DeepSeek) {
    model.n_layers = 3;
    model.n_kv_heads = 4;
    model.n_experts = 6;
    model.n_experts_per_token = 3;
    model.expert_ffn_dim = 11;
    model.n_dense_layers = 1;
    model.shared_expert_ffn_dim = 17;
    model.n_expert_groups = 3;
    model.n_groups_per_token = 2;
    model.expert_scale = 1.5;
    model.latent_attention = {
        .kv_rank = 18, .q_rank = 13, .nope_dim = 6, .rope_dim = 6, .value_dim = 9};
    model.rotary_dim = 6;
  }
  return model;
}

class Lab;

// Speculative decoding of a run: by a lookup, or by the model of another lab.
struct LabDrafts {
  std::int32_t num_tokens = 0;  // of a decode; 0: none
  std::int32_t min_length = 1;
  std::int32_t max_length = 3;
  Lab* drafter = nullptr;
};

class Lab {
 public:
  explicit Lab(Family family, int num_threads = 1, std::uint64_t seed = 3)
      : Lab(small_model(family), num_threads, seed) {}
  Lab(const ModelConfig& model, int num_threads, std::uint64_t seed)
      : pool_(num_threads), transformer_(model, *random_weights(model, seed), pool_) {
    if (model.vision.is_empty()) return;
    encoder_ = std::make_unique<VisionEncoder>(model, *random_weights(model, seed), pool_);
  }

  const ModelConfig& model() const { return transformer_.model(); }
  Transformer& transformer() { return transformer_; }

  std::vector<TokenId> ids(std::uint64_t seed, std::int32_t count) const {
    return random_ids(seed, count, model().vocab_size);
  }

  // Serves the prompts until all have ended; checks the engine's books after it.
  LabRun run(const LabSettings& settings, const std::vector<LabPrompt>& prompts) {
    DraftTally none;
    return compute(settings, prompts, {}, none);
  }

  // Serves the prompts with drafts, under policy vllm. Adds to `counts`.
  LabRun run_drafting(const LabSettings& settings, const std::vector<LabPrompt>& prompts,
                      const LabDrafts& drafts, DraftTally& counts) {
    const auto method = drafts.drafter != nullptr ? DraftMethod::DraftModel : DraftMethod::Ngram;
    return compute(with_drafts(settings, drafts.num_tokens, method), prompts, drafts, counts);
  }

 private:
  LabRun compute(const LabSettings& settings, const std::vector<LabPrompt>& prompts,
                 const LabDrafts& drafts, DraftTally& counts) {
    const Workload workload = workload_of(prompts);
    EngineSetup setup = setup_of(settings);
    KvStore kv = make_kv(setup.kv_cache, setup.max_num_seqs);
    std::unique_ptr<KvStore> drafter_kv;
    std::unique_ptr<Drafter> drafter;
    if (drafts.drafter != nullptr) {
      drafter_kv = std::make_unique<KvStore>(drafts.drafter->make_kv(setup.kv_cache, 0));
      drafter = std::make_unique<ModelDrafter>(drafts.drafter->transformer_, *drafter_kv,
                                               drafts.num_tokens);
    } else if (drafts.num_tokens > 0) {
      drafter = std::make_unique<NgramDrafter>(NgramLookup(drafts.min_length, drafts.max_length));
    }
    const WorkloadInput input(workload, 0, model().vocab_size, settings.sampling, model().vision);
    std::unique_ptr<ImageStore> images;
    if (encoder_) {
      ImageProcessor processor;
      processor.tower = model().vision;
      images = std::make_unique<ImageStore>(*encoder_, processor);
    }
    TestClock clock;
    CpuExecutor executor(transformer_, kv, input, clock,
                         {.drafter = drafter.get(), .max_model_len = setup.max_model_len},
                         images.get());
    LabRun run;
    executor.set_pass_hook(settings.hook);
    executor.set_logits_sink(
        [&](const ForwardBatch& batch, std::size_t s, std::int32_t position, auto logits) {
          // Tokens behind a request's last one may be computed with drafts.
          const RequestSpec& spec = workload.requests[index(batch.requests[s])];
          if (position >= spec.num_prompt_tokens + spec.max_output_tokens) return;
          run.logits[{batch.requests[s], position}].assign(logits.begin(), logits.end());
          run.kv[batch.requests[s]] = kv_of(batch, s, position, kv);
        });
    DraftCounter counter(executor, counts);
    serve(settings, setup, workload, counter, clock, run);
    if (images) run.num_encoded = images->num_encoded();
    if (images) run.num_images_left = images->num_images();
    return run;
  }

  // Full of NaNs, so that a read of an unwritten value is noticed.
  KvStore make_kv(const KvCacheLayout& layout, std::int64_t num_state_slots) const {
    KvStore kv(kv_shape(model(), layout, num_state_slots));
    fill_with_nan(kv);
    for (std::int64_t layer = 0; layer < kv.shape().n_state_layers; ++layer) {
      for (std::int64_t slot = 0; slot < kv.shape().num_state_slots; ++slot) {
        std::fill_n(kv.state(layer, BlockId{static_cast<std::int32_t>(slot)}),
                    kv.shape().state_floats, std::numeric_limits<float>::quiet_NaN());
      }
    }
    return kv;
  }

  void fill_with_nan(KvStore& kv) const {
    const KvShape& shape = kv.shape();
    const std::vector<float> nan(static_cast<std::size_t>(shape.head_dim),
                                 std::numeric_limits<float>::quiet_NaN());
    for (std::int64_t layer = 0; layer < shape.n_layers; ++layer) {
      for (std::int64_t block = 0; block < shape.num_blocks; ++block) {
        for (std::int32_t offset = 0; offset < shape.block_size; ++offset) {
          for (std::int64_t head = 0; head < shape.n_kv_heads; ++head) {
            kv.write(layer, BlockId{static_cast<std::int32_t>(block)}, offset, head, nan.data(),
                     nan.data());
          }
        }
      }
    }
  }

  std::vector<float> kv_of(const ForwardBatch& batch, std::size_t s, std::int32_t num_positions,
                           const KvStore& kv) const {
    const auto head_dim = static_cast<std::size_t>(kv.shape().head_dim);
    std::vector<float> all;
    std::vector<float> key(head_dim);
    std::vector<float> value(head_dim);
    const BlockId* blocks = batch.block_tables.data() + batch.table_start[s];
    const std::int32_t block_size = kv.shape().block_size;
    for (std::int64_t layer = 0; layer < model().n_attention_layers(); ++layer) {
      for (std::int32_t p = 0; p < num_positions; ++p) {
        for (std::int64_t head = 0; head < kv.shape().n_kv_heads; ++head) {
          kv.read(layer, blocks[p / block_size], p % block_size, head, key.data(), value.data());
          all.insert(all.end(), key.begin(), key.end());
          all.insert(all.end(), value.begin(), value.end());
        }
      }
    }
    // Behind it the states at the end of the pass.
    const KvShape& shape = kv.shape();
    for (std::int64_t layer = 0; layer < shape.n_state_layers; ++layer) {
      const auto groups = static_cast<std::size_t>(batch.num_state_groups);
      const auto group =
          static_cast<std::size_t>(groups == 1 ? 0 : layer / shape.layers_per_state_group());
      const float* const state = kv.state(layer, batch.state_targets[s * groups + group]);
      all.insert(all.end(), state, state + shape.state_floats);
    }
    return all;
  }

  ThreadPool pool_;
  Transformer transformer_;
  std::unique_ptr<VisionEncoder> encoder_;
};

// Calls check(lab, settings) for every architecture with a paged and a slotted cache.
template <class Check>
void for_all_caches(const std::string& policy, const Check& check) {
  for (const Family family : kFamilies) {
    Lab lab(family);
    for (const bool is_slotted : {false, true}) {
      INFO(name_of(family) << (is_slotted ? ", slotted" : ", paged"));
      check(lab, LabSettings{.policy = policy, .is_slotted = is_slotted});
    }
  }
}

}  // namespace metronome::testing
