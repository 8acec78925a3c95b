// SPDX-License-Identifier: Apache-2.0
// The least time of a step: by hand for a model of a few weights, by counting every pair for random
// steps, and beside a table of floors that was computed without this code.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "core/model/attention_mask.h"
#include "core/model/model_catalogue.h"
#include "gpu/plan/step_floor.h"
#include "tests/catch.h"

namespace metronome::testing::TEST_FILE {
namespace {

ScheduledChunk chunk_at(std::int32_t begin, std::int32_t count, bool samples = true) {
  return {.request = RequestId{0},
          .first_position = begin,
          .num_tokens = count,
          .kind = count == 1 ? ChunkKind::Decode : ChunkKind::Prefill,
          .samples_token = samples};
}

// 576 weights in a layer: qkv 8 * 16, output 8 * 8, MLP 3 * 8 * 16. 256 of the head. A token's keys
// and values take 16 bytes in a layer, a pair of query and position 2 * 2 * 8 operations.
ModelConfig hand_model() {
  ModelConfig model;
  model.n_layers = 1;
  model.hidden_dim = 8;
  model.n_heads = 2;
  model.n_kv_heads = 1;
  model.head_dim = 4;
  model.ffn_dim = 16;
  model.vocab_size = 32;
  return model;
}

// One global layer and one with a window of 4.
ModelConfig window_model() {
  ModelConfig model = hand_model();
  model.n_layers = 2;
  model.sliding_window = 4;
  model.global_layer_interval = 2;
  return model;
}

TEST_CASE("the work of a step is what its tokens and contexts need", "[gpu_plan]") {
  const ModelConfig model = hand_model();
  SECTION("a decode at context 10 that samples") {
    const FloorWork work = floor_work(model, std::vector{chunk_at(9, 1)});
    CHECK(work.bytes == 2 * (576 + 256) + 16 * 10);
    CHECK(work.flops == 2 * (576 + 256) + 32 * 10);
  }
  SECTION("a chunk of 3 behind 4 that does not: the head is not read") {
    const FloorWork work = floor_work(model, std::vector{chunk_at(4, 3, false)});
    CHECK(work.bytes == 2 * 576 + 16 * 7);
    CHECK(work.flops == 3 * 2 * 576 + 32 * (5 + 6 + 7));
  }
  SECTION("both: weights are read once, the head is computed for one row") {
    const FloorWork work = floor_work(model, std::vector{chunk_at(9, 1), chunk_at(4, 3, false)});
    CHECK(work.bytes == 2 * (576 + 256) + 16 * (10 + 7));
    CHECK(work.flops == 4 * 2 * 576 + 2 * 256 + 32 * (10 + 18));
  }
  SECTION("two rows of the head cost its weights once") {
    const FloorWork work = floor_work(model, std::vector{chunk_at(0, 1), chunk_at(0, 1)});
    CHECK(work.bytes == 2 * (576 + 256) + 16 * 2);
    CHECK(work.flops == 2 * 2 * (576 + 256) + 32 * 2);
  }
}

TEST_CASE("a window layer reads and multiplies what its window shows", "[gpu_plan]") {
  const ModelConfig model = window_model();
  const double weights = 2 * (2 * 576 + 256);
  SECTION("a decode at context 10 sees 10 and 4") {
    const FloorWork work = floor_work(model, std::vector{chunk_at(9, 1)});
    CHECK(work.bytes == weights + 16 * (10 + 4));
    CHECK(work.flops == weights + 32 * (10 + 4));
  }
  SECTION("a chunk of 5 behind 2: its queries see 3 to 7, and 3, 4, 4, 4, 4 of 7") {
    const FloorWork work = floor_work(model, std::vector{chunk_at(2, 5)});
    CHECK(work.bytes == weights + 16 * (7 + 7));
    CHECK(work.flops == 5 * 2 * 2 * 576 + 2 * 256 + 32 * (25 + 19));
  }
  SECTION("a chunk of 2 behind 5: 6 + 7, and 4 + 4 of positions 2 to 6") {
    const FloorWork work = floor_work(model, std::vector{chunk_at(5, 2)});
    CHECK(work.bytes == weights + 16 * (7 + 5));
    CHECK(work.flops == 2 * 2 * 2 * 576 + 2 * 256 + 32 * (13 + 8));
  }
  SECTION("a model of window layers only") {
    ModelConfig all_window = model;
    all_window.global_layer_interval = 0;
    const FloorWork work = floor_work(all_window, std::vector{chunk_at(9, 1)});
    CHECK(work.bytes == weights + 16 * (4 + 4));
  }
}

TEST_CASE("work counted pair by pair is the same", "[gpu_plan]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    Rng rng(seed, "step floor");
    ModelConfig model = window_model();
    model.n_layers = rng.uniform_int(1, 7);
    model.sliding_window = rng.uniform_int(0, 3) == 0 ? 0 : rng.uniform_int(1, 40);
    model.global_layer_interval = rng.uniform_int(0, 4);
    std::vector<ScheduledChunk> chunks;
    std::int64_t num_pairs = 0;
    std::int64_t num_read = 0;
    std::int64_t num_tokens = 0;
    std::int64_t num_rows = 0;
    for (std::int64_t c = rng.uniform_int(1, 4); c > 0; --c) {
      const auto begin = static_cast<std::int32_t>(rng.uniform_int(0, 60));
      const auto count = static_cast<std::int32_t>(rng.uniform_int(1, 50));
      chunks.push_back(chunk_at(begin, count, rng.uniform_int(0, 1) == 1));
      num_tokens += count;
      num_rows += chunks.back().samples_token ? 1 : 0;
      for (std::int64_t layer = 0; layer < model.n_layers; ++layer) {
        const std::int32_t window = model.is_window_layer(layer)
                                        ? static_cast<std::int32_t>(model.sliding_window)
                                        : kNoWindow;
        num_read += begin + count - first_attended(begin, window);
        for (std::int32_t p = begin; p < begin + count; ++p) {
          num_pairs += p + 1 - first_attended(p, window);
        }
      }
    }
    const std::int64_t linear = 576 * model.n_layers;
    const FloorWork work = floor_work(model, chunks);
    CHECK(work.bytes ==
          static_cast<double>(2 * (linear + (num_rows > 0 ? 256 : 0)) + 16 * num_read));
    CHECK(work.flops ==
          static_cast<double>(2 * (linear * num_tokens + 256 * num_rows) + 32 * num_pairs));
  }
}

TEST_CASE("a floor is the longer of memory and arithmetic", "[gpu_plan]") {
  const MachineRates rates = {.copy_bytes_per_s = 100, .matrix_flops_per_s = 1000};
  CHECK(step_floor_s({.bytes = 50, .flops = 100}, rates) == 0.5);
  CHECK(step_floor_s({.bytes = 50, .flops = 700}, rates) == 0.7);
  CHECK(step_floor_s({}, rates) == 0);
}

// An H200's measured rates, which the tables below assume: 4.3 TB/s, 790 TFLOP/s.
constexpr MachineRates kH200 = {.copy_bytes_per_s = 4.3e12, .matrix_flops_per_s = 790e12};
constexpr const char* kModels[] = {"llama-3.2-3b", "qwen3-4b", "gemma-3-1b"};

TEST_CASE("decode floors of an H200 are those computed elsewhere", "[gpu_plan]") {
  // Milliseconds at context 2048, by an independent calculation from the published shapes.
  constexpr std::int32_t kBatches[] = {1, 8, 32, 64, 128};
  constexpr double kTable[3][5] = {{1.549, 1.931, 3.242, 4.990, 8.486},
                                   {1.941, 2.433, 4.118, 6.366, 10.860},
                                   {0.470, 0.502, 0.613, 0.762, 1.058}};
  for (std::size_t m = 0; m < 3; ++m) {
    const ModelConfig model = find_model(kModels[m], {});
    for (std::size_t b = 0; b < 5; ++b) {
      INFO(kModels[m] << ", " << kBatches[b] << " decodes");
      const std::vector<ScheduledChunk> chunks(static_cast<std::size_t>(kBatches[b]),
                                               chunk_at(2047, 1));
      const double floor_ms = step_floor_s(floor_work(model, chunks), kH200) * 1e3;
      CHECK(std::abs(floor_ms - kTable[m][b]) <= 0.00051);  // half of the last digit
    }
  }
}

TEST_CASE("prefill floors of an H200 are those computed elsewhere", "[gpu_plan]") {
  // Milliseconds of a chunk behind nothing, and behind 8192 tokens. The table leaves out the keys
  // and values of the chunk itself, which we count once; they matter where memory is the bound.
  constexpr std::int32_t kChunks[] = {128, 256, 512, 1024, 2048};
  constexpr double kTable[3][2][5] = {
      {{1.49, 1.84, 3.71, 7.54, 15.53}, {1.71, 2.76, 5.54, 11.19, 22.84}},
      {{1.87, 2.38, 4.81, 9.81, 20.41}, {2.15, 3.95, 7.94, 16.07, 32.93}},
      {{0.47, 0.47, 0.92, 1.87, 3.77}, {0.48, 0.51, 1.02, 2.05, 4.13}}};
  for (std::size_t m = 0; m < 3; ++m) {
    const ModelConfig model = find_model(kModels[m], {});
    for (std::size_t p = 0; p < 2; ++p) {
      for (std::size_t c = 0; c < 5; ++c) {
        INFO(kModels[m] << ", chunk " << kChunks[c] << (p == 0 ? "" : " behind 8192"));
        const std::int32_t prefix = p == 0 ? 0 : 8192;
        const FloorWork work = floor_work(model, std::vector{chunk_at(prefix, kChunks[c])});
        FloorWork without_own = work;
        without_own.bytes -= static_cast<double>(kChunks[c] * model.kv_bytes_per_token());
        CHECK(std::abs(step_floor_s(without_own, kH200) * 1e3 - kTable[m][p][c]) <= 0.0051);
        CHECK(step_floor_s(work, kH200) <= 1.005 * step_floor_s(without_own, kH200));
      }
    }
  }
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
