// SPDX-License-Identifier: Apache-2.0
// The roofline's step times by formats of weights and by the measured shares of a GPU.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "sim/roofline/roofline.h"
#include "sim/virtual_clock.h"
#include "tests/catch.h"

namespace metronome::testing::TEST_FILE {
namespace {

// Round figures: 100 TFLOP/s and 1 TB/s, all of them reachable, and nothing else in the way.
HardwareSpec round_hardware() {
  HardwareSpec hardware;
  hardware.name = "round";
  hardware.peak_flops = 100e12;
  hardware.peak_bandwidth = 1e12;
  hardware.memory_bytes = std::int64_t{100} << 30;
  hardware.link_bandwidth = 1e12;
  return hardware;
}

// Two layers of 10 projections of 1000 x 1000 (QKV 3, output 1, MLP 6); a head of 1000 x 1000.
ModelConfig round_model() {
  ModelConfig model;
  model.name = "round";
  model.n_layers = 2;
  model.hidden_dim = 1000;
  model.n_heads = model.n_kv_heads = 10;
  model.head_dim = 100;
  model.ffn_dim = 2000;
  model.vocab_size = 1000;
  model.max_position_embeddings = 1 << 20;
  return model;
}

StepPlan decodes(std::int32_t num_decodes, std::int32_t context) {
  StepPlan plan;
  const ScheduledChunk one = {RequestId{0}, context - 1, 1, ChunkKind::Decode, true};
  plan.chunks.assign(static_cast<std::size_t>(num_decodes), one);
  plan.passes.push_back({0, num_decodes});
  return plan;
}

StepPlan prompt(std::int32_t num_tokens) {
  StepPlan plan;
  plan.chunks = {{RequestId{0}, 0, num_tokens, ChunkKind::Prefill, true}};
  plan.passes.push_back({0, 1});
  return plan;
}

StepCost cost_of(const ModelConfig& model, const HardwareSpec& hardware, const StepPlan& plan,
                 std::int32_t tp = 1, bool fuses_conversions = false) {
  CostModelConfig config;
  config.fuses_conversions = fuses_conversions;
  config.tensor_parallel_size = tp;
  return RooflineCostModel(model, hardware, config).step_cost(plan);
}

double linear_us(const ModelConfig& model, const HardwareSpec& hardware, const StepPlan& plan) {
  return static_cast<double>(cost_of(model, hardware, plan).linear_ns) / 1e3;
}

TEST_CASE("bytes of a format", "[sim][roofline]") {
  ModelConfig model = round_model();
  // A decode reads 20 M projections, a head of 1 M, and 6,000 scales and embeddings of two bytes.
  const double others = 2 * 1 + 2 * 0.006;
  const auto decode_us = [&](WeightFormat format) {
    model.linear_format = format;
    return linear_us(model, round_hardware(), decodes(1, 1));
  };
  CHECK(decode_us(WeightFormat::Plain) == Approx(40 + others).epsilon(1e-4));
  CHECK(decode_us(WeightFormat::Fp8) == Approx(20 + others).epsilon(1e-4));
  CHECK(decode_us(WeightFormat::Fp8Block) == Approx(20.0049 + others).epsilon(1e-4));
  CHECK(decode_us(WeightFormat::Nvfp4) == Approx(11.25 + others).epsilon(1e-4));
  CHECK(decode_us(WeightFormat::Mxfp4) == Approx(10.625 + others).epsilon(1e-4));
  CHECK(decode_us(WeightFormat::Int4) == Approx(10.3125 + others).epsilon(1e-4));
}

TEST_CASE("arithmetic at the peak of the format's units", "[sim][roofline]") {
  ModelConfig model = round_model();
  HardwareSpec hardware = round_hardware();
  // 10,000 tokens: 2 x 10,000 x 20 M FLOPs are 4 ms in bf16. The rest is below 25 us.
  const auto prompt_ms = [&](WeightFormat format) {
    model.linear_format = format;
    return linear_us(model, hardware, prompt(10'000)) / 1e3;
  };
  constexpr WeightFormat kAll[] = {WeightFormat::Plain, WeightFormat::Fp8,   WeightFormat::Fp8Block,
                                   WeightFormat::Nvfp4, WeightFormat::Mxfp4, WeightFormat::Int4};
  // Without such units weights are converted and computed in bf16.
  for (const WeightFormat format : kAll) CHECK(prompt_ms(format) == Approx(4).epsilon(0.01));
  hardware.peak_flops_fp8 = 200e12;
  CHECK(prompt_ms(WeightFormat::Fp8) == Approx(2).epsilon(0.02));
  CHECK(prompt_ms(WeightFormat::Fp8Block) == Approx(2).epsilon(0.02));
  CHECK(prompt_ms(WeightFormat::Mxfp4) == Approx(4).epsilon(0.01));
  hardware.peak_flops_fp4 = 400e12;
  CHECK(prompt_ms(WeightFormat::Nvfp4) == Approx(1).epsilon(0.03));
  CHECK(prompt_ms(WeightFormat::Mxfp4) == Approx(2).epsilon(0.02));  // activations of 8 bits
  CHECK(prompt_ms(WeightFormat::Int4) == Approx(4).epsilon(0.01));
  hardware.matmul_efficiency = 0.8;
  CHECK(prompt_ms(WeightFormat::Fp8) == Approx(2.5).epsilon(0.02));
  hardware.matmul_efficiency_fp8 = 0.5;
  CHECK(prompt_ms(WeightFormat::Fp8) == Approx(4).epsilon(0.01));
}

TEST_CASE("modules of several formats count each in its own", "[sim][roofline]") {
  ModelConfig model = round_model();
  HardwareSpec hardware = round_hardware();
  hardware.peak_flops_fp8 = 200e12;
  const auto us = [&](const StepPlan& plan) { return linear_us(model, hardware, plan); };
  const double plain_decode = us(decodes(1, 1));
  const double plain_prompt = us(prompt(10'000));
  model.mlp_format = WeightFormat::Fp8;
  const double fp8_decode = us(decodes(1, 1));
  const double fp8_prompt = us(prompt(10'000));
  // Half of the MLPs' weights in fp8: half of what all of them save.
  model.mlp_format.reset();
  model.module_formats = {{ModuleKind::AttentionIn, WeightFormat::Plain, 0, 1},
                          {ModuleKind::MlpIn, WeightFormat::Plain, 0, 3},
                          {ModuleKind::MlpIn, WeightFormat::Fp8, 1, 1},
                          {ModuleKind::MlpOut, WeightFormat::Fp8, 1, 2}};
  CHECK(us(decodes(1, 1)) == Approx((plain_decode + fp8_decode) / 2).epsilon(1e-3));
  CHECK(us(prompt(10'000)) == Approx((plain_prompt + fp8_prompt) / 2).epsilon(1e-3));
  // A head of fewer bytes.
  const double before = us(decodes(1, 1));
  model.module_formats.push_back({ModuleKind::Head, WeightFormat::WeightOnly, 0.5, 1});
  CHECK(before - us(decodes(1, 1)) == Approx(1.5).epsilon(0.02));
}

TEST_CASE("what a product loses where arithmetic and bytes meet", "[sim][roofline]") {
  const ModelConfig model = round_model();
  HardwareSpec hardware = round_hardware();
  hardware.crossover_loss = 0.2;
  const auto added_us = [&](std::int32_t num_decodes) {
    return linear_us(model, hardware, decodes(num_decodes, 1)) -
           linear_us(model, round_hardware(), decodes(num_decodes, 1));
  };
  // 40 us of bytes, and 0.4 us of arithmetic a token; a head of 2 us and 0.02 us.
  CHECK(added_us(100) == Approx(0.2 * (40 + 2)).epsilon(1e-3));
  CHECK(added_us(50) == Approx(0.2 * (10 + 0.5)).epsilon(1e-3));
  CHECK(added_us(200) == Approx(0.2 * (20 + 1)).epsilon(1e-3));
}

TEST_CASE("overheads of layers and sequences, known answers", "[sim][roofline]") {
  ModelConfig model = round_model();
  HardwareSpec hardware = round_hardware();
  const StepPlan plan = decodes(4, 1000);
  const StepCost before = cost_of(model, hardware, plan);
  const auto added_us = [&](std::int32_t tp = 1, bool fuses = false) {
    return static_cast<double>(cost_of(model, hardware, plan, tp, fuses).total_ns -
                               cost_of(model, round_hardware(), plan, tp).total_ns) /
           1e3;
  };
  hardware.sequence_overhead_us = 3;
  CHECK(added_us() == Approx(4 * 2 * 3));
  CHECK(cost_of(model, hardware, plan).attention_ns - before.attention_ns == 24'000);
  hardware = round_hardware();
  hardware.kernel_overhead_us = 7;
  CHECK(added_us() == Approx(2 * 7));
  hardware.tp_overhead_us = 5;
  CHECK(added_us() == Approx(2 * 7));
  CHECK(added_us(2) == Approx(2 * (7 + 5)));
  hardware = round_hardware();
  hardware.quantised_overhead_us = 11;
  CHECK(added_us() == 0);
  for (const WeightFormat format : {WeightFormat::Fp8, WeightFormat::Int4, WeightFormat::Nvfp4}) {
    model.linear_format = format;
    CHECK(added_us() == 0);  // without units of fewer bits, nothing is converted
  }
  hardware.peak_flops_fp8 = 200e12;
  model.linear_format = WeightFormat::Fp8;
  CHECK(added_us() == Approx(2 * 11));
  model.linear_format = WeightFormat::Int4;
  CHECK(added_us() == 0);
  model.linear_format = WeightFormat::Plain;
  model.mlp_format = WeightFormat::Fp8;
  CHECK(added_us() == Approx(2 * 11 / 2.0));  // two of four projections
  CHECK(added_us(1, true) == 0);
  model.mlp_format = WeightFormat::Fp8Block;  // with scales that no norm writes on its way
  CHECK(added_us(1, true) == Approx(2 * 11 / 2.0));
}

TEST_CASE("overheads of layers of experts and of latent attention", "[sim][roofline][experts]") {
  const auto added_us = [](const ModelConfig& model, const HardwareSpec& hardware) {
    const StepPlan plan = decodes(4, 1000);
    return static_cast<double>(cost_of(model, hardware, plan).total_ns -
                               cost_of(model, round_hardware(), plan).total_ns) /
           1e3;
  };
  // 61 layers, of which the first three have no experts.
  ModelConfig deepseek = find_model("deepseek-v3", {});
  HardwareSpec hardware = round_hardware();
  hardware.expert_overhead_us = 13;
  CHECK(added_us(deepseek, hardware) == Approx(58 * 13));
  CHECK(added_us(round_model(), hardware) == 0);
  hardware.kernel_overhead_us = 9;
  CHECK(added_us(deepseek, hardware) == Approx(58 * 13 + 61 * 13));
  CHECK(added_us(find_model("qwen3-30b-a3b", {}), hardware) == Approx(48 * (13 + 9)));
  // Conversions of experts are in their own overhead.
  hardware = round_hardware();
  hardware.quantised_overhead_us = 11;
  hardware.peak_flops_fp8 = 200e12;
  deepseek.linear_format = WeightFormat::Plain;
  CHECK(added_us(deepseek, hardware) == 0);
}

TEST_CASE("KV and activations move at shares of their own", "[sim][roofline]") {
  const ModelConfig model = round_model();
  HardwareSpec hardware = round_hardware();
  const StepPlan plan = decodes(4, 1000);
  // 4 x 1000 positions of 2 layers, 4,000 bytes each.
  CHECK(cost_of(model, hardware, plan).attention_ns == 32'000);
  hardware.bandwidth_efficiency = 0.8;
  CHECK(cost_of(model, hardware, plan).attention_ns == 40'000);
  hardware.kv_bandwidth_efficiency = 0.5;
  CHECK(cost_of(model, hardware, plan).attention_ns == 64'000);
  hardware = round_hardware();
  hardware.activation_bandwidth_efficiency = 0.25;
  // Of a token in a layer: two norms of four vectors, QKV twice, an MLP's three vectors.
  const double bytes = 2 * (2 * 4 * 1000 + 2 * 3000 + 3 * 2000);
  CHECK(linear_us(model, hardware, plan) - linear_us(model, round_hardware(), plan) ==
        Approx(4 * 2 * bytes / 0.25e12 * 1e6).epsilon(1e-3));
  // 48 layers of width 2048. Of a token in each: two norms, QKV of 40 heads of 128 twice and their
  // norms, and for each of 8 experts three vectors of the layer's width and three of 768.
  const ModelConfig experts = find_model("qwen3-30b-a3b", {});
  const double of_layer = 2 * 4 * 2048 + 2 * 2 * 40 * 128 + 8 * (3 * 2048 + 3 * 768);
  CHECK(linear_us(experts, hardware, plan) - linear_us(experts, round_hardware(), plan) ==
        Approx(4 * 48 * of_layer * 2 / 0.25e12 * 1e6).epsilon(1e-3));
  // Of DeepSeek-V3's 61 layers, of width 7168, 58 have experts. Two GPUs share their width of 2048.
  const auto moved_us = [&](std::int64_t num_picked, std::int32_t tp) {
    ModelConfig deepseek = find_model("deepseek-v3", {});
    deepseek.n_experts_per_token = num_picked;
    return static_cast<double>(cost_of(deepseek, hardware, plan, tp).linear_ns -
                               cost_of(deepseek, round_hardware(), plan, tp).linear_ns) /
           1e3;
  };
  for (const std::int32_t tp : {1, 2}) {
    CHECK(moved_us(8, tp) - moved_us(4, tp) ==
          Approx(4 * 58 * 4 * (3 * 7168 + 3 * 2048.0 / tp) * 2 / 0.25e12 * 1e6).epsilon(1e-3));
  }
}

// Eleven models on all GPUs. Neither memory nor arithmetic is faster than its peak. Where a model
// does not fit, its times are still those of the kernels.
TEST_CASE("no decode beats its memory, no prompt its peak", "[sim][roofline]") {
  const char* const models[] = {"llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b",  "llama-2-7b",
                                "qwen3-0.6b",   "qwen3-8b",     "qwen3-32b",      "qwen3-30b-a3b",
                                "mixtral-8x7b", "gemma-3-4b",   "qwen3-235b-a22b"};
  for (const HardwareSpec& hardware : all_hardware()) {
    for (const char* name : models) {
      for (const WeightFormat format :
           {WeightFormat::Plain, WeightFormat::Fp8, WeightFormat::Nvfp4}) {
        CAPTURE(hardware.name, name, to_string(format));
        ModelConfig model = find_model(name, {});
        model.linear_format = format;
        if (model.n_experts > 0) model.expert_format = format;
        RooflineCostModel costs(model, hardware, {});
        for (const std::int32_t batch : {1, 32, 256}) {
          for (const std::int32_t context : {100, 4000}) {
            const StepPlan plan = decodes(batch, context);
            const StepWork work = costs.step_work(plan);
            const auto total_ns = static_cast<double>(costs.step_cost(plan).total_ns);
            CHECK(total_ns > work.total_bytes() / hardware.peak_bandwidth * 1e9 * 1.05);
            CHECK(total_ns > static_cast<double>(costs.floor_ns(work)) * 1.05);
          }
        }
        for (const std::int32_t num_tokens : {512, 2048, 8192}) {
          const StepPlan plan = prompt(num_tokens);
          const StepWork work = costs.step_work(plan);
          const auto total_ns = static_cast<double>(costs.step_cost(plan).total_ns);
          CHECK(total_ns > static_cast<double>(costs.floor_ns(work)) * 1.02);
          double peak = hardware.peak_flops;
          if (format == WeightFormat::Fp8) peak = std::max(peak, hardware.peak_flops_fp8);
          if (format == WeightFormat::Nvfp4) peak = std::max(peak, hardware.peak_flops_fp4);
          const double share = work.total_flops() / (total_ns / 1e9) / peak;
          if (model.n_experts > 0 && num_tokens == 8192) CHECK(share < 0.45);
        }
      }
    }
  }
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
