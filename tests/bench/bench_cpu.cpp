// SPDX-License-Identifier: Apache-2.0
// Speed of the CPU kernels on the shapes of a 135M Llama (hidden 576, MLP 1536, 30 layers, 9 query
// and 3 KV heads of 64, vocabulary 49152), against copying memory on the same threads.
//
//   build/release/metronome_bench --benchmark_filter=cpu
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "core/base/rng.h"
#include "core/model/attention_mask.h"
#include "cpu/kernels.h"
#include "cpu/kv_store.h"
#include "cpu/packed_matrix.h"
#include "cpu/thread_pool.h"

namespace metronome {
namespace {

constexpr std::int64_t kNumLayers = 30;
constexpr std::int64_t kHiddenDim = 576;
constexpr std::int64_t kVocabSize = 49152;
constexpr std::int32_t kHeadDim = 64;

class BenchWeights final : public WeightSource {
 public:
  TensorType type(const WeightSpec&) const override { return TensorType::BFloat16; }
  void read(const WeightSpec& spec, std::int64_t row_begin, std::int64_t row_end,
            float* out) const override {
    for (std::int64_t i = 0; i < (row_end - row_begin) * spec.cols; ++i) {
      out[i] = static_cast<float>((row_begin + i) % 251 - 125) / 128.0f;
    }
  }
};

struct Shape {
  std::int64_t num_outputs;
  std::int64_t num_inputs;
};

// Fused query-key-value, attention output, gate and up, down.
constexpr Shape kLayerShapes[] = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}};

PackedMatrix matrix_of(const Shape& shape, ThreadPool& pool) {
  return PackedMatrix(BenchWeights(), {{"", shape.num_outputs, shape.num_inputs, {}}}, pool);
}

std::vector<PackedMatrix> model_matrices(ThreadPool& pool) {
  std::vector<PackedMatrix> matrices;
  for (std::int64_t layer = 0; layer < kNumLayers; ++layer) {
    for (const Shape& shape : kLayerShapes) matrices.push_back(matrix_of(shape, pool));
  }
  matrices.push_back(matrix_of({kVocabSize, kHiddenDim}, pool));
  return matrices;
}

void set_rate(benchmark::State& state, const char* name, double per_iteration) {
  state.counters[name] =
      benchmark::Counter(per_iteration / 1e9, benchmark::Counter::kIsIterationInvariantRate);
}

std::vector<float> some_floats(std::int64_t count) {
  Rng rng(1, "bench");
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(rng.uniform() - 0.5);
  return values;
}

// Half the model's bytes copied: as many bytes read and written as a decode step reads.
void cpu_memcpy(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  constexpr std::int64_t kBytes = 135'000'000;
  std::vector<char> from(kBytes, 1);
  std::vector<char> to(kBytes, 2);
  for (auto _ : state) {
    pool.for_range(kBytes, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to.data() + begin, from.data() + begin, static_cast<std::size_t>(end - begin));
    });
    benchmark::ClobberMemory();
  }
  set_rate(state, "GB/s", 2.0 * kBytes);
}
BENCHMARK(cpu_memcpy)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

// Every linear layer of the model for some rows: threads, rows. A chunk of a prompt takes the
// logits of its last token alone.
void cpu_model_products(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const std::int64_t num_rows = state.range(1);
  const std::vector<PackedMatrix> matrices = model_matrices(pool);
  const std::vector<float> x = some_floats(num_rows * 1536);
  std::vector<float> out(static_cast<std::size_t>(num_rows * kVocabSize));
  const auto rows_of = [num_rows](const PackedMatrix& matrix) {
    return num_rows > 16 && matrix.num_outputs() == kVocabSize ? 1 : num_rows;
  };
  double bytes = 0;
  double operations = 0;
  for (const PackedMatrix& matrix : matrices) {
    bytes += static_cast<double>(matrix.num_bytes());
    operations +=
        2.0 * static_cast<double>(rows_of(matrix) * matrix.num_outputs() * matrix.num_inputs());
  }
  for (auto _ : state) {
    for (const PackedMatrix& matrix : matrices) {
      matrix.multiply(x.data(), matrix.num_inputs(), rows_of(matrix), out.data(),
                      matrix.num_outputs(), pool);
    }
    benchmark::ClobberMemory();
  }
  set_rate(state, "GB/s", bytes);
  set_rate(state, "GFLOP/s", operations);
}
BENCHMARK(cpu_model_products)
    ->ArgsProduct({{1, 2}, {1, 2, 4, 8, 16, 32, 128, 512}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// The last rows of a context in one layer, three query heads a KV head, on one thread: context,
// rows.
void cpu_attend(benchmark::State& state) {
  const auto context = static_cast<std::int32_t>(state.range(0));
  const auto num_tokens = static_cast<std::int32_t>(state.range(1));
  constexpr std::int32_t kGroup = 3;
  const std::vector<float> vectors = some_floats(kHeadDim);
  KvStore kv({1, 1, kHeadDim, context / 16, 16});
  std::vector<const float*> key_tiles;
  std::vector<const float*> value_tiles;
  std::vector<std::int32_t> tile_positions;
  for (std::int32_t p = 0; p < context; ++p) {
    kv.write(0, BlockId{p / 16}, p % 16, 0, vectors.data(), vectors.data());
  }
  for (std::int32_t tile = 0; tile <= context / 16; ++tile) {
    tile_positions.push_back(tile * 16);
    if (tile == context / 16) break;
    key_tiles.push_back(kv.key_tile(0, BlockId{tile}, 0, 0));
    value_tiles.push_back(kv.value_tile(0, BlockId{tile}, 0, 0));
  }
  const std::int32_t num_rows = num_tokens * kGroup;
  std::vector<float> out(static_cast<std::size_t>(num_rows) * kHeadDim);
  std::vector<const float*> queries;
  std::vector<float*> outputs;
  std::vector<std::int32_t> positions;
  double num_pairs = 0;
  for (std::int32_t row = 0; row < num_rows; ++row) {
    queries.push_back(vectors.data());
    outputs.push_back(out.data() + std::ptrdiff_t{row} * kHeadDim);
    positions.push_back(context - num_tokens + row / kGroup);
    num_pairs += positions.back() + 1;
  }
  const AttentionTask task = {.queries = queries.data(),
                              .outputs = outputs.data(),
                              .positions = positions.data(),
                              .num_rows = num_rows,
                              .head_dim = kHeadDim,
                              .window = kNoWindow,
                              .key_tiles = key_tiles.data(),
                              .value_tiles = value_tiles.data(),
                              .tile_positions = tile_positions.data(),
                              .num_tiles = context / 16};
  std::vector<float> scratch(static_cast<std::size_t>(attention_scratch_floats(task)));
  for (auto _ : state) {
    kernels().attend(task, scratch.data());
    benchmark::ClobberMemory();
  }
  set_rate(state, "GFLOP/s", num_pairs * 4 * kHeadDim);
  set_rate(state, "GB/s", context * 8.0 * kHeadDim);
}
BENCHMARK(cpu_attend)
    ->ArgsProduct({{1024, 8192}, {1, 16, 512}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

// The cost of sharing a loop at all.
void cpu_fork_join(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  std::vector<std::int64_t> counts(16 * static_cast<std::size_t>(pool.num_threads()));
  for (auto _ : state) {
    pool.for_each_part([&](int thread) { ++counts[16 * static_cast<std::size_t>(thread)]; });
  }
  benchmark::DoNotOptimize(counts.data());
}
BENCHMARK(cpu_fork_join)->Arg(1)->Arg(2)->UseRealTime();

void cpu_silu_multiply(benchmark::State& state) {
  const std::vector<float> gate = some_floats(1536);
  std::vector<float> out(gate.size());
  for (auto _ : state) {
    kernels().silu_multiply(gate.data(), gate.data(), 1536, out.data());
    benchmark::ClobberMemory();
  }
  set_rate(state, "Gelement/s", 1536);
}
BENCHMARK(cpu_silu_multiply);

}  // namespace
}  // namespace metronome
