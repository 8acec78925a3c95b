// SPDX-License-Identifier: Apache-2.0
// Models stored in fewer bits: what their config.json says, and how many bytes follow.
#include <string>
#include <utility>
#include <vector>

#include "core/model/model_catalogue.h"
#include "core/scenario/scenario.h"
#include "core/scenario/simulated_model.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/expected.h"
#include "tests/scratch_folder.h"

namespace metronome::testing::TEST_FILE {
namespace {

std::string config_json(bool has_experts, const std::string& quantization) {
  const std::string dense = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 256,
    "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 4, "vocab_size": 1000, "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16", )";
  const std::string experts = R"({"architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 256,
    "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    "num_hidden_layers": 4, "vocab_size": 1000, "max_position_embeddings": 2048,
    "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128,
    "torch_dtype": "bfloat16", )";
  return (has_experts ? experts : dense) + R"("quantization_config": )" + quantization + "}";
}

ModelConfig parse(bool has_experts, const std::string& quantization) {
  return parse_hugging_face_config(config_json(has_experts, quantization), "config.json", "m");
}

// "linear experts, KV bytes".
std::string formats(bool has_experts, const std::string& quantization) {
  const ModelConfig model = parse(has_experts, quantization);
  return std::string(to_string(model.linear_format)) + " " +
         std::string(to_string(model.expert_format)) + ", " +
         std::to_string(model.bytes_per_kv_element);
}

std::string compressed(const std::string& weights, const std::string& more = "") {
  return R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": )" +
         weights + R"(, "targets": ["Linear"]}})" + more + "}";
}

TEST_CASE("quantised models as they are published", "[sim][catalogue]") {
  // neuralmagic's and Qwen's FP8 models, and DeepSeek's kind of blocks.
  CHECK(formats(false, R"({"quant_method": "fp8", "activation_scheme": "static"})") ==
        "fp8 plain, 2");
  CHECK(formats(true, R"({"quant_method": "fp8", "weight_block_size": [128, 128],
                          "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"]})") ==
        "fp8_block fp8_block, 2");
  const std::string fp8 = R"({"num_bits": 8, "type": "float", "strategy": "channel"})";
  CHECK(formats(false, compressed(fp8, R"(, "format": "float-quantized", "ignore": ["lm_head"],
                                  "kv_cache_scheme": {"num_bits": 8, "type": "float"})")) ==
        "fp8 plain, 1");
  CHECK(formats(true, compressed(R"({"num_bits": 8, "type": "float", "strategy": "block"})")) ==
        "fp8_block fp8_block, 2");
  CHECK(formats(false, compressed(R"({"num_bits": 4, "type": "int", "group_size": 128})",
                                  R"(, "format": "pack-quantized")")) == "int4 plain, 2");
  CHECK(formats(true, compressed(R"({"num_bits": 4, "type": "float", "group_size": 16})",
                                 R"(, "format": "nvfp4-pack-quantized",
                                 "ignore": ["re:.*self_attn.*", "re:.*mlp.gate$", "lm_head"])")) ==
        "plain nvfp4, 2");
  CHECK(formats(true, R"({"quant_method": "modelopt", "quant_algo": "NVFP4",
                          "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]})") ==
        "nvfp4 nvfp4, 1");
  CHECK(formats(false, R"({"quant_algo": "FP8", "kv_cache_quant_algo": null})") == "fp8 plain, 2");
  for (const char* method : {"gptq", "awq"}) {
    CHECK(formats(true, R"({"quant_method": ")" + std::string(method) + R"(", "bits": 4})") ==
          "int4 int4, 2");
  }
  // ModelOpt's own form of the KV cache's type, and keys one level further in.
  CHECK(formats(false, R"({"quant_method": "fp8", "kv_cache_scheme": "FP8"})") == "fp8 plain, 1");
  CHECK(formats(true, R"({"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4",
                          "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}})") ==
        "nvfp4 nvfp4, 1");
  // gpt-oss stores only experts so.
  CHECK(formats(true, R"({"quant_method": "mxfp4", "modules_to_not_convert":
                          ["model.layers.*.self_attn", "model.layers.*.mlp.router"]})") ==
        "plain mxfp4, 2");
}

TEST_CASE("modules left alone count where they are those of most layers", "[sim][catalogue]") {
  const auto without = [](const std::string& modules) {
    return formats(true, R"({"quant_method": "fp8", "modules_to_not_convert": [)" + modules + "]}");
  };
  CHECK(without("") == "fp8 fp8, 2");
  CHECK(without(R"("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj",
                   "model.layers.1.self_attn.q_proj")") == "fp8 fp8, 2");
  CHECK(without(R"("model.layers.0.self_attn", "model.layers.1.self_attn",
                   "model.layers.3.self_attn")") == "plain fp8, 2");
  CHECK(without(R"("model.layers.*.mlp.experts*")") == "fp8 plain, 2");
  CHECK(without(R"("model.layers.0.mlp.shared_experts")") == "fp8 fp8, 2");
  const ModelConfig dense =
      parse(false, R"({"quant_method": "fp8", "modules_to_not_convert": ["self_attn"]})");
  CHECK(dense.linear_format == WeightFormat::Plain);
  CHECK(dense.mlp_format == WeightFormat::Fp8);
  // Patterns, as compressed-tensors matches them: from the beginning of a module's name.
  const auto matching = [&](const std::string& pattern) {
    return without("\"re:" + pattern + "\"");
  };
  CHECK(matching(R"(model\\.layers\\.0\\.self_attn.*)") == "fp8 fp8, 2");
  CHECK(matching(R"(model\\.layers\\.(0|1|3)\\.self_attn.*)") == "plain fp8, 2");
  CHECK(matching(R"(model.layers.[0-1].mlp.experts.*)") == "fp8 fp8, 2");
  CHECK(matching(R"(model.layers.[0-2].mlp.experts.*)") == "fp8 plain, 2");
  CHECK(matching(R"(.*layers\\.\\d+\\.mlp\\.experts.*)") == "fp8 plain, 2");
  CHECK(matching(R"(^(?!.*experts).*)") == "plain fp8, 2");
  CHECK(matching(R"(self_attn.*)") == "fp8 fp8, 2");
  CHECK(matching(R"((?i).*self_attn.*)") == "plain fp8, 2");
  // A group for experts alone.
  CHECK(formats(true, R"({"quant_method": "compressed-tensors", "config_groups": {"g": {
                          "weights": {"num_bits": 4, "type": "int"},
                          "targets": ["re:.*mlp.experts.*"]}}})") == "plain int4, 2");
}

TEST_CASE("small parts and vision towers in a list leave attention quantised", "[sim][catalogue]") {
  const auto without = [](const std::string& module) {
    return formats(true, R"({"quant_method": "fp8", "weight_block_size": [128, 128],
                             "modules_to_not_convert": [")" +
                             module + "\"]}");
  };
  // As in lists of Qwen3-Next, Qwen3.5 and Qwen3-VL.
  for (const char* part : {"linear_attn.conv1d", "linear_attn.norm", "linear_attn.A_log",
                           "linear_attn.dt_bias", "linear_attn.in_proj_ba", "linear_attn.in_proj_a",
                           "linear_attn.in_proj_b", "self_attn.q_norm", "self_attn.indexer.wk"}) {
    CHECK(without("model.layers.*." + std::string(part)) == "fp8_block fp8_block, 2");
  }
  CHECK(without("model.visual.blocks.0.attn.qkv") == "fp8_block fp8_block, 2");
  CHECK(without("vision_tower.encoder.layers.0.self_attn") == "fp8_block fp8_block, 2");
  CHECK(without("model.layers.*.self_attn*") == "plain fp8_block, 2");
}

TEST_CASE("groups of four-bit integers have the size that the file says", "[sim][catalogue]") {
  const auto bytes = [](const std::string& quantization) {
    return parse(true, quantization).bytes_per_expert_weight();
  };
  const auto gptq = [](const std::string& more) {
    return R"({"quant_method": "gptq", "bits": 4)" + more + "}";
  };
  CHECK(bytes(gptq("")) == 0.5 + 2.5 / 128);
  CHECK(bytes(gptq(R"(, "group_size": 32)")) == 0.5 + 2.5 / 32);
  CHECK(bytes(gptq(R"(, "group_size": -1)")) == 0.5);
  CHECK(bytes(R"({"quant_method": "awq", "w_bit": 4, "q_group_size": 64})") == 0.5 + 2.5 / 64);
  CHECK(bytes(R"({"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": false})") ==
        0.5 + 2.0 / 64);
  // Kimi-K2-Thinking.
  CHECK(bytes(compressed(R"({"num_bits": 4, "type": "int", "group_size": 32,
                             "strategy": "group"})")) == 0.5 + 2.0 / 32);
  CHECK(bytes(compressed(R"({"num_bits": 4, "type": "int", "group_size": 32, "symmetric": false,
                             "strategy": "group"})")) == 0.5 + 2.5 / 32);
  CHECK(bytes(compressed(R"({"num_bits": 4, "type": "int", "strategy": "channel"})")) == 0.5);
}

TEST_CASE("attention alone is left in 16 bits", "[sim][catalogue]") {
  // As NVIDIA's DeepSeek-V3.1-NVFP4: projections of attention by layer, and no MLP.
  const auto parse_excluding = [](const std::string& modules) {
    const std::string excluded = modules.empty() ? "" : ", " + modules;
    const std::string config = R"({"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 256,
      "num_hidden_layers": 2, "first_k_dense_replace": 1, "intermediate_size": 512,
      "moe_intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4,
      "vocab_size": 1000, "max_position_embeddings": 2048, "n_routed_experts": 8,
      "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
      "kv_lora_rank": 64, "q_lora_rank": 96, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
      "v_head_dim": 32, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
      "norm_topk_prob": true, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000,
      "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4",
        "exclude_modules": ["lm_head", "model.layers.0.self_attn*",
          "model.layers.1.self_attn*", "model.layers.1.mlp.gate")" +
                               excluded + "]}}";
    return parse_hugging_face_config(config, "config.json", "m");
  };
  const ModelConfig model = parse_excluding("");
  CHECK(model.linear_format == WeightFormat::Plain);
  CHECK(model.mlp_format == WeightFormat::Nvfp4);
  CHECK(model.module_formats.empty());
  CHECK(model.expert_format == WeightFormat::Nvfp4);
  // Three matrices of 256 x 512 in the dense layer, and of 256 x 128 in the shared expert.
  CHECK(model.n_mlp_params() == 3 * 256 * (512 + 128));
  ModelConfig plain = model;
  plain.mlp_format.reset();
  CHECK(static_cast<double>(plain.weight_bytes() - model.weight_bytes()) ==
        3 * 256 * (512 + 128) * (2 - 0.5625));
  // Shared experts alone, dense MLPs alone, both.
  const double dense = 3 * 256 * 512;
  const double shared = 3 * 256 * 128;
  const std::string patterns[] = {R"("*.mlp.shared_experts.*")",
                                  R"("re:.*mlp\\.(gate|up|down)_proj.*")"};
  const double excluded[] = {shared, dense};
  for (int i = 0; i < 2; ++i) {
    INFO(patterns[i]);
    const ModelConfig some = parse_excluding(patterns[i]);
    CHECK(static_cast<double>(some.weight_bytes() - model.weight_bytes()) ==
          excluded[i] * (2 - 0.5625));
  }
  CHECK_FALSE(parse_excluding(patterns[0] + ", " + patterns[1]).mlp_format);
  // One matrix, and those of a tower.
  CHECK(parse_excluding(R"("model.layers.0.mlp.up_proj")").mlp_format);
  CHECK(parse_excluding(R"("visual.blocks.0.mlp.fc1")").mlp_format);
}

TEST_CASE("a folder's hf_quant_config.json counts where config.json is silent",
          "[sim][catalogue]") {
  const std::string silent = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 256,
    "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 4, "vocab_size": 1000, "max_position_embeddings": 2048)";
  const std::string modelopt = R"({"producer": {"name": "modelopt", "version": "0.29.0"},
    "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8",
                     "exclude_modules": ["lm_head"]}})";
  const ScratchFolder folder;
  const auto formats_of = [&](const std::string& config, const std::string& beside) {
    folder.write("config.json", config);
    folder.write("hf_quant_config.json", beside);
    const ModelConfig model = find_model(folder.path(), {});
    return std::string(to_string(model.linear_format)) + ", " +
           std::to_string(model.bytes_per_kv_element);
  };
  CHECK(formats_of(silent + "}", modelopt) == "fp8, 1");
  CHECK(formats_of(silent + R"(, "quantization_config": {"quant_method": "awq", "bits": 4}})",
                   modelopt) == "int4, 2");
  // vLLM does not open the file then.
  CHECK(formats_of(silent + R"(, "quantization_config": {"quant_method": "awq", "bits": 4}})",
                   "oops") == "int4, 2");
  CHECK(error_of([&] { formats_of(silent + "}", R"({"quantization": {"quant_algo": null}})"); }) ==
        folder.path() +
            "/hf_quant_config.json: quantization.quant_algo: is null; "
            "allowed: FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, FP8_BLOCK_SCALES, NVFP4, "
            "NVFP4_AWQ, NVFP4_SVDQUANT, W4A16_NVFP4, W4A8_NVFP4_FP8, W4A8_MXFP4_FP8, "
            "W4A8_MXFP4_MXFP8, W4A16_MXFP4, MXFP4, MXFP8, INT4_AWQ, W4A16_AWQ, W4A8_AWQ, W4A16, "
            "W4A16_GPTQ, W4A8_QSERVE_PER_GROUP, W4A8_QSERVE_PER_CHANNEL, W8A16, W8A16_GPTQ, INT8, "
            "INT8_SQ, W8A8_SQ_PER_CHANNEL, W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN, "
            "W8A8_SQ_PER_CHANNEL_PER_TENSOR_PLUGIN, W8A8_SQ_PER_TENSOR_PER_TOKEN_PLUGIN, "
            "W8A8_SQ_PER_TENSOR_PLUGIN, NO_QUANT, MIXED_PRECISION");
  std::string deep;
  for (int i = 0; i < 20'000; ++i) deep += R"({"quantization": )";
  CHECK(error_of([&] {
          formats_of(silent + "}", deep + "{}" + std::string(20'000, '}'));
        }).starts_with(folder.path() + "/hf_quant_config.json"));
  CHECK(error_of([&] { formats_of(silent + "}", "[1]"); }) ==
        folder.path() +
            "/hf_quant_config.json: must be an object; allowed: ModelOpt's "
            "hf_quant_config.json");
  CHECK(error_of([&] {
          formats_of(silent + "}", "{\n oh");
        }).starts_with(folder.path() + "/hf_quant_config.json:2: is not JSON"));
}

TEST_CASE("engines load float32 in 16 bits", "[sim][catalogue]") {
  const ScratchFolder folder;
  folder.write("config.json", R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 256,
    "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 4, "vocab_size": 1000, "max_position_embeddings": 2048,
    "torch_dtype": "float32"})");
  CHECK(find_model(folder.path(), {}).bytes_per_weight == 4);  // what the files have
  CHECK(find_served_model(folder.path(), {}).bytes_per_weight == 2);
}

TEST_CASE("the bytes of a quantised model", "[sim][catalogue]") {
  const ModelConfig plain = parse(true, R"({"quant_method": "fp8"})");
  // By hand: 4 layers of QKV 256 x (4 + 2 x 2) x 64 and output 256 x 256, 8 experts of 3 x 256 x
  // 128.
  const std::int64_t projections = 4 * (256 * 512 + 256 * 256);
  const std::int64_t experts = 4 * 8 * 3 * 256 * 128;
  CHECK(plain.weight_bytes() ==
        2 * (plain.n_params() - projections - experts) + projections + experts);
  const ModelConfig fours = parse(true, R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})");
  CHECK(fours.weight_bytes() ==
        2 * (plain.n_params() - projections - experts) + (projections + experts) * 9 / 16);
  CHECK(!plain.unsupported.empty());
  CHECK(!parse(false, R"({"quant_method": "fp8"})").unsupported.empty());
}

TEST_CASE("malformed quantization_config", "[sim][catalogue]") {
  Answers answers("catalogue/malformed_quantization.txt");
  const std::vector<std::pair<bool, std::string>> cases = {
      {false, "3"},
      {false, "{}"},
      {false, R"({"quant_method": "bitsandbytes"})"},
      {false, R"({"quant_method": 8})"},
      {false, R"({"quant_method": "fp8", "modules_to_not_convert": "lm_head"})"},
      {false, R"({"quant_method": "fp8", "ignored_layers": []})"},
      {false, R"({"quant_method": "gptq", "bits": 8})"},
      {false, R"({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"})"},
      {false, R"({"quant_method": "modelopt"})"},
      {false, R"({"quant_method": "mxfp4"})"},
      {false, R"({"quant_method": "compressed-tensors"})"},
      {false, R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {}}})"},
      {false, compressed(R"({"num_bits": 8, "type": "int"})")},
      {false, compressed(R"({"num_bits": 8, "type": "float"})",
                         R"(, "kv_cache_scheme": {"num_bits": 4})")},
      {false, R"({"quant_algo": "FP8", "kv_cache_quant_algo": "NVFP4"})"},
  };
  for (const auto& [has_experts, quantization] : cases) {
    answers.add(quantization,
                error_of([&, has = has_experts, text = quantization] { parse(has, text); }));
  }
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
