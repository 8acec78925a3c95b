// Small models of three architectures under a real engine on the CPU executor: what a request's
// logits, KV and tokens are, whatever policy, cache and neighbours it was served with.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/run/workload_input.h"
#include "cpu/cpu_executor.h"
#include "tests/catch.h"
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
  return model;
}

class Lab {
 public:
  explicit Lab(Family family, int num_threads = 1, std::uint64_t seed = 3)
      : Lab(small_model(family), num_threads, seed) {}
  Lab(const ModelConfig& model, int num_threads, std::uint64_t seed)
      : pool_(num_threads), transformer_(model, *random_weights(model, seed), pool_) {}

  const ModelConfig& model() const { return transformer_.model(); }
  Transformer& transformer() { return transformer_; }

  std::vector<TokenId> ids(std::uint64_t seed, std::int32_t count) const {
    return random_ids(seed, count, model().vocab_size);
  }

  // Serves the prompts until all have ended; checks the engine's books after it.
  LabRun run(const LabSettings& settings, const std::vector<LabPrompt>& prompts) {
    const Workload workload = workload_of(prompts);
    const EngineSetup setup = setup_of(settings);
    KvStore kv({.n_layers = model().n_layers,
                .n_kv_heads = model().n_kv_heads,
                .head_dim = model().head_dim,
                .num_blocks = setup.kv_cache.num_blocks,
                .block_size = setup.kv_cache.block_size});
    fill_with_nan(kv);  // whoever reads what nobody wrote shall notice
    const WorkloadInput input(workload, 0, model().vocab_size, settings.sampling);
    TestClock clock;
    CpuExecutor executor(transformer_, kv, input, clock);
    LabRun run;
    executor.set_pass_hook(settings.hook);
    executor.set_logits_sink([&](const ForwardBatch& batch, std::size_t s, auto logits) {
      const auto key = std::make_pair(batch.requests[s], batch.context_lens[s]);
      run.logits[key].assign(logits.begin(), logits.end());
      run.kv[batch.requests[s]] = kv_of(batch, s, kv);
    });
    serve(settings, setup, workload, executor, clock, run);
    return run;
  }

 private:
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

  std::vector<float> kv_of(const ForwardBatch& batch, std::size_t s, const KvStore& kv) const {
    const auto head_dim = static_cast<std::size_t>(model().head_dim);
    std::vector<float> all;
    std::vector<float> key(head_dim);
    std::vector<float> value(head_dim);
    const BlockId* blocks = batch.block_tables.data() + batch.table_start[s];
    const std::int32_t block_size = kv.shape().block_size;
    for (std::int64_t layer = 0; layer < model().n_layers; ++layer) {
      for (std::int32_t p = 0; p < batch.context_lens[s]; ++p) {
        for (std::int64_t head = 0; head < model().n_kv_heads; ++head) {
          kv.read(layer, blocks[p / block_size], p % block_size, head, key.data(), value.data());
          all.insert(all.end(), key.begin(), key.end());
          all.insert(all.end(), value.begin(), value.end());
        }
      }
    }
    return all;
  }

  ThreadPool pool_;
  Transformer transformer_;
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
