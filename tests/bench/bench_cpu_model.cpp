// SPDX-License-Identifier: Apache-2.0
// Whole forward passes of SmolLM-135M and Gemma 3 270M on drawn weights, against copying memory in
// the same run. The second argument is the format of the weights, as files of that name have it:
// 0 bfloat16, 1 Q8_0, 2 Q4_1, 3 Q4_K. Matrices of a width that 256 does not divide are Q5_0 instead
// of Q4_K. The embedding is Q8_0 with any of the three.
//
//   build/release/metronome_bench --benchmark_filter='smollm|gemma'
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/model/model_catalogue.h"
#include "cpu/transformer.h"
#include "models/weights/model_weights.h"
#include "tests/cpu/quantised_source.h"

namespace metronome {
namespace {

constexpr std::int32_t kBlockSize = 16;
constexpr std::int32_t kMaxTokens = 2048;

enum Format { kBfloat16, kQ8_0, kQ4_1, kQ4_K };

ModelConfig config_of(const std::string& name) {
  if (name != "gemma3-270m") return find_model(name, {});
  // google/gemma-3-270m: the 1B model's layers, narrower.
  ModelConfig config = find_model("gemma-3-1b", {});
  config.n_layers = 18;
  config.hidden_dim = 640;
  config.n_heads = 4;
  config.n_kv_heads = 1;
  config.head_dim = 256;
  config.ffn_dim = 2048;
  return config;
}

std::unique_ptr<WeightSource> source_of(const ModelConfig& config, int format) {
  if (format == kBfloat16) return random_weights(config, 1);
  return std::make_unique<testing::QuantisedSource>(
      [format](const WeightSpec& spec) {
        if (spec.role == WeightRole::Embedding || format == kQ8_0) return TensorType::Q8_0;
        if (format == kQ4_1) return TensorType::Q4_1;
        return spec.cols % 256 == 0 ? TensorType::Q4_K : TensorType::Q5_0;
      },
      1);
}

struct Model {
  Model(const std::string& model_name, int num_threads, int weight_format)
      : name(model_name),
        format(weight_format),
        config(config_of(name)),
        pool(num_threads),
        transformer(config, *source_of(config, format), pool) {}

  std::string name;
  int format;
  ModelConfig config;
  ThreadPool pool;
  Transformer transformer;
};

Model& model_on(const std::string& name, int num_threads, int format) {
  static std::vector<std::unique_ptr<Model>> models;
  for (const std::unique_ptr<Model>& model : models) {
    if (model->name == name && model->pool.num_threads() == num_threads &&
        model->format == format) {
      return *model;
    }
  }
  models.push_back(std::make_unique<Model>(name, num_threads, format));
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

// Threads, format, sequences. `of_copy` is the rate at which a step reads weights, by the fastest
// copy's.
void decode(benchmark::State& state, const char* name) {
  Model& model = model_on(name, static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  const auto num_sequences = static_cast<std::int32_t>(state.range(2));
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
BENCHMARK_CAPTURE(decode, smollm, "smollm-135m")
    ->ArgsProduct({{1, 2}, {kBfloat16, kQ8_0, kQ4_1, kQ4_K}, {1, 4, 16}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decode, gemma, "gemma3-270m")
    ->ArgsProduct({{1, 2}, {kBfloat16, kQ8_0, kQ4_1, kQ4_K}, {1}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// Threads, format, tokens of a chunk, tokens before it.
void prefill(benchmark::State& state, const char* name) {
  Model& model = model_on(name, static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  const auto num_tokens = static_cast<std::int32_t>(state.range(2));
  const auto context = static_cast<std::int32_t>(state.range(3));
  KvStore kv = kv_of(model, 1);
  std::vector<float> logits;
  if (context > 0) model.transformer.forward(batch_of(1, 0, context), kv, logits);
  const ForwardBatch batch = batch_of(1, context, num_tokens);
  for (auto _ : state) model.transformer.forward(batch, kv, logits);
  const double operations = 2.0 * static_cast<double>(model.config.n_linear_params()) * num_tokens +
                            4.0 *
                                static_cast<double>(model.config.n_layers * model.config.n_heads *
                                                    model.config.head_dim) *
                                num_tokens * (context + num_tokens / 2);
  state.counters["GFLOP/s"] =
      benchmark::Counter(operations / 1e9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["tokens/s"] =
      benchmark::Counter(num_tokens, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(prefill, smollm, "smollm-135m")
    ->ArgsProduct({{1, 2}, {kBfloat16, kQ8_0, kQ4_1, kQ4_K}, {512}, {0, 1024}})
    ->ArgsProduct({{1, 2}, {kBfloat16}, {64}, {1024}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(prefill, gemma, "gemma3-270m")
    ->ArgsProduct({{1, 2}, {kBfloat16, kQ8_0, kQ4_1, kQ4_K}, {512}, {0}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace metronome
