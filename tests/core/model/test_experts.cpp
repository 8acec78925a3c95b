// SPDX-License-Identifier: Apache-2.0
// Models with a mixture of experts: what their config.json says, and what a step of theirs costs.
#include <cmath>
#include <string>

#include "core/base/rng.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "sim/roofline/roofline.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/error_of.h"
#include "tests/expected.h"

namespace metronome::testing::TEST_FILE {
namespace {

// As published.
const char* const kMixtralJson = R"({
  "architectures": ["MixtralForCausalLM"],
  "attention_dropout": 0.0,
  "eos_token_id": 2,
  "hidden_act": "silu",
  "hidden_size": 4096,
  "intermediate_size": 14336,
  "max_position_embeddings": 32768,
  "model_type": "mixtral",
  "num_attention_heads": 32,
  "num_experts_per_tok": 2,
  "num_hidden_layers": 32,
  "num_key_value_heads": 8,
  "num_local_experts": 8,
  "output_router_logits": false,
  "rms_norm_eps": 1e-05,
  "rope_theta": 1000000.0,
  "sliding_window": null,
  "tie_word_embeddings": false,
  "torch_dtype": "bfloat16",
  "vocab_size": 32000
})";

const char* const kQwenJson = R"({
  "architectures": ["Qwen3MoeForCausalLM"],
  "attention_bias": false,
  "decoder_sparse_step": 1,
  "eos_token_id": 151645,
  "head_dim": 128,
  "hidden_act": "silu",
  "hidden_size": 2048,
  "intermediate_size": 6144,
  "max_position_embeddings": 40960,
  "mlp_only_layers": [],
  "model_type": "qwen3_moe",
  "moe_intermediate_size": 768,
  "norm_topk_prob": true,
  "num_attention_heads": 32,
  "num_experts": 128,
  "num_experts_per_tok": 8,
  "num_hidden_layers": 48,
  "num_key_value_heads": 4,
  "rms_norm_eps": 1e-06,
  "rope_scaling": null,
  "rope_theta": 1000000.0,
  "sliding_window": null,
  "tie_word_embeddings": false,
  "torch_dtype": "bfloat16",
  "use_sliding_window": false,
  "vocab_size": 151936
})";

ModelConfig parse(const std::string& json) {
  return parse_hugging_face_config(json, "config.json", "parsed");
}

ModelConfig qwen_with(const std::string& from, const std::string& to) {
  return parse(replaced(kQwenJson, from, to));
}

StepPlan plan_of(std::int32_t num_tokens) {
  StepPlan plan;
  plan.chunks.push_back({.request = RequestId{0},
                         .first_position = 0,
                         .num_tokens = num_tokens,
                         .kind = ChunkKind::Prefill,
                         .samples_token = true});
  plan.passes.push_back({0, 1});
  plan.num_prefill_tokens = num_tokens;
  return plan;
}

}  // namespace

TEST_CASE("config.json of mixtures of experts", "[sim][catalogue][experts]") {
  ModelConfig mixtral = parse(kMixtralJson);
  mixtral.name = "mixtral-8x7b";
  CHECK(mixtral == find_model("mixtral-8x7b", {}));
  ModelConfig qwen = parse(kQwenJson);
  qwen.name = "qwen3-30b-a3b";
  CHECK(qwen == find_model("qwen3-30b-a3b", {}));
  CHECK(qwen.n_moe_layers() == 48);

  // transformers' modeling_qwen3_moe.py: experts where the layer is not listed and its number, from
  // 1, is a multiple of the step.
  CHECK(qwen_with("\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 5").n_moe_layers() == 9);
  CHECK(qwen_with("[]", "[0, 47, 47]").n_moe_layers() == 46);
  CHECK(qwen_with("[]", "[0, 1]").dense_layers.empty());
  const ModelConfig apart = qwen_with("[]", "[0, 3]");
  CHECK(apart.dense_layers == std::vector<std::int64_t>{0, 3});
  CHECK(!apart.is_moe_layer(3));
  CHECK(apart.is_moe_layer(1));
  // A step above the number of layers leaves no layer with experts.
  CHECK(qwen_with("\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 49").n_experts == 0);
  const std::string fives = replaced(kQwenJson, "step\": 1", "step\": 5");
  CHECK(parse(replaced(fives, "[]", "[3, 4]")).n_moe_layers() == 8);
  CHECK(qwen_with("\"num_experts\": 128", "\"num_experts\": 0").n_params() ==
        qwen.n_params() + std::int64_t{48} * (3 * 2048 * (6144 - 128 * 768) - 2048 * 128));
}

TEST_CASE("malformed mixtures of experts", "[sim][catalogue][experts]") {
  const auto error_with = [](const std::string& from, const std::string& to) {
    return error_of([&] { qwen_with(from, to); });
  };
  CHECK(error_with("\"num_experts_per_tok\": 8", "\"num_experts_per_tok\": 129") ==
        "config.json: num_experts_per_tok: is 129; allowed: 1 to num_experts, 128");
  CHECK(error_with("768", "200000") ==
        "config.json: moe_intermediate_size: is 200000; allowed: 1 to 131072 with 128 experts");
  CHECK(error_with("768", "0") ==
        "config.json: moe_intermediate_size: is 0; allowed: 1 to 131072 with 128 experts");
  CHECK(error_with("step\": 1", "step\": 0") ==
        "config.json: decoder_sparse_step: is 0; allowed: at least 1");
  for (const char* layers : {"[48]", "[-1]", "3", "[\"a\"]"}) {
    CHECK(error_with("[]", layers) == std::string("config.json: mlp_only_layers: must be a list ") +
                                          "of layers, got " + layers + "; allowed: 0 to 47");
  }
  ModelConfig dense = find_model("qwen3-8b", {});
  dense.n_experts_per_token = 2;
  CHECK(dense.shape_error() == "n_experts: is 0, but other keys set experts; allowed: at least 1");
}

TEST_CASE("the experts that a step reads, known answers", "[sim][roofline][experts]") {
  const ModelConfig model = find_model("qwen3-30b-a3b", {});
  RooflineCostModel costs(model, find_hardware("h200", {}), {});
  const double expert_bytes = 48.0 * static_cast<double>(model.n_expert_params()) * 2;
  const auto num_read = [&](std::int32_t num_tokens) {
    return costs.step_work(plan_of(num_tokens)).experts.bytes / expert_bytes;
  };
  // 128 (1 - (15/16)^(1 + 0.6 (n - 1))).
  CHECK(num_read(1) == Approx(8));
  CHECK(num_read(6) == Approx(128 * (1 - std::pow(0.9375, 4))));
  CHECK(num_read(101) == Approx(128 * (1 - std::pow(0.9375, 61))));
  CHECK(num_read(2000) == Approx(128));
  // Each reads its weights once, and computes 32 rows of padding.
  const StepWork work = costs.step_work(plan_of(2000));
  CHECK(work.padding_flops == Approx(128 * 32 * expert_bytes));
}

TEST_CASE("the experts that a step reads are at most those of even routing",
          "[sim][roofline][experts]") {
  const ModelConfig model = find_model("qwen3-30b-a3b", {});
  RooflineCostModel costs(model, find_hardware("h200", {}), {});
  const double expert_bytes = 48.0 * static_cast<double>(model.n_expert_params()) * 2;
  Rng rng(11, "routing");
  for (const std::int32_t num_tokens : {1, 4, 16, 64, 512}) {
    constexpr int kRounds = 400;
    std::int64_t num_read = 0;
    for (int round = 0; round < kRounds; ++round) {
      std::vector<bool> is_read(128);
      for (std::int32_t token = 0; token < num_tokens; ++token) {
        std::vector<bool> is_picked(128);  // eight different ones
        for (int k = 0; k < 8;) {
          const auto expert = static_cast<std::size_t>(draw(rng, 0, 127));
          if (is_picked[expert]) continue;
          is_picked[expert] = true;
          is_read[expert] = true;
          ++k;
        }
      }
      num_read += std::count(is_read.begin(), is_read.end(), true);
    }
    const StepWork work = costs.step_work(plan_of(num_tokens));
    CAPTURE(num_tokens);
    const double of_even_routing = static_cast<double>(num_read) / kRounds;
    CHECK(work.experts.bytes / expert_bytes <= of_even_routing * 1.02);
    CHECK(work.experts.bytes / expert_bytes >= of_even_routing * 0.6);
    CHECK(work.experts.flops == Approx(num_tokens * 8 * expert_bytes));  // 2 flops, 2 bytes
  }
}

TEST_CASE("a mixture with all experts in use is a dense model", "[sim][roofline][experts]") {
  ModelConfig mixture = find_model("mixtral-8x7b", {});
  mixture.n_experts = mixture.n_experts_per_token = 1;
  ModelConfig dense = mixture;
  dense.n_experts = dense.n_experts_per_token = dense.expert_ffn_dim = 0;
  const HardwareSpec hardware = find_hardware("h200", {});
  for (const std::int32_t num_tokens : {1, 100, 4'000}) {
    const StepWork with = RooflineCostModel(mixture, hardware, {}).step_work(plan_of(num_tokens));
    const StepWork without = RooflineCostModel(dense, hardware, {}).step_work(plan_of(num_tokens));
    const double router_bytes = 32 * 4096 * 2;
    CHECK(with.total_bytes() == Approx(without.total_bytes() + router_bytes).epsilon(1e-12));
    CHECK(with.total_flops() ==
          Approx(without.total_flops() + num_tokens * router_bytes).epsilon(1e-12));
  }
}

TEST_CASE("experts are split over devices", "[sim][roofline][experts]") {
  const ModelConfig model = find_model("qwen3-30b-a3b", {});
  const HardwareSpec hardware = find_hardware("h200", {});
  CostModelConfig config;
  const StepWork one = RooflineCostModel(model, hardware, config).step_work(plan_of(300));
  config.tensor_parallel_size = 4;
  const StepWork four = RooflineCostModel(model, hardware, config).step_work(plan_of(300));
  CHECK(four.experts.bytes == Approx(one.experts.bytes / 4));
  CHECK(four.experts.flops == Approx(one.experts.flops / 4));
  ModelConfig odd = model;
  odd.expert_ffn_dim = 770;
  CHECK(error_of([&] { RooflineCostModel(odd, hardware, config); }).find("expert_ffn_dim 770") !=
        std::string::npos);
}

}  // namespace metronome::testing::TEST_FILE
