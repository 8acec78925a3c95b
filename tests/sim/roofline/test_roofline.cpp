// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "sim/roofline/roofline.h"
#include "sim/virtual_clock.h"
#include "tests/catch.h"

namespace metronome::TEST_FILE {
namespace {

// An H200 whose peak is the throughput that was measured on one, with nothing else in the way.
HardwareSpec bare_hardware() {
  HardwareSpec hardware;
  hardware.name = "bare";
  hardware.peak_flops = 790e12;
  hardware.peak_bandwidth = 4.3e12;
  hardware.memory_bytes = std::int64_t{139} << 30;
  hardware.link_bandwidth = 450e9;
  return hardware;
}

ModelConfig model(const std::string& name) { return find_model(name, {}); }

ScheduledChunk prefill(std::int32_t first, std::int32_t n, bool samples) {
  return {RequestId{0}, first, n, ChunkKind::Prefill, samples};
}

// A decode whose context, its own token included, is `context` tokens long.
ScheduledChunk decode(std::int32_t context) {
  return {RequestId{0}, context - 1, 1, ChunkKind::Decode, true};
}

void add_pass(StepPlan& plan, const std::vector<ScheduledChunk>& chunks) {
  const auto begin = static_cast<std::int32_t>(plan.chunks.size());
  plan.chunks.insert(plan.chunks.end(), chunks.begin(), chunks.end());
  plan.passes.push_back({begin, static_cast<std::int32_t>(plan.chunks.size())});
}

StepPlan one_pass(const std::vector<ScheduledChunk>& chunks) {
  StepPlan plan;
  add_pass(plan, chunks);
  return plan;
}

StepCost cost_of(const std::string& name, const StepPlan& plan,
                 const CostModelConfig& config = {}) {
  return RooflineCostModel(model(name), bare_hardware(), config).step_cost(plan);
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

bool parts_add_up(const StepCost& cost) {
  return cost.total_ns == cost.linear_ns + cost.attention_ns + cost.comm_ns + cost.overhead_ns;
}

const char* const kTableModels[] = {"llama-3.2-3b", "qwen3-4b", "gemma-3-1b", "llama-3.1-8b",
                                    "qwen3-8b"};

TEST_CASE("decode floors at a context of 2048", "[sim][roofline]") {
  // Every operation is bound by bytes, so the sum over operations is the floor of the whole step.
  const std::int32_t batches[] = {1, 8, 32, 64, 128};
  const double expected_ms[5][5] = {{1.549, 1.931, 3.242, 4.990, 8.486},
                                    {1.941, 2.433, 4.118, 6.366, 10.860},
                                    {0.470, 0.502, 0.613, 0.762, 1.058},
                                    {3.553, 3.990, 5.488, 7.486, 11.481},
                                    {3.590, 4.082, 5.768, 8.015, 12.510}};
  for (std::size_t m = 0; m < 5; ++m) {
    for (std::size_t b = 0; b < 5; ++b) {
      INFO(kTableModels[m] << " batch " << batches[b]);
      const std::vector<ScheduledChunk> chunks(static_cast<std::size_t>(batches[b]), decode(2048));
      const StepCost cost = cost_of(kTableModels[m], one_pass(chunks));
      // Embedding rows are counted here and not in the table: 1 MB at batch 128.
      CHECK(std::abs(to_ms(cost.total_ns) - expected_ms[m][b]) < 0.00085);
      CHECK(parts_add_up(cost));
    }
  }
}

TEST_CASE("prefill chunk floors", "[sim][roofline]") {
  // The table holds max(all FLOPs, all bytes) with one row of logits: floor_ns. A step costs more:
  // its operations run one after another, and each takes its own maximum.
  const std::int32_t chunk_tokens[] = {128, 256, 512, 1024, 2048};
  const double at_start_ms[5][5] = {{1.49, 1.84, 3.71, 7.54, 15.53},
                                    {1.87, 2.38, 4.81, 9.81, 20.41},
                                    {0.47, 0.47, 0.92, 1.87, 3.77},
                                    {3.49, 4.55, 9.14, 18.44, 37.58},
                                    {3.52, 4.53, 9.10, 18.40, 37.58}};
  const double after_8192_ms[5][5] = {{1.71, 2.76, 5.54, 11.19, 22.84},
                                      {2.15, 3.95, 7.94, 16.07, 32.93},
                                      {0.48, 0.51, 1.02, 2.05, 4.13},
                                      {3.74, 5.94, 11.92, 24.01, 48.71},
                                      {3.80, 6.09, 12.23, 24.66, 50.11}};
  for (std::size_t m = 0; m < 5; ++m) {
    RooflineCostModel cost_model(model(kTableModels[m]), bare_hardware(), {});
    for (std::size_t c = 0; c < 5; ++c) {
      for (const std::int32_t prefix : {0, 8192}) {
        INFO(kTableModels[m] << " chunk " << chunk_tokens[c] << " prefix " << prefix);
        const StepPlan plan = one_pass({prefill(prefix, chunk_tokens[c], true)});
        const StepWork work = cost_model.step_work(plan);
        const double expected = prefix == 0 ? at_start_ms[m][c] : after_8192_ms[m][c];
        // The table leaves out the chunk's own KV and embedding rows: 15 MB of 128 tokens.
        CHECK(std::abs(to_ms(cost_model.floor_ns(work)) - expected) < 0.0085);

        const bool is_memory_bound = work.total_bytes() / 4.3e12 > work.total_flops() / 790e12;
        const bool is_gemma = m == 2;
        CHECK(is_memory_bound ==
              (chunk_tokens[c] == 128 || (is_gemma && prefix == 0 && chunk_tokens[c] == 256)));

        const StepCost cost = cost_model.step_cost(plan);
        const double sum_ns = (work.total_bytes() / 4.3e12 + work.total_flops() / 790e12) * 1e9;
        CHECK(cost.total_ns >= cost_model.floor_ns(work) - 2);
        CHECK(static_cast<double>(cost.total_ns) <= sum_ns + 2);
        CHECK(parts_add_up(cost));
      }
    }
  }
}

TEST_CASE("a middle chunk at full compute costs the floor without its head", "[sim][roofline]") {
  for (const char* name : kTableModels) {
    for (const std::int32_t tokens : {512, 1024, 2048}) {
      INFO(name << " " << tokens);
      RooflineCostModel cost_model(model(name), bare_hardware(), {});
      const StepPlan plan = one_pass({prefill(0, tokens, false)});
      const StepWork work = cost_model.step_work(plan);
      CHECK(work.head.bytes == 0);
      const auto total = static_cast<double>(cost_model.step_cost(plan).total_ns);
      const double compute_ns = work.total_flops() / 790e12 * 1e9;
      CHECK(total == Approx(compute_ns).epsilon(0.002));
    }
  }
}

TEST_CASE("one weight read of a 3B model at 960 GB/s", "[sim][roofline]") {
  HardwareSpec hardware = bare_hardware();
  hardware.peak_bandwidth = 960e9;  // RTX 5080
  RooflineCostModel cost_model(model("llama-3.2-3b"), hardware, {});
  const StepPlan plan = one_pass({decode(1)});
  const StepWork work = cost_model.step_work(plan);
  const double weights = work.projections.bytes + work.head.bytes;
  CHECK(weights == Approx(6e9).epsilon(0.08));  // "about 6 GB": 6.43
  const double read_ms = to_ms(cost_model.step_cost(plan).linear_ns);
  CHECK(read_ms == Approx(6.3).epsilon(0.07));  // 6.69 for 6.43 GB; 6 GB take 6.25
  CHECK(6e9 / 960e9 * 1e3 == Approx(6.3).epsilon(0.01));
}

TEST_CASE("batching four prefills saves three weight reads", "[sim][roofline]") {
  // Short chunks: bound by the weights either way.
  HardwareSpec hardware = bare_hardware();
  hardware.peak_bandwidth = 960e9;
  RooflineCostModel cost_model(model("llama-3.2-3b"), hardware, {});
  const ScheduledChunk chunk = prefill(0, 16, true);
  StepPlan serial;
  for (int i = 0; i < 4; ++i) add_pass(serial, {chunk});
  const StepPlan batched = one_pass({chunk, chunk, chunk, chunk});

  const TimeNs saved =
      cost_model.step_cost(serial).total_ns - cost_model.step_cost(batched).total_ns;
  const double read_ms = to_ms(cost_model.step_cost(one_pass({chunk})).linear_ns);
  CHECK(to_ms(saved) == Approx(3 * read_ms).epsilon(0.001));
  CHECK(to_ms(saved) == Approx(19.0).epsilon(0.06));  // three reads of 6.3 ms

  const StepWork four = cost_model.step_work(serial);
  const StepWork once = cost_model.step_work(batched);
  CHECK(four.projections.bytes == 4 * once.projections.bytes);
  CHECK(four.head.bytes == 4 * once.head.bytes);
  CHECK(four.total_flops() == once.total_flops());
}

TEST_CASE("separate passes read the weights twice", "[sim][roofline]") {
  RooflineCostModel cost_model(model("llama-3.1-8b"), bare_hardware(), {});
  const std::vector<ScheduledChunk> decodes(8, decode(1000));
  const ScheduledChunk chunk = prefill(512, 64, true);
  StepPlan separate;
  add_pass(separate, decodes);
  add_pass(separate, {chunk});
  std::vector<ScheduledChunk> all = decodes;
  all.push_back(chunk);
  const StepPlan mixed = one_pass(all);
  const TimeNs difference =
      cost_model.step_cost(separate).linear_ns - cost_model.step_cost(mixed).linear_ns;
  const TimeNs one_read = cost_model.step_cost(one_pass({decode(1)})).linear_ns;
  CHECK(static_cast<double>(difference) == Approx(static_cast<double>(one_read)).epsilon(0.001));
  CHECK(cost_model.step_cost(separate).attention_ns == cost_model.step_cost(mixed).attention_ns);
}

TEST_CASE("padded batches pay for their waste", "[sim][roofline]") {
  CostModelConfig padded;
  padded.batching = Batching::Padded;
  for (const char* name : kTableModels) {
    INFO(name);
    RooflineCostModel ragged_cost(model(name), bare_hardware(), {});
    RooflineCostModel padded_cost(model(name), bare_hardware(), padded);
    const std::vector<ScheduledChunk> chunks = {prefill(0, 512, false), prefill(512, 512, false),
                                                prefill(1024, 512, false), decode(100),
                                                decode(900)};
    const StepWork tight = ragged_cost.step_work(one_pass(chunks));
    const StepWork loose = padded_cost.step_work(one_pass(chunks));
    CHECK(loose.projections.flops == tight.projections.flops);
    CHECK(loose.prefill_attention.flops > tight.prefill_attention.flops);
    const ModelConfig shape = model(name);
    if (shape.sliding_window == 0) {
      const double waste = 1536.0 * static_cast<double>(shape.kv_bytes_per_token());
      CHECK(loose.prefill_attention.bytes - tight.prefill_attention.bytes == waste);
      const double decode_waste = 800.0 * static_cast<double>(shape.kv_bytes_per_token());
      CHECK(loose.decode_attention.bytes - tight.decode_attention.bytes == decode_waste);
    }
    // Nothing to pad: nothing to pay.
    const StepPlan even = one_pass({prefill(512, 256, true), prefill(512, 256, true), decode(700)});
    CHECK(ragged_cost.step_cost(even).total_ns == padded_cost.step_cost(even).total_ns);
    // Shorter queries are padded too.
    const StepPlan uneven = one_pass({prefill(0, 512, false), prefill(512, 100, true)});
    CHECK(padded_cost.step_work(uneven).projections.flops / 1024 ==
          Approx(ragged_cost.step_work(uneven).projections.flops / 612));
  }
}

TEST_CASE("gather copies of a chunked prompt", "[sim][roofline]") {
  std::vector<ScheduledChunk> chunks;
  for (std::int32_t i = 0; i < 4; ++i) chunks.push_back(prefill(512 * i, 512, i == 3));
  CostModelConfig config;
  config.gather_kv = true;
  const ModelConfig llama = model("llama-3.2-3b");
  RooflineCostModel gathering(llama, bare_hardware(), config);
  RooflineCostModel direct(llama, bare_hardware(), {});
  chunks.push_back(decode(700));
  double gather_bytes = 0;
  for (const ScheduledChunk& chunk : chunks) {
    const StepPlan plan = one_pass({chunk});
    gather_bytes += gathering.step_work(plan).gather_bytes;
    const StepCost with = gathering.step_cost(plan);
    const StepCost without = direct.step_cost(plan);
    CHECK(with.overhead_ns > without.overhead_ns);
    CHECK(with.linear_ns == without.linear_ns);
    CHECK(with.attention_ns == without.attention_ns);
    CHECK(parts_add_up(with));
  }
  // Read and written once. The four chunks gather 512 + 1024 + 1536 + 2048 positions.
  CHECK(gather_bytes == 2.0 * (5120 + 700) * static_cast<double>(llama.kv_bytes_per_token()));
  // A prompt in one chunk has just been computed, so there is nothing to gather.
  CHECK(gathering.step_work(one_pass({prefill(0, 2048, true)})).gather_bytes == 0);
}

// The definition, one pair at a time.
std::int64_t count_pairs(std::int64_t first, std::int64_t n, std::int64_t window,
                         std::int64_t& attended) {
  std::int64_t pairs = 0;
  std::vector<bool> seen(static_cast<std::size_t>(first + n), false);
  for (std::int64_t query = first; query < first + n; ++query) {
    for (std::int64_t key = 0; key <= query; ++key) {
      if (window > 0 && query - key >= window) continue;
      ++pairs;
      seen[static_cast<std::size_t>(key)] = true;
    }
  }
  attended = std::count(seen.begin(), seen.end(), true);
  return pairs;
}

TEST_CASE("attention pairs against counting them", "[sim][roofline]") {
  const std::uint64_t seed = 20240611;
  INFO("seed " << seed);
  Rng rng(seed, "chunks");
  for (int round = 0; round < 400; ++round) {
    const std::int64_t first = rng.uniform_int(0, 150);
    const std::int64_t n = rng.uniform_int(1, 120);
    const std::int64_t window = rng.uniform_int(0, 1) == 0 ? 0 : rng.uniform_int(1, 200);
    INFO("first " << first << " tokens " << n << " window " << window);
    std::int64_t attended = 0;
    REQUIRE(attention_pairs(first, n, window) == count_pairs(first, n, window, attended));
    REQUIRE(attended_positions(first, n, window) == attended);
  }
  // Far beyond 32 bits.
  CHECK(attention_pairs(1 << 20, 1 << 20, 0) ==
        (std::int64_t{1} << 40) + (std::int64_t{1} << 19) * ((1 << 20) + 1));
}

std::vector<ScheduledChunk> random_chunks(Rng& rng) {
  std::vector<ScheduledChunk> chunks;
  const std::int64_t num_decodes = rng.uniform_int(0, 20);
  for (std::int64_t i = 0; i < num_decodes; ++i) {
    chunks.push_back(decode(static_cast<std::int32_t>(rng.uniform_int(1, 6000))));
  }
  const std::int64_t num_prefills = rng.uniform_int(num_decodes == 0 ? 1 : 0, 4);
  for (std::int64_t i = 0; i < num_prefills; ++i) {
    chunks.push_back(prefill(static_cast<std::int32_t>(rng.uniform_int(0, 4000)),
                             static_cast<std::int32_t>(rng.uniform_int(1, 2048)),
                             rng.uniform_int(0, 1) == 1));
  }
  return chunks;
}

TEST_CASE("work equals the sum over tokens, counted one by one", "[sim][roofline]") {
  const std::uint64_t seed = 77;
  INFO("seed " << seed);
  Rng rng(seed, "chunks");
  for (const char* name : {"gemma-3-1b", "llama-3.1-8b"}) {
    const ModelConfig shape = model(name);
    RooflineCostModel cost_model(shape, bare_hardware(), {});
    for (int round = 0; round < 20; ++round) {
      const std::vector<ScheduledChunk> chunks = random_chunks(rng);
      double flops = 0;
      for (std::int64_t layer = 0; layer < shape.n_layers; ++layer) {
        const bool is_global =
            shape.sliding_window == 0 || (layer + 1) % shape.global_layer_interval == 0;
        for (const ScheduledChunk& chunk : chunks) {
          for (std::int64_t p = chunk.first_position; p < chunk.end_position(); ++p) {
            const std::int64_t visible = is_global ? p + 1 : std::min(p + 1, shape.sliding_window);
            // Scores and weighted values: a multiply and an add each.
            flops += static_cast<double>(2 * 2 * shape.n_heads * shape.head_dim * visible);
          }
        }
      }
      const StepWork work = cost_model.step_work(one_pass(chunks));
      REQUIRE(work.prefill_attention.flops + work.decode_attention.flops == Approx(flops));
    }
  }
}

TEST_CASE("more work is never cheaper", "[sim][roofline]") {
  const std::uint64_t seed = 4242;
  INFO("seed " << seed);
  Rng rng(seed, "chunks");
  for (int round = 0; round < 400; ++round) {
    CostModelConfig config;
    config.batching = rng.uniform_int(0, 1) == 0 ? Batching::Ragged : Batching::Padded;
    config.gather_kv = rng.uniform_int(0, 1) == 1;
    const char* const names[] = {"gemma-3-4b", "qwen3-8b", "llama-2-7b"};
    const char* name = names[rng.uniform_int(0, 2)];
    RooflineCostModel cost_model(model(name), bare_hardware(), config);
    CostModelConfig ragged = config;
    ragged.batching = Batching::Ragged;

    std::vector<ScheduledChunk> chunks = random_chunks(rng);
    const StepCost before = cost_model.step_cost(one_pass(chunks));
    INFO("round " << round << " " << name);
    REQUIRE(parts_add_up(before));
    RooflineCostModel ragged_cost(model(name), bare_hardware(), ragged);
    REQUIRE(before.total_ns >= ragged_cost.step_cost(one_pass(chunks)).total_ns);

    const auto at =
        static_cast<std::size_t>(rng.uniform_int(0, static_cast<std::int64_t>(chunks.size()) - 1));
    std::vector<ScheduledChunk> later = chunks;
    later[at].first_position += static_cast<std::int32_t>(rng.uniform_int(1, 500));
    REQUIRE(cost_model.step_cost(one_pass(later)).total_ns >= before.total_ns);
    if (chunks[at].kind == ChunkKind::Prefill) {
      std::vector<ScheduledChunk> longer = chunks;
      longer[at].num_tokens += static_cast<std::int32_t>(rng.uniform_int(1, 500));
      REQUIRE(cost_model.step_cost(one_pass(longer)).total_ns >= before.total_ns);
    }
    StepPlan split;  // the same chunks in two passes
    add_pass(split, std::vector<ScheduledChunk>(chunks.begin(), chunks.begin() + 1));
    if (chunks.size() > 1 && config.batching == Batching::Ragged) {
      add_pass(split, std::vector<ScheduledChunk>(chunks.begin() + 1, chunks.end()));
      REQUIRE(cost_model.step_cost(split).total_ns >= before.total_ns);
    }
    chunks.push_back(decode(static_cast<std::int32_t>(rng.uniform_int(1, 6000))));
    REQUIRE(cost_model.step_cost(one_pass(chunks)).total_ns >= before.total_ns);
  }
}

TEST_CASE("a step is told apart from its decodes alone", "[sim][roofline]") {
  const std::uint64_t seed = 515;
  INFO("seed " << seed);
  Rng rng(seed, "chunks");
  const auto is_decode = [](const ScheduledChunk& chunk) {
    return chunk.kind == ChunkKind::Decode;
  };
  for (int round = 0; round < 200; ++round) {
    CostModelConfig config;
    config.batching = rng.uniform_int(0, 1) == 0 ? Batching::Ragged : Batching::Padded;
    config.gather_kv = rng.uniform_int(0, 1) == 1;
    RooflineCostModel cost_model(model(round % 2 == 0 ? "gemma-3-4b" : "qwen3-8b"), bare_hardware(),
                                 config);
    const std::vector<ScheduledChunk> chunks = random_chunks(rng);
    std::vector<ScheduledChunk> decodes;
    std::vector<ScheduledChunk> prefills;
    for (const ScheduledChunk& chunk : chunks) {
      (is_decode(chunk) ? decodes : prefills).push_back(chunk);
    }
    INFO("round " << round);
    const TimeNs alone = decodes.empty() ? 0 : cost_model.step_cost(one_pass(decodes)).total_ns;
    REQUIRE(cost_model.step_cost(one_pass(chunks)).decode_only_ns == alone);
    StepPlan separate;
    if (!decodes.empty()) add_pass(separate, decodes);
    if (!prefills.empty()) add_pass(separate, prefills);
    REQUIRE(cost_model.step_cost(separate).decode_only_ns == alone);
  }
}

TEST_CASE("efficiencies and overheads scale their own terms", "[sim][roofline]") {
  const ModelConfig shape = model("llama-3.2-3b");
  const StepPlan decodes = one_pass(std::vector<ScheduledChunk>(16, decode(2048)));
  const StepPlan chunk = one_pass({prefill(8192, 2048, false)});
  HardwareSpec hardware = bare_hardware();
  const StepCost bare_decode = RooflineCostModel(shape, hardware, {}).step_cost(decodes);
  const StepCost bare_chunk = RooflineCostModel(shape, hardware, {}).step_cost(chunk);
  CHECK(bare_decode.overhead_ns == 0);
  CHECK(bare_decode.comm_ns == 0);

  hardware.bandwidth_efficiency = 0.5;
  hardware.matmul_efficiency = 0.25;
  hardware.attention_efficiency = 0.125;
  hardware.launch_overhead_us = 50;
  hardware.kernel_overhead_us = 10;
  RooflineCostModel slow(shape, hardware, {});
  const StepCost slow_decode = slow.step_cost(decodes);
  CHECK(slow_decode.linear_ns == Approx(2.0 * static_cast<double>(bare_decode.linear_ns)));
  CHECK(slow_decode.attention_ns == Approx(2.0 * static_cast<double>(bare_decode.attention_ns)));
  CHECK(slow_decode.overhead_ns == 50'000 + 28 * 10'000);
  const StepCost slow_chunk = slow.step_cost(chunk);
  CHECK(slow_chunk.linear_ns ==
        Approx(4.0 * static_cast<double>(bare_chunk.linear_ns)).epsilon(0.001));
  CHECK(slow_chunk.attention_ns == Approx(8.0 * static_cast<double>(bare_chunk.attention_ns)));
  // Launches are paid per pass.
  StepPlan two;
  add_pass(two, {decode(10)});
  add_pass(two, {decode(10)});
  CHECK(slow.step_cost(two).overhead_ns == 2 * 330'000);
}

TEST_CASE("host gap", "[sim][roofline]") {
  HardwareSpec hardware = bare_hardware();
  hardware.host_gap_us = 400;
  CostModelConfig config;
  CHECK(RooflineCostModel(model("qwen3-8b"), hardware, config).host_gap_ns({}) == 400'000);
  config.host_gap_us = 12.5;
  CHECK(RooflineCostModel(model("qwen3-8b"), hardware, config).host_gap_ns({}) == 12'500);
  config.host_gap_us = 0;
  CHECK(RooflineCostModel(model("qwen3-8b"), hardware, config).host_gap_ns({}) == 0);
}

TEST_CASE("tensor parallelism divides work and adds all-reduces", "[sim][roofline]") {
  HardwareSpec hardware = bare_hardware();
  hardware.allreduce_latency_us = 6;
  const ModelConfig shape = model("llama-3.1-8b");
  const std::vector<ScheduledChunk> chunks = {prefill(1000, 512, true), decode(3000)};
  const StepPlan plan = one_pass(chunks);
  const StepWork whole = RooflineCostModel(shape, hardware, {}).step_work(plan);
  for (const std::int32_t tp : {2, 4, 8, 16, 32}) {
    INFO("tensor parallel " << tp);
    CostModelConfig config;
    config.tensor_parallel_size = tp;
    RooflineCostModel cost_model(shape, hardware, config);
    const StepWork part = cost_model.step_work(plan);
    // Eight KV heads of 128: beyond that many devices they are replicated.
    const double copies = 32.0 * 4096 * 2 * 128 * std::max(tp - 8, 0);
    CHECK(part.total_flops() * tp == Approx(whole.total_flops() + 2 * 513 * copies));
    CHECK(part.projections.bytes * tp == Approx(whole.projections.bytes + 2 * copies));
    CHECK(part.head.bytes * tp == Approx(whole.head.bytes));
    const double kv_shards = std::min(tp, 8);
    CHECK(part.decode_attention.bytes * kv_shards == Approx(whole.decode_attention.bytes));

    // 2 a layer: 6 us each, and 2 (n - 1) / n of 513 tokens x 4096 x 2 bytes over the link.
    const double bytes = 513.0 * 4096 * 2 * 2 * (tp - 1) / tp;
    CHECK(part.allreduce_bytes == Approx(64 * bytes));
    const StepCost cost = cost_model.step_cost(plan);
    CHECK(static_cast<double>(cost.comm_ns) ==
          Approx(64 * (6'000 + bytes / 450e9 * 1e9)).epsilon(1e-6));
    CHECK(parts_add_up(cost));
  }
  CHECK(RooflineCostModel(shape, hardware, {}).step_cost(plan).comm_ns == 0);
}

TEST_CASE("collectives beyond the link's table are said to be extrapolated", "[sim][roofline]") {
  CostModelConfig config;
  config.tensor_parallel_size = 2;
  config.link = "nvlink4";  // up to 256 MiB: 32,768 tokens of 4,096 elements
  RooflineCostModel cost_model(model("llama-3.1-8b"), bare_hardware(), config);
  const auto is_outside = [&](const ScheduledChunk& chunk) {
    return cost_model.step_cost(one_pass({chunk})).is_extrapolated;
  };
  CHECK_FALSE(is_outside(decode(100)));
  CHECK_FALSE(is_outside(prefill(0, 32'768, true)));
  CHECK(is_outside(prefill(0, 32'769, true)));
}

TEST_CASE("tensor parallel sizes that cannot split the model", "[sim][roofline]") {
  const auto error_of = [](const char* name, std::int32_t tp, double link) {
    HardwareSpec hardware = bare_hardware();
    hardware.link_bandwidth = link;
    CostModelConfig config;
    config.tensor_parallel_size = tp;
    try {
      RooflineCostModel cost_model(model(name), hardware, config);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(error_of("llama-3.1-8b", 3, 1e9).starts_with("cost_model.tensor_parallel_size: 3 "));
  CHECK(contains(error_of("llama-3.1-8b", 3, 1e9), "allowed: 1, 2, 4, 8, 16, 32"));
  // 24 query heads split three ways, 8 KV heads do not.
  CHECK(contains(error_of("llama-3.2-3b", 3, 1e9), "allowed: 1, 2, 4, 8"));
  CHECK(contains(error_of("llama-3.2-3b", 0, 1e9), "allowed: 1, 2, 4, 8"));
  CHECK(contains(error_of("gemma-3-1b", 8, 1e9), "allowed: 1, 2, 4"));
  CHECK(contains(error_of("llama-3.1-8b", 2, 0), "has no link between devices; allowed: 1"));
  CHECK(error_of("llama-3.1-8b", 1, 0).empty());
  CHECK(error_of("gemma-3-1b", 4, 1e9).empty());  // one KV head, replicated
}

TEST_CASE("KV capacity", "[sim][roofline]") {
  // 90 % of 139.81 GiB minus weights minus 2 GB.
  const auto tokens = [](const char* name, std::int64_t block) {
    return RooflineCostModel(model(name), bare_hardware(), {}).kv_capacity_blocks(block) * block;
  };
  CHECK(static_cast<double>(tokens("llama-3.2-3b", 16)) == Approx(1.10e6).epsilon(0.005));
  CHECK(static_cast<double>(tokens("qwen3-4b", 16)) == Approx(0.84e6).epsilon(0.005));
  CHECK(static_cast<double>(tokens("gemma-3-1b", 16)) == Approx(4.9e6).epsilon(0.005));
  CHECK(tokens("llama-3.2-3b", 1) - tokens("llama-3.2-3b", 256) < 256);

  CostModelConfig config;
  config.tensor_parallel_size = 2;
  HardwareSpec small = bare_hardware();
  small.name = "small";
  small.memory_bytes = std::int64_t{80} << 30;
  const ModelConfig big = model("llama-3.1-70b");
  // Half the weights and half the KV of a token on each device.
  const double room = 0.9 * 80 * 1073741824.0 - 70553706496.0 - 2e9;
  const double block_bytes = 16 * static_cast<double>(big.kv_bytes_per_token()) / 2;
  CHECK(RooflineCostModel(big, small, config).kv_capacity_blocks(16) ==
        static_cast<std::int64_t>(room / block_bytes));
  std::string error;
  try {
    RooflineCostModel(big, small, {}).kv_capacity_blocks(16);
  } catch (const ConfigError& caught) {
    error = caught.what();
  }
  CHECK(contains(error, "llama-3.1-70b does not fit on small"));
  CHECK(contains(error, "141.1 GB of weights"));
}

TEST_CASE("virtual clock", "[sim][clock]") {
  VirtualClock clock;
  CHECK(clock.now() == 0);
  clock.wait_until(5);
  CHECK(clock.now() == 5);
  clock.wait_until(3);  // never backwards
  CHECK(clock.now() == 5);
  clock.wait_until(5);
  CHECK(clock.now() == 5);
}

}  // namespace
}  // namespace metronome::TEST_FILE
