// SPDX-License-Identifier: Apache-2.0
// Small models under a real engine on the CUDA executor: what a request's logits, KV and tokens
// are, whatever policy, cache and neighbours it was served with.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/model/attention_mask.h"
#include "core/run/workload_input.h"
#include "gpu/engine/cuda_executor.h"
#include "gpu/engine/device_engine.h"
#include "gpu/engine/device_model.h"
#include "models/weights/float16.h"
#include "models/weights/model_source.h"
#include "tests/catch.h"
#include "tests/draft_counter.h"
#include "tests/lab.h"

namespace metronome::testing {

// Sizes the kernels take, and otherwise multiples of little.
inline ModelConfig small_gpu_model(Family family) {
  ModelConfig model;
  model.n_layers = 2;
  model.hidden_dim = 64;
  model.n_heads = 4;
  model.n_kv_heads = 2;
  model.head_dim = 64;
  model.ffn_dim = 136;
  model.vocab_size = 136;
  model.max_position_embeddings = 512;
  set_architecture(family, model);
  if (family == Family::Qwen3) {
    model.hidden_dim = 72;
    model.n_kv_heads = 1;
    model.ffn_dim = 72;
    model.vocab_size = 200;
  }
  if (family == Family::Gemma3) {
    model.n_layers = 3;
    model.n_heads = 2;
    model.n_kv_heads = 1;
    model.ffn_dim = 104;
    model.sliding_window = kGemmaWindow;
  }
  return model;
}

// More query heads to a KV head than the decode kernel takes: decodes are tiles here.
inline ModelConfig many_heads_model() {
  ModelConfig model = small_gpu_model(Family::Llama);
  model.name = "many heads";
  model.n_layers = 1;
  model.n_heads = 20;
  model.n_kv_heads = 1;
  return model;
}

// random_weights() with norms that scale every element differently, so that no two change places
// unnoticed.
class LabWeights final : public WeightSource {
 public:
  LabWeights(const ModelConfig& model, std::uint64_t seed)
      : weights_(random_weights(model, seed)), seed_(seed) {}

  TensorType type(const WeightSpec& spec) const override { return weights_->type(spec); }
  void read(const WeightSpec& spec, std::int64_t row_begin, std::int64_t row_end,
            float* out) const override {
    weights_->read(spec, row_begin, row_end, out);
    if (spec.role != WeightRole::Norm) return;
    const std::uint64_t key = random_weight_key(seed_, spec.name);
    for (std::int64_t i = 0; i < spec.cols; ++i) {
      const float value = out[i] + random_weight(key, static_cast<std::uint64_t>(i), 0.5f);
      out[i] = float_of_bf16(bf16_of_float(value));
    }
  }

 private:
  std::unique_ptr<WeightSource> weights_;
  std::uint64_t seed_;
};

inline ModelSource lab_source(const ModelConfig& model, std::uint64_t seed = 3) {
  ModelSource source;
  source.config = model;
  source.weights = std::make_shared<LabWeights>(model, seed);
  return source;
}

// How the GPU computes, beside what the engine asks for.
struct GpuOptions {
  Invariance invariance = Invariance::Full;
  bool uses_graphs = true;
  bool launches_early = false;    // on a GPU that can
  bool attends_by_wgmma = false;  // on a GPU that can, with blocks that it takes
  std::int32_t prefill_span = kPrefillSpan;
  bool fuses_decodes = false;
  bool multiplies_by_wgmma = false;  // on a GPU that can
  std::int32_t max_pass_tokens = 512;
  bool keeps_logits = true;
  // With the last token a request asks for, its KV is read back; never with two steps in flight.
  bool keeps_kv = true;
};

inline bool has_hopper() {
  int major = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0),
             "cudaDeviceGetAttribute");
  return major == 9;
}

// Speculative decoding of a run, by lookups.
struct GpuDrafts {
  std::int32_t num_tokens = 0;  // of a decode; 0: none
  std::int32_t min_length = 1;
  std::int32_t max_length = 3;
};

class GpuLab {
 public:
  static constexpr std::int32_t kMaxSeqs = 16;
  static constexpr std::int32_t kMaxDrafts = 8;
  static constexpr std::int32_t kMaxModelLen = 1024;

  explicit GpuLab(Family family) : GpuLab(lab_source(small_gpu_model(family))) {}
  explicit GpuLab(ModelSource source) : source_(std::move(source)) {
    device_model(GpuOptions().max_pass_tokens);  // chooses the algorithms of all
  }

  const ModelConfig& model() const { return source_.config; }
  const ModelSource& source() const { return source_; }
  DeviceModel& device_model(std::int32_t max_pass_tokens) {
    std::unique_ptr<DeviceModel>& model = models_[max_pass_tokens];
    if (model == nullptr) {
      const PassLimits limits = {.max_tokens = std::max(max_pass_tokens, kMaxSeqs),
                                 .max_rows = kMaxSeqs * (1 + kMaxDrafts),
                                 .max_items = 64,
                                 .max_model_len = kMaxModelLen,
                                 .max_parts = 160};
      model = std::make_unique<DeviceModel>(source_, limits, store(), nullptr);
    }
    return *model;
  }

  std::vector<TokenId> ids(std::uint64_t seed, std::int32_t count) const {
    return random_ids(seed, count, model().vocab_size);
  }

  // With a cache of NaN: whoever reads what nobody wrote shall notice.
  std::unique_ptr<DeviceEngine> make_engine(const EngineSetup& setup, const GpuOptions& options) {
    DeviceEngineOptions of_engine;
    of_engine.kv = {.n_layers = model().n_layers,
                    .n_kv_heads = model().n_kv_heads,
                    .head_dim = model().head_dim,
                    .num_blocks = setup.kv_cache.num_blocks,
                    .block_size = setup.kv_cache.block_size};
    of_engine.has_window_tables = setup.kv_cache.windows.num_tokens > 0;
    of_engine.max_num_seqs = setup.max_num_seqs;
    of_engine.max_drafts = setup.scheduler.drafts.num_tokens;
    of_engine.invariance = options.invariance;
    of_engine.uses_graphs = options.uses_graphs;
    of_engine.launches_early = options.launches_early && has_hopper();
    of_engine.attends_by_wgmma =
        options.attends_by_wgmma && has_hopper() &&
        can_attend_by_wgmma(static_cast<std::int32_t>(of_engine.kv.head_dim),
                            static_cast<std::int32_t>(of_engine.kv.block_size));
    of_engine.prefill_span = options.prefill_span;
    of_engine.kernels = {.fuses_decodes = options.fuses_decodes,
                         .multiplies_by_wgmma = options.multiplies_by_wgmma && has_hopper()};
    auto engine = std::make_unique<DeviceEngine>(device_model(options.max_pass_tokens), of_engine);
    fill_with_nan(engine->kv());
    return engine;
  }

  // Serves the prompts until all have ended; checks the engine's books after it.
  LabRun run(const LabSettings& settings, const std::vector<LabPrompt>& prompts,
             const GpuOptions& options = {}) {
    DraftTally none;
    return compute(settings, prompts, options, {}, none);
  }

  // Serves the prompts with drafts, under policy vllm. Adds to `counts`.
  LabRun run_drafting(const LabSettings& settings, const std::vector<LabPrompt>& prompts,
                      const GpuDrafts& drafts, DraftTally& counts, const GpuOptions& options = {}) {
    return compute(with_drafts(settings, drafts.num_tokens, DraftMethod::Ngram), prompts, options,
                   drafts, counts);
  }

  // As LabRun has it, of positions before `end`; of window layers what is in the window of the
  // last.
  std::vector<float> kv_of(const ForwardBatch& batch, std::size_t s, std::int32_t end,
                           const DeviceKvCache& kv) const {
    const DeviceKvShape& shape = kv.shape();
    const std::vector<__nv_bfloat16> memory = kv.memory().download();
    std::vector<float> all;
    for (std::int64_t layer = 0; layer < shape.n_layers; ++layer) {
      const bool is_window = model().is_window_layer(layer);
      const bool has_own = is_window && !batch.window_block_tables.empty();
      const BlockId* blocks = has_own
                                  ? batch.window_block_tables.data() + batch.window_table_start[s]
                                  : batch.block_tables.data() + batch.table_start[s];
      for (std::int32_t p = first_kept(layer, end); p < end; ++p) {
        const auto block = static_cast<std::int64_t>(index(blocks[p / shape.block_size]));
        for (std::int64_t head = 0; head < shape.n_kv_heads; ++head) {
          const std::int64_t row =
              (block * shape.n_kv_heads + head) * shape.block_size + p % shape.block_size;
          for (std::int64_t pool = 2 * layer; pool < 2 * layer + 2; ++pool) {
            const __nv_bfloat16* from =
                memory.data() + pool * shape.layer_elements() + row * shape.head_dim;
            for (std::int64_t i = 0; i < shape.head_dim; ++i) {
              all.push_back(__bfloat162float(from[i]));
            }
          }
        }
      }
    }
    return all;
  }
  // The first position that kv_of() has of a layer.
  std::int32_t first_kept(std::int64_t layer, std::int32_t context_len) const {
    if (!model().is_window_layer(layer)) return 0;
    return first_attended(context_len - 1, static_cast<std::int32_t>(model().sliding_window));
  }

 private:
  LabRun compute(const LabSettings& settings, const std::vector<LabPrompt>& prompts,
                 const GpuOptions& options, const GpuDrafts& drafts, DraftTally& counts) {
    const Workload workload = workload_of(prompts);
    const EngineSetup setup = setup_of(settings);
    const std::unique_ptr<DeviceEngine> engine = make_engine(setup, options);
    const WorkloadInput input(workload, 0, model().vocab_size, settings.sampling);
    TestClock clock;
    NgramDrafter drafter(NgramLookup(drafts.min_length, drafts.max_length));
    CudaExecutor executor(*engine, input, clock,
                          {.drafter = drafts.num_tokens > 0 ? &drafter : nullptr,
                           .max_model_len = setup.max_model_len});
    LabRun run;
    executor.set_pass_hook(settings.hook);
    // A step in flight may already have given the blocks to another request.
    const bool keeps_kv = options.keeps_kv && settings.async_depth == 1;
    const auto keep = [&](const ForwardBatch& batch, std::size_t s, std::int32_t position,
                          auto logits) {
      const RequestId id = batch.requests[s];
      const LabPrompt& prompt = prompts[index(id)];
      const auto last = static_cast<std::int32_t>(prompt.ids.size()) + prompt.max_output - 1;
      if (position > last) return;  // with drafts
      run.logits[{id, position}].assign(logits.begin(), logits.end());
      if (keeps_kv && position == last) run.kv[id] = kv_of(batch, s, position, engine->kv());
    };
    if (options.keeps_logits) executor.set_logits_sink(keep);
    DraftCounter counter(executor, counts);
    serve(settings, setup, workload, counter, clock, run);
    return run;
  }

  // Algorithms are chosen once in the program.
  static GemmStore& store() {
    static GemmStore the_store(gemm_machine_key(kGemmWorkspaceBytes));
    return the_store;
  }

  static void fill_with_nan(const DeviceKvCache& kv) {
    check_cuda(cudaMemset(kv.memory().data(), 0xff, kv.memory().num_bytes()), "cudaMemset");
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  ModelSource source_;
  std::map<std::int32_t, std::unique_ptr<DeviceModel>> models_;  // by max_pass_tokens
};

// Calls check(lab, settings) for every architecture, with a slotted cache for one of them.
template <class Check>
void for_all_gpu_families(const std::string& policy, const Check& check) {
  for (const Family family : kFamilies) {
    GpuLab lab(family);
    const bool is_slotted = family == Family::Qwen3;
    INFO(name_of(family) << (is_slotted ? ", slotted" : ", paged"));
    check(lab, LabSettings{.policy = policy, .is_slotted = is_slotted});
  }
}

}  // namespace metronome::testing
