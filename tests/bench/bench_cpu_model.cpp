// Whole forward passes of SmolLM-135M on drawn weights, against copying memory in the same run.
//
//   build/release/metronome_bench --benchmark_filter=smollm
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "core/model/model_catalogue.h"
#include "core/model/model_weights.h"
#include "cpu/transformer.h"

namespace metronome {
namespace {

constexpr std::int32_t kBlockSize = 16;
constexpr std::int32_t kMaxTokens = 2048;

struct Model {
  explicit Model(int num_threads)
      : config(find_model("smollm-135m", {})),
        pool(num_threads),
        transformer(config, *random_weights(config, 1), pool) {}

  ModelConfig config;
  ThreadPool pool;
  Transformer transformer;
};

Model& model_on(int num_threads) {
  static std::vector<std::unique_ptr<Model>> models;
  for (const std::unique_ptr<Model>& model : models) {
    if (model->pool.num_threads() == num_threads) return *model;
  }
  models.push_back(std::make_unique<Model>(num_threads));
  return *models.back();
}

KvStore kv_of(const Model& model, std::int32_t num_sequences) {
  return KvStore({model.config.n_layers, model.config.n_kv_heads, model.config.head_dim,
                  std::int64_t{num_sequences} * kMaxTokens / kBlockSize, kBlockSize});
}

// `num_tokens` of each sequence behind `context` others, and the logits of the last.
ForwardBatch batch_of(std::int32_t num_sequences, std::int32_t context, std::int32_t num_tokens) {
  ForwardBatch batch;
  batch.clear();
  for (std::int32_t s = 0; s < num_sequences; ++s) {
    batch.requests.push_back(RequestId{static_cast<std::uint32_t>(s)});
    for (std::int32_t p = context; p < context + num_tokens; ++p) {
      batch.positions.push_back(p);
      batch.token_ids.push_back(TokenId{(s * 7919 + p * 31) % 49152});
    }
    batch.query_start.push_back(batch.num_tokens());
    batch.context_lens.push_back(context + num_tokens);
    batch.logit_tokens.push_back(batch.num_tokens() - 1);
    for (std::int32_t b = 0; b < kMaxTokens / kBlockSize; ++b) {
      batch.block_tables.push_back(BlockId{s * (kMaxTokens / kBlockSize) + b});
    }
    batch.table_start.push_back(static_cast<std::int32_t>(batch.block_tables.size()));
  }
  return batch;
}

// Bytes a second, read and written, of the fastest of some copies on all threads.
double copy_rate(ThreadPool& pool) {
  constexpr std::int64_t kBytes = 135'000'000;
  std::vector<char> from(kBytes, 1);
  std::vector<char> to(kBytes, 2);
  double fastest = 0;
  for (int repeat = 0; repeat < 15; ++repeat) {
    const auto started = std::chrono::steady_clock::now();
    pool.for_range(kBytes, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to.data() + begin, from.data() + begin, static_cast<std::size_t>(end - begin));
    });
    benchmark::ClobberMemory();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
    fastest = std::max(fastest, 2.0 * kBytes / elapsed.count());
  }
  return fastest;
}

// Threads, sequences. `of_copy` is the rate at which a step reads weights, by the fastest copy's.
void smollm_decode(benchmark::State& state) {
  Model& model = model_on(static_cast<int>(state.range(0)));
  const auto num_sequences = static_cast<std::int32_t>(state.range(1));
  KvStore kv = kv_of(model, num_sequences);
  std::vector<float> logits;
  model.transformer.forward(batch_of(num_sequences, 0, 128), kv, logits);
  const ForwardBatch batch = batch_of(num_sequences, 128, 1);
  double fastest = 1e9;
  for (auto _ : state) {
    const auto started = std::chrono::steady_clock::now();
    model.transformer.forward(batch, kv, logits);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
    state.SetIterationTime(elapsed.count());
    fastest = std::min(fastest, elapsed.count());
  }
  const auto bytes = static_cast<double>(model.transformer.weight_bytes());
  state.counters["fastest_ms"] = fastest * 1e3;
  const double copied = copy_rate(model.pool);
  state.counters["GB/s"] = bytes / fastest / 1e9;
  state.counters["copy_GB/s"] = copied / 1e9;
  state.counters["of_copy"] = bytes / fastest / copied;
}
BENCHMARK(smollm_decode)
    ->ArgsProduct({{1, 2}, {1, 4, 16}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// Threads, tokens of a chunk behind 1024 others.
void smollm_prefill(benchmark::State& state) {
  Model& model = model_on(static_cast<int>(state.range(0)));
  const auto num_tokens = static_cast<std::int32_t>(state.range(1));
  KvStore kv = kv_of(model, 1);
  std::vector<float> logits;
  model.transformer.forward(batch_of(1, 0, 1024), kv, logits);
  const ForwardBatch batch = batch_of(1, 1024, num_tokens);
  for (auto _ : state) model.transformer.forward(batch, kv, logits);
  const double operations = 2.0 * static_cast<double>(model.config.n_linear_params()) * num_tokens +
                            4.0 *
                                static_cast<double>(model.config.n_layers * model.config.n_heads *
                                                    model.config.head_dim) *
                                num_tokens * (1024 + num_tokens / 2);
  state.counters["GFLOP/s"] =
      benchmark::Counter(operations / 1e9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["tokens/s"] =
      benchmark::Counter(num_tokens, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(smollm_prefill)
    ->ArgsProduct({{1, 2}, {64, 512}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace metronome
