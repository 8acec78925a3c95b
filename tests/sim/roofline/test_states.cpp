// SPDX-License-Identifier: Apache-2.0
// The roofline's terms of linear and latent attention, gates, shared experts and biases: answers by
// hand, and properties of the catalogue's models.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "sim/cost/device_share.h"
#include "sim/roofline/roofline.h"
#include "tests/catch.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

// 100 TFLOP/s and 1 TB/s, all of them reachable, and nothing else in the way.
HardwareSpec plain_hardware() {
  HardwareSpec hardware;
  hardware.name = "plain";
  hardware.peak_flops = 100e12;
  hardware.peak_bandwidth = 1e12;
  hardware.memory_bytes = std::int64_t{100} << 30;
  hardware.link_bandwidth = 1e12;
  return hardware;
}

// Four layers of 1,000 elements; the last attends with 10 heads of 100.
ModelConfig hybrid_model() {
  ModelConfig model;
  model.name = "hybrid";
  model.n_layers = 4;
  model.hidden_dim = 1000;
  model.n_heads = model.n_kv_heads = 10;
  model.head_dim = 100;
  model.ffn_dim = 2000;
  model.vocab_size = 1000;
  model.max_position_embeddings = 1 << 20;
  model.linear_attention = {.layers = {0, 1, 2},
                            .n_key_heads = 2,
                            .n_value_heads = 4,
                            .key_head_dim = 100,
                            .value_head_dim = 50,
                            .conv_width = 4,
                            .bytes_per_delta_element = 4,
                            .bytes_per_conv_element = 4};
  return model;
}

// Two layers of 4 heads with latent attention.
ModelConfig latent_model() {
  ModelConfig model = hybrid_model();
  model.name = "latent";
  model.n_layers = 2;
  model.linear_attention = {};
  model.n_heads = model.n_kv_heads = 4;
  model.head_dim = 50;
  model.latent_attention = {
      .kv_rank = 100, .q_rank = 60, .nope_dim = 30, .rope_dim = 20, .value_dim = 40};
  return model;
}

ScheduledChunk a_decode(std::int32_t context, std::int32_t num_tokens = 1) {
  return {RequestId{0}, context - num_tokens, num_tokens, ChunkKind::Decode, true};
}

ScheduledChunk a_chunk(std::int32_t first, std::int32_t num_tokens) {
  return {RequestId{0}, first, num_tokens, ChunkKind::Prefill, false};
}

StepPlan plan_of(const std::vector<ScheduledChunk>& chunks) {
  StepPlan plan;
  plan.chunks = chunks;
  plan.passes.push_back({0, static_cast<std::int32_t>(chunks.size())});
  return plan;
}

CostModelConfig on_devices(std::int32_t tp) {
  CostModelConfig config;
  config.tensor_parallel_size = tp;
  return config;
}

double attention_us(const ModelConfig& model, const HardwareSpec& hardware, const StepPlan& plan,
                    std::int32_t tp = 1) {
  const StepCost cost = RooflineCostModel(model, hardware, on_devices(tp)).step_cost(plan);
  return static_cast<double>(cost.attention_ns) / 1e3;
}

StepWork work_of(const ModelConfig& model, const StepPlan& plan, std::int32_t tp = 1) {
  return RooflineCostModel(model, plain_hardware(), on_devices(tp)).step_work(plan);
}

TEST_CASE("a decode moves its request's states, whatever its context", "[sim][roofline][states]") {
  const ModelConfig model = hybrid_model();
  REQUIRE(model.shape_error().empty());
  // A layer keeps 4 x 100 x 50 numbers, and 3 inputs of 2 x 200 + 200 channels, four bytes each.
  CHECK(model.state_bytes() == 3 * 4 * (20'000 + 1'800));
  const double states_us = 2 * 261'600 / 1e6;
  // The layer that attends reads 4,000 bytes a position.
  for (const std::int32_t context : {1, 1000, 100'000}) {
    CHECK(attention_us(model, plain_hardware(), plan_of({a_decode(context)})) ==
          Approx(states_us + context * 4'000 / 1e6).epsilon(1e-3));
  }
  const StepWork work = work_of(model, plan_of({a_decode(10), a_decode(10)}));
  CHECK(work.decode_states.bytes == 4 * 261'600);
  CHECK(work.decode_states.flops == 2.0 * 7 * 100 * 50 * 4 * 3);
  CHECK(work.prefill_states.bytes == 0);
  // The state behind each of a decode's tokens is kept, as drafts may be rejected.
  CHECK(work_of(model, plan_of({a_decode(10, 4)})).decode_states.bytes == 5 * 261'600);
  CHECK(work_of(model, plan_of({a_decode(10)}), 2).decode_states.bytes == 261'600);
}

TEST_CASE("a chunk scans its tokens in blocks of 64", "[sim][roofline][states]") {
  const ModelConfig model = hybrid_model();
  HardwareSpec hardware = plain_hardware();
  // Of a token and value head: 2 (3 x 100 x 50 + 64 (3 x 100 + 2 x 50) + 64^2 / 3).
  const double flops = 2 * (15'000 + 25'600 + 4'096 / 3.0);
  const StepPlan plan = plan_of({a_chunk(0, 6'400)});
  const StepWork work = work_of(model, plan);
  CHECK(work.prefill_states.flops == Approx(6'400 * flops * 4 * 3));
  CHECK(work.prefill_states.bytes == 2 * 261'600);
  const double others_us = work.prefill_attention.flops / 100e12 * 1e6;
  CHECK(attention_us(model, hardware, plan) ==
        Approx(others_us + 6'400 * flops * 12 / 100e12 * 1e6).epsilon(1e-4));
  // A head has one of 1,000 multiprocessors: a prompt cannot use more than four at once.
  hardware.num_sms = 1'000;
  const double scan_us = 6'400 * flops * 3 / 100e9 * 1e6;
  CHECK(attention_us(model, hardware, plan) == Approx(others_us + scan_us).epsilon(1e-4));
  // Two prompts scan side by side. The longest one counts.
  CHECK(attention_us(model, hardware, plan_of({a_chunk(0, 6'400), a_chunk(0, 6'400)})) ==
        Approx(2 * others_us + scan_us).epsilon(1e-4));
}

TEST_CASE("a state costs a chunk as much at each of its cuts", "[sim][roofline][states]") {
  const ModelConfig model = hybrid_model();
  const StepWork whole = work_of(model, plan_of({a_chunk(0, 1'024)}));
  double bytes = 0;
  double flops = 0;
  for (std::int32_t first = 0; first < 1'024; first += 128) {
    const StepWork part = work_of(model, plan_of({a_chunk(first, 128)}));
    bytes += part.prefill_states.bytes;
    flops += part.prefill_states.flops;
  }
  CHECK(flops == Approx(whole.prefill_states.flops));
  CHECK(bytes == Approx(8 * whole.prefill_states.bytes));
}

TEST_CASE("latent attention, known answers", "[sim][roofline][latent]") {
  const ModelConfig model = latent_model();
  REQUIRE(model.shape_error().empty());
  CHECK(model.kv_bytes_per_token() == 2 * 120 * 2);
  // A decode: a score of 100 + 20 and a sum of 100 products a head, over 240 bytes a position.
  const StepPlan decode = plan_of({a_decode(1'000)});
  StepWork work = work_of(model, decode);
  CHECK(work.decode_attention.flops == 2.0 * 1'000 * 2 * 4 * (120 + 100));
  CHECK(work.decode_attention.bytes == 2.0 * 1'000 * 240);
  CHECK(attention_us(model, plain_hardware(), decode) == Approx(0.48));
  // Two devices share the heads, and each has the whole cache.
  work = work_of(model, decode, 2);
  CHECK(work.decode_attention.flops == 2.0 * 1'000 * 2 * 2 * (120 + 100));
  CHECK(work.decode_attention.bytes == 2.0 * 1'000 * 240);
  CHECK(device_kv_bytes(model, 4) == 240);
  // A chunk of 100 behind 1,000: a score of 50 and a sum of 40 products; 1,000 positions expanded
  // again; 4 heads of 50 + 40 numbers of each position, written and read, beside the cache.
  work = work_of(model, plan_of({a_chunk(1'000, 100)}));
  const double pairs = 100 * 1'000 + 100 * 101 / 2;
  CHECK(work.prefill_attention.flops ==
        Approx(2 * (pairs * 2 * 4 * 90 + 1'000.0 * 2 * 4 * 100 * 70)));
  CHECK(work.prefill_attention.bytes == Approx(2 * 1'100.0 * (240 + 2 * 4 * 90 * 2)));
  // Activations of a token in a layer: two norms of four vectors; 4 queries of 50 and the cached
  // vector, read and written; an MLP's three vectors.
  HardwareSpec hardware = plain_hardware();
  hardware.activation_bandwidth_efficiency = 1;
  const auto linear_ns = [&](const HardwareSpec& used) {
    return static_cast<double>(RooflineCostModel(model, used, {}).step_cost(decode).linear_ns);
  };
  CHECK(linear_ns(hardware) - linear_ns(plain_hardware()) ==
        Approx(2 * 2 * (2 * 4'000 + 2 * (4 * 50 + 120) + 3 * 2'000) / 1e12 * 1e9).margin(1));
  // The whole prompt at once expands nothing again.
  work = work_of(model, plan_of({a_chunk(0, 100)}));
  CHECK(work.prefill_attention.flops == Approx(2 * 5'050.0 * 2 * 4 * 90));
}

TEST_CASE("projections of latent attention are divided but for those to latent vectors",
          "[sim][roofline][latent]") {
  const ModelConfig model = latent_model();
  // Of a layer: to latent queries and the cached vector 1,000 (60 + 120); of queries 60 x 200, of
  // keys and values 100 x 4 x 70, of the output 160 x 1,000; an MLP of 6 M.
  const double copied = 1'000 * 180;
  const double divided = 60 * 200 + 100 * 4 * 70 + 160 * 1'000 + 6e6;
  CHECK(static_cast<double>(model.n_projection_params()) == 2 * (copied + divided));
  CHECK(device_projection_params(model, 4) == 2 * (copied + divided / 4));
  const StepPlan plan = plan_of({a_decode(10)});
  CHECK(work_of(model, plan).projections.flops == 2 * 2 * (copied + divided));
  CHECK(work_of(model, plan, 4).projections.flops == 2 * 2 * (copied + divided / 4));
  CHECK(work_of(model, plan, 4).projections.bytes == 2 * 2 * (copied + divided / 4));
  const double weights = static_cast<double>(model.weight_bytes());
  CHECK(device_weight_bytes(model, 4) == Approx(weights / 4 + 0.75 * 2 * 2 * copied));
}

TEST_CASE("each device has whole routers, and a KV head of its own", "[sim][roofline]") {
  const ModelConfig model = find_model("qwen3-30b-a3b", {});
  // 48 layers, 128 experts, 4 KV heads of 128: on 8 devices 7/8 of each router, and half of a head
  // more than an eighth.
  const double routers = 48.0 * 2048 * 128 * 7 / 8;
  const double heads = 48.0 * 2048 * 2 * 128 / 2;
  CHECK(
      device_weight_bytes(model, 8) ==
      Approx(static_cast<double>(model.weight_bytes()) / 8 + 2 * (routers + heads)).epsilon(1e-9));
}

TEST_CASE("output gates, shared experts and biases of experts", "[sim][roofline][states]") {
  ModelConfig model = hybrid_model();
  model.linear_attention = {};
  const StepPlan plan = plan_of({a_decode(10), a_decode(10)});
  const auto gain = [&](const ModelConfig& changed) {
    return work_of(changed, plan).projections.flops - work_of(model, plan).projections.flops;
  };
  ModelConfig changed = model;
  changed.has_gated_attention = true;
  CHECK(gain(changed) == 2.0 * 2 * 4 * 1'000 * 1'000);
  model.n_experts = 10;
  model.n_experts_per_token = 1;
  model.expert_ffn_dim = 100;
  changed = model;
  changed.shared_expert_ffn_dim = 300;
  changed.has_shared_expert_gate = true;
  CHECK(gain(changed) == 2.0 * 2 * 4 * 1'000 * (3 * 300 + 1));
  // A token reads one expert of each layer, with its biases of 2 x 100 and 1,000 elements.
  changed = model;
  changed.has_expert_biases = true;
  const StepPlan one = plan_of({a_decode(10)});
  const StepWork without = work_of(model, one);
  const StepWork with = work_of(changed, one);
  CHECK(with.experts.bytes - without.experts.bytes == Approx(2.0 * 4 * 1'200));
  CHECK(with.other_bytes == Approx(without.other_bytes));
}

TEST_CASE("what the catalogue's hybrids and mixtures cache", "[sim][roofline][states]") {
  // 8 of 32 layers cache 4 x 256 keys and values; 24 keep 32 states of 128 x 128 and 3 inputs of
  // 8,192 channels.
  const ModelConfig hybrid = find_model("qwen3.5-9b", {});
  CHECK(hybrid.kv_bytes_per_token() == 8 * 2 * 4 * 256 * 2);
  CHECK(hybrid.state_bytes() == 24 * (4 * 32 * 128 * 128 + 2 * 3 * 8'192));
  // 576 numbers a layer (arXiv 2412.19437): 70 kB a token.
  const ModelConfig latent = find_model("deepseek-v3", {});
  CHECK(latent.kv_bytes_per_token() == 61 * 576 * 2);
  CHECK(device_kv_bytes(latent, 8) == 576 * 2);
  // Half of gpt-oss's layers read 128 positions. Sinks are no positions.
  const ModelConfig oss = find_model("gpt-oss-20b", {});
  CHECK(work_of(oss, plan_of({a_decode(10'000)})).decode_attention.bytes ==
        12.0 * (10'000 + 128) * 2 * 8 * 64 * 2);
  // One token reads 4 of 32 experts: 4.25 bits a weight, and biases of 3 x 2,880 elements.
  CHECK(work_of(oss, plan_of({a_decode(10)})).experts.bytes ==
        Approx(24.0 * 4 * (3 * 2'880 * 2'880 * 17 / 32.0 + 3 * 2'880 * 2)));
}

TEST_CASE("every device count that a model allows can be simulated", "[sim][roofline][states]") {
  const HardwareSpec hardware = find_hardware("b200", {});
  for (const char* name : {"qwen3-next-80b-a3b", "qwen3.5-9b", "qwen3.5-397b-a17b", "deepseek-v3",
                           "gpt-oss-120b", "qwen3-vl-30b-a3b"}) {
    const ModelConfig model = find_model(name, {});
    for (const std::int32_t tp : {1, 2, 4, 8}) {
      CAPTURE(name, tp);
      RooflineCostModel costs(model, hardware, on_devices(tp));
      for (const StepPlan& plan :
           {plan_of({a_decode(100'000)}), plan_of({a_chunk(65'536, 2'048), a_decode(1'000)})}) {
        const StepWork work = costs.step_work(plan);
        const auto total_ns = static_cast<double>(costs.step_cost(plan).total_ns);
        CHECK(total_ns > static_cast<double>(costs.floor_ns(work)));
      }
    }
  }
  const ModelConfig hybrid = find_model("qwen3.5-9b", {});
  CHECK(contains(error_of([&] { check_tensor_parallel(hybrid, 32); }),
                 "linear_attention.n_key_heads 16); allowed: 1, 2, 4, 8, 16"));
}

TEST_CASE("states and latent KV in a device's memory", "[sim][roofline][states]") {
  HardwareSpec hardware = plain_hardware();
  const auto blocks = [&](const ModelConfig& model, std::int32_t tp) {
    return RooflineCostModel(model, hardware, on_devices(tp)).kv_capacity_blocks(16);
  };
  const auto room = [&](const ModelConfig& model, std::int32_t tp) {
    return static_cast<double>(hardware.memory_bytes) * CostModelConfig{}.gpu_memory_utilization -
           device_weight_bytes(model, tp) - 2e9;
  };
  const ModelConfig hybrid = hybrid_model();
  CHECK(blocks(hybrid, 1) == static_cast<std::int64_t>(room(hybrid, 1) / (16 * 4'000)));
  const ModelConfig latent = latent_model();
  CHECK(blocks(latent, 1) == static_cast<std::int64_t>(room(latent, 1) / (16 * 480)));
  CHECK(blocks(latent, 4) == static_cast<std::int64_t>(room(latent, 4) / (16 * 480)));
  CHECK(device_state_bytes(hybrid, 2) == 261'600 / 2);
}

// Decode state kernels of vLLM 0.24 on an H100 in aiconfigurator-core 0.12.0 (gdn_perf), 32 value
// heads of 128 x 128, microseconds a layer.
TEST_CASE("states take as long as measured on an H100", "[sim][roofline][states]") {
  ModelConfig model = find_model("qwen3.5-9b", {});
  HardwareSpec hardware = find_hardware("h100-sxm", {});
  hardware.sequence_overhead_us = 0;
  const double layers = static_cast<double>(model.n_linear_layers());
  const auto states_us = [&](const StepPlan& plan) {
    ModelConfig without = model;
    without.linear_attention = {};
    without.n_layers = model.n_attention_layers();
    return (attention_us(model, hardware, plan) - attention_us(without, hardware, plan)) / layers;
  };
  for (const auto& [batch, us] : {std::pair{64, 95.1}, {128, 184.7}, {256, 363.8}, {512, 722.4}}) {
    CAPTURE(batch);
    const auto count = static_cast<std::size_t>(batch);
    // With the inputs of the convolution, which its own kernel moves: a twentieth.
    CHECK(states_us(plan_of(std::vector<ScheduledChunk>(count, a_decode(100)))) ==
          Approx(us).epsilon(0.06));
  }
  for (const auto& [tokens, us] : {std::pair{2'048, 105.7}, {8'192, 387.4}, {32'768, 1512.2}}) {
    CAPTURE(tokens);
    CHECK(states_us(plan_of({a_chunk(0, tokens)})) == Approx(us).epsilon(0.2));
  }
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
