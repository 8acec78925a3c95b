// SPDX-License-Identifier: Apache-2.0
// Models whose modules are stored in different formats: how files name them, and what they weigh.
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/model/model_catalogue.h"
#include "core/model/model_modules.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/scratch_folder.h"

namespace metronome::testing::TEST_FILE {
namespace {

// In the shape of Llama-3.1-8B. Weights: 3.758 G of gate and up, 1.879 G of down, 1.342 G of
// attention, 1.051 G of embeddings and head.
ModelConfig llama(const std::string& quantization) {
  const std::string config = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16")" +
                             quantization + "}";
  return parse_hugging_face_config(config, "config.json", "m");
}

ModelConfig quantised(const std::string& quantization) {
  return llama(R"(, "quantization_config": )" + quantization);
}

constexpr double kGateUp = 2.0 * 32 * 4096 * 14336;
constexpr double kDown = 32.0 * 4096 * 14336;
constexpr double kAttention = 32.0 * 4096 * (2 * 4096 + 2 * 1024);
constexpr double kLinear = kGateUp + kDown + kAttention;
constexpr double kTables = 2.0 * 128256 * 4096;
constexpr double kMlpOfLayer = (kGateUp + kDown) / 32;
constexpr double kNorms = 65.0 * 4096;
constexpr double kRest = 2 * (kTables + kNorms);  // in 16 bits

void check_bytes(const ModelConfig& model, double bytes) {
  CHECK(static_cast<double>(model.weight_bytes()) == Approx(bytes).epsilon(1e-6));
}

TEST_CASE("modules are those of the counts", "[catalogue]") {
  for (const ModelConfig& model : all_models()) {
    INFO(model.name);
    std::int64_t linear = 0;
    std::int64_t experts = 0;
    std::int64_t tables = 0;
    for (const ModelModule& module : model_modules(model)) {
      const bool is_expert =
          module.kind == ModuleKind::ExpertIn || module.kind == ModuleKind::ExpertOut;
      const bool is_table = module.kind == ModuleKind::Embedding || module.kind == ModuleKind::Head;
      (is_expert ? experts : is_table ? tables : linear) += module.num_params;
    }
    CHECK(linear == model.n_projection_params());
    CHECK(experts == model.n_moe_layers() * model.n_experts * model.n_expert_params());
    CHECK(tables == (model.has_tied_embeddings ? 1 : 2) * model.n_embedding_params());
  }
}

TEST_CASE("each module counts in the format of its group", "[catalogue]") {
  const ModelConfig mixed = quantised(R"({"quant_method": "compressed-tensors",
    "format": "mixed-precision", "config_groups": {
      "group_0": {"targets": ["re:.*down_proj"],
                  "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}},
      "group_1": {"targets": ["re:.*(gate|up)_proj"],
                  "weights": {"num_bits": 4, "type": "int", "strategy": "group",
                              "group_size": 128}}}, "ignore": ["lm_head"]})");
  check_bytes(mixed, kGateUp * (0.5 + 2.0 / 128) + kDown + 2 * kAttention + kRest);
  CHECK(mixed.linear_format == WeightFormat::Plain);
  CHECK(mixed.mlp_format == WeightFormat::Int4);
  CHECK(mixed.bytes_per_mlp_weight() == Approx((2 * 0.515625 + 1) / 3));
  // A class is for what no name matches, wherever it stands; lists of layers count layer by layer.
  const ModelConfig named = quantised(R"({"quant_method": "compressed-tensors",
    "config_groups": {
      "all": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 128}},
      "one": {"targets": ["model.layers.7.mlp.down_proj"],
              "weights": {"num_bits": 8, "type": "float"}}},
    "ignore": ["lm_head", "re:.*layers\\.(0|31)\\..*"]})");
  const double of_layer = kLinear / 32;
  const double down = kDown / 32;
  check_bytes(named, 2 * of_layer * 2 + down + (30 * of_layer - down) * 0.515625 + kRest);
  // A name that is only a part of another matches as compressed-tensors says: not at all.
  check_bytes(quantised(R"({"quant_method": "compressed-tensors", "config_groups": {"g": {
    "targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}},
    "ignore": ["self_attn", "lm_head"]})"),
              kLinear + kRest);
}

// Names that are those of other families' files. Bytes of what the entry names, in 16 bits instead
// of 8.
TEST_CASE("modules have the names of their families", "[catalogue]") {
  const std::string dense = R"("hidden_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512,
    "vocab_size": 1000, "max_position_embeddings": 4096)";
  const std::string granite = dense + R"(, "num_local_experts": 4, "num_experts_per_tok": 2,
    "shared_intermediate_size": 128, "layer_types": ["attention", "attention"])";
  constexpr double kInputs = 2.0 * 256 * (4 + 2 * 2) * 64;
  constexpr double kGateAndUp = 2.0 * 2 * 256 * 512;
  const auto bytes = [](const std::string& architecture, const std::string& shape,
                        const std::string& ignored) {
    const std::string config = R"({"architectures": [")" + architecture + R"("], )" + shape +
                               R"(, "quantization_config": {"quant_method": "compressed-tensors",
      "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}},
      "ignore": [")" + ignored +
                               R"("]}})";
    return static_cast<double>(
        parse_hugging_face_config(config, "config.json", "m").weight_bytes());
  };
  struct Row {
    std::string architecture, shape, ignored;
    double num_params;
  };
  for (const Row& row : std::vector<Row>{
           {"Glm4ForCausalLM", dense, R"(re:.*mlp\\.gate_up_proj$)", kGateAndUp},
           {"OtherForCausalLM", dense, "re:.*query_key_value$", kInputs},
           {"ChatGLMModel", dense, R"(re:transformer\\.encoder\\..*dense_h_to_4h)", kGateAndUp},
           {"OtherForCausalLM", dense, "re:.*feed_forward.w[13]$", kGateAndUp},
           {"OtherForCausalLM", dense, "re:.*self_attn.dense$", 2.0 * 256 * 256},
           {"GraniteMoeHybridForCausalLM", granite, "re:.*shared_mlp.input_linear$",
            2.0 * 2 * 256 * 128},
           {"GraniteMoeHybridForCausalLM", granite, "re:.*block_sparse_moe.output_linear$",
            2.0 * 4 * 256 * 512},
       }) {
    CAPTURE(row.architecture, row.ignored);
    CHECK(bytes(row.architecture, row.shape, row.ignored) -
              bytes(row.architecture, row.shape, "none") ==
          Approx(row.num_params));
  }
}

TEST_CASE("layers of ModelOpt's mixed precision", "[catalogue]") {
  const auto of_layers = [](const std::string& layers) {
    return quantised(R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
                         "quantized_layers": {)" +
                     layers + "}}");
  };
  const double up = kGateUp / 64;
  check_bytes(of_layers(R"("model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4",
                                                          "group_size": 16})"),
              2 * (kLinear - up) + up * 0.5625 + kRest);
  check_bytes(of_layers(R"("model.layers.0.mlp.up_proj": {"quant_algo": "FP8"},
                           "lm_head": {"quant_algo": "W4A16_AWQ", "group_size": 128})"),
              2 * (kLinear - up) + up + kRest - kTables / 2 * (2 - 0.515625));
  CHECK(error_of([&] { of_layers(R"("model.layers.0.mlp.up_proj": {"quant_algo": "FP3"})"); })
            .starts_with("config.json: quantization_config.quantized_layers."
                         "model.layers.0.mlp.up_proj.quant_algo: \"FP3\" is not supported; "
                         "allowed: FP8, "));
}

TEST_CASE("methods by their bits per weight", "[catalogue]") {
  const std::vector<std::pair<std::string, double>> cases = {
      {R"({"quant_method": "bitsandbytes", "load_in_4bit": true,
           "bnb_4bit_use_double_quant": true})",
       0.5 + (1 + 4.0 / 256) / 64},
      {R"({"quant_method": "bitsandbytes", "load_in_4bit": true})", 0.5 + 4.0 / 64},
      {R"({"quant_method": "bitsandbytes", "load_in_8bit": true})", 1},
      {R"({"quant_method": "gptq", "bits": 8, "group_size": 128})", 1 + 3.0 / 128},
      {R"({"quant_method": "gptq", "bits": 3, "group_size": 128})", 3.0 / 8 + 2.375 / 128},
      {R"({"quant_method": "gptq", "bits": 2, "group_size": 64})", 2.0 / 8 + 2.25 / 64},
      {R"({"quant_method": "auto-round", "bits": 4, "group_size": 128,
           "packing_format": "auto_round:auto_gptq"})",
       0.5 + 2.5 / 128},
      {R"({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]})", 1},
      {R"({"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {
           "group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int",
           "strategy": "channel"}, "input_activations": {"num_bits": 8, "type": "int"}}}})",
       1},
      {R"({"quant_method": "quark", "exclude": ["lm_head"], "global_quant_config": {
           "weight": {"dtype": "fp4", "group_size": 32}}})",
       0.5 + 1.0 / 32},
      {R"({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "int8",
           "qscheme": "per_channel"}, "input_tensors": {"dtype": "int8"}}})",
       1},
      {R"({"quant_method": "torchao", "quant_type": {"default": {
           "_type": "Int4WeightOnlyConfig", "_data": {"group_size": 128}}}})",
       0.5 + 4.0 / 128},
      {R"({"quant_method": "torchao", "quant_type": "int8_weight_only"})", 1},
      {R"({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4,
           "group_size": 64}}})",
       0.5 + 4.0 / 64},
      {R"({"quant_method": "modelopt", "quant_algo": "MXFP8"})", 1 + 1.0 / 32},
      {R"({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"})", 0.5 + 1.0 / 16},
      {R"({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ", "group_size": 128})",
       0.5 + 2.0 / 128},
      // Half of the values, and two bits for each that say which they are.
      {R"({"quant_method": "compressed-tensors", "format": "marlin-24", "config_groups": {
           "group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int",
           "strategy": "channel"}}}})",
       0.25 + 0.125},
  };
  for (const auto& [quantization, bytes] : cases) {
    INFO(quantization);
    check_bytes(quantised(quantization), kLinear * bytes + kRest);
  }
}

TEST_CASE("methods of few models by their bits per weight", "[catalogue]") {
  const std::vector<std::pair<std::string, double>> cases = {
      {R"({"quant_method": "moe_wna16", "bits": 8, "group_size": 128, "sym": true})",
       1 + 3.0 / 128},
      {R"({"quant_method": "inc", "bits": 4, "group_size": 128})", 0.5 + 2.5 / 128},
      {R"({"quant_method": "ptpc_fp8"})", 1},
      {R"({"quant_method": "w8a8_fp8"})", 1},
      {R"({"quant_method": "w8a8_int8"})", 1},
      {R"({"quant_method": "petit_nvfp4", "quant_algo": "NVFP4", "group_size": 16})", 0.5625},
      {R"({"quant_method": "fp_quant", "forward_dtype": "mxfp4"})", 0.53125},
      {R"({"quant_method": "quanto", "weights": "int4"})", 0.5 + 4.0 / 128},
      {R"({"quant_method": "quanto", "weights": "float8"})", 1},
      {R"({"quant_method": "bitblas", "bits": 2, "group_size": 64})", 0.25 + 2.0 / 64},
      {R"({"quant_method": "deepspeedfp", "bits": 6})", 0.75 + 4.0 / 512},
      {R"({"quant_method": "qqq", "wbits": 4, "group_size": 128})", 0.5 + 2.0 / 128},
      {R"({"quant_method": "higgs", "bits": 4, "p": 2, "group_size": 256})", 0.5 + 2.0 / 256},
      {R"({"quant_method": "exl2", "bits": 4.25})", 4.25 / 8},
      {R"({"quant_method": "bitnet", "quantization_mode": "offline"})", 0.25},
      {R"({"load_in_4bit": true, "bnb_4bit_quant_type": "nf4"})", 0.5 + 4.0 / 64},
      {R"({"quant_method": "modelopt", "quant_algo": "W4A16_MXFP4"})", 0.53125},
      {R"({"quant_method": "torchao", "quant_type": {"default": {"_type": "IntxWeightOnlyConfig",
           "_data": {"weight_dtype": {"_type": "torch.dtype", "_data": "int4"}, "granularity": {
             "_type": "PerGroup", "_data": {"group_size": 32}}}}}})",
       0.5 + 2.0 / 32},
      {R"({"quant_method": "torchao", "quant_type": {"default": {
           "_type": "NVFP4DynamicActivationNVFP4WeightConfig", "_data": {}}}})",
       0.5625},
      {R"({"quant_method": "torchao", "quant_type": {"default": {
           "_type": "MXDynamicActivationMXWeightConfig", "_data": {"weight_dtype": {
             "_type": "torch.dtype", "_data": "float4_e2m1fn_x2"}}}}})",
       0.53125},
  };
  for (const auto& [quantization, bytes] : cases) {
    INFO(quantization);
    check_bytes(quantised(quantization), kLinear * bytes + kRest);
  }
}

TEST_CASE("methods of transformers and packed integers by their bits per weight", "[catalogue]") {
  const std::vector<std::pair<std::string, double>> cases = {
      {R"({"quant_method": "torchao", "quant_type": {"default": {
           "_type": "FPXWeightOnlyConfig", "_data": {"ebits": 3, "mbits": 2}}}})",
       0.75},
      {R"({"quant_method": "nvfp4", "modules_to_not_convert": ["lm_head"]})", 0.5625},
      {R"({"quant_method": "fouroversix", "dtype": "mxfp4"})", 0.53125},
      {R"({"quant_method": "metal", "bits": 4, "group_size": 64})", 0.5 + 4.0 / 64},
      {R"({"quant_method": "sinq", "nbits": 3, "group_size": 64})", 0.375 + 4.0 / 64},
      {R"({"quant_method": "gemma", "num_bits": 4})", 0.5},
      {R"({"quant_method": "gemma", "num_bits": 2, "module_quant_configs": {
           "self_attn|mlp": {"num_bits": 8}}})",
       1},
      {R"({"quant_method": "auto-round", "bits": 8, "data_type": "fp", "group_size": -1})", 1},
      {R"({"quant_method": "auto-round", "bits": 8, "data_type": "fp", "group_size": [128, 128]})",
       1 + 4.0 / 16384},
      {R"({"quant_method": "fp8", "weight_block_size": [1, 128]})", 1 + 4.0 / 128},
      {R"({"quant_method": "fp8", "weight_block_size": [64, 64], "scale_fmt": "ue8m0"})",
       1 + 1.0 / 4096},
      // Ten whole numbers of 3 bits in 32, and six of 5 bits.
      {R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {
           "group_0": {"targets": ["Linear"], "weights": {"num_bits": 3, "type": "int",
           "strategy": "group", "group_size": 128}}}})",
       0.4 + 2.0 / 128},
      {R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {
           "group_0": {"targets": ["Linear"], "weights": {"num_bits": 5, "type": "int",
           "strategy": "channel"}}}})",
       32.0 / 6 / 8},
      // 64 bits for 16 weights; four outliers and offsets of 32 bits for each 1,600 weights.
      {R"({"quant_method": "spqr", "bits": 3, "beta1": 16, "beta2": 16, "shapes": {
           "model.layers.0.mlp.down_proj.dense_weights.shape": 1000,
           "model.layers.0.mlp.down_proj.row_offsets.shape": 10,
           "model.layers.0.mlp.down_proj.col_vals.shape": 30,
           "model.layers.0.mlp.down_proj.in_perm.shape": 0}})",
       0.5 + 40 * 4.0 / 16000},
      {R"({"quant_method": "modelopt", "config_groups": {"group_0": {"targets": ["Linear"],
           "weights": {"num_bits": 8, "type": "float"}}}, "ignore": ["lm_head"]})",
       1},
  };
  for (const auto& [quantization, bytes] : cases) {
    INFO(quantization);
    check_bytes(quantised(quantization), kLinear * bytes + kRest);
  }
}

TEST_CASE("codebooks count once for each matrix", "[catalogue]") {
  // 65,536 vectors of 8 numbers of 16 bits for each of seven matrices in 32 layers.
  constexpr double kMatrices = 7 * 32;
  check_bytes(quantised(R"({"quant_method": "aqlm", "in_group_size": 8, "out_group_size": 1,
                            "num_codebooks": 1, "nbits_per_codebook": 16})"),
              kLinear * 0.25 + kMatrices * 65536 * 8 * 2 + kRest);
  check_bytes(quantised(R"({"quant_method": "aqlm", "num_codebooks": 2, "nbits_per_codebook": 8,
                            "linear_weights_not_to_quantize": ["model.layers.0.mlp"]})"),
              kLinear * 0.25 + kMatrices * 2 * 256 * 8 * 2 +
                  (kMlpOfLayer * 1.75 - 3 * 2 * 256 * 8 * 2) + kRest);
  check_bytes(quantised(R"({"quant_method": "vptq", "config_for_layers": {
                            "model.layers.0.mlp.down_proj": {"vector_lens": [-1, 8],
                              "num_centroids": [-1, 65536], "num_res_centroids": [-1, 256]}}})"),
              kLinear * 2 + kDown / 32 * (24.0 / 64 - 2) + (65536 + 256) * 8 * 2 + kRest);
  // Numbers that all layers share.
  check_bytes(quantised(R"({"quant_method": "vptq", "config_for_layers": {},
                            "shared_layer_config": {"layers": {"vector_lens": [-1, 8],
                              "num_centroids": [-1, 65536], "num_res_centroids": [-1, -1]}}})"),
              kLinear * 0.25 + kMatrices * 65536 * 8 * 2 + kRest);
  // The head has a width of its own.
  check_bytes(quantised(R"({"quant_method": "exl3", "bits": 4.0, "head_bits": 6})"),
              kLinear * 0.5 + kTables / 2 * 0.75 + kTables / 2 * 2 + 2 * kNorms);
}

TEST_CASE("overrides of single modules", "[catalogue]") {
  // MLX stores embeddings and head, too; an older file has only the key of its own.
  const double affine = 0.5 + 4.0 / 64;
  check_bytes(llama(R"(, "quantization": {"group_size": 64, "bits": 4})"),
              (kLinear + kTables) * affine + 2 * kNorms);
  check_bytes(quantised(R"({"group_size": 64, "bits": 4, "lm_head": false,
                            "model.layers.3.mlp.down_proj": {"group_size": 64, "bits": 8}})"),
              (kLinear + kTables / 2) * affine + kDown / 32 * 0.5 + kTables + 2 * kNorms);
  // GPTQModel's patterns: down projections in 8 bits, the first layer left alone.
  check_bytes(quantised(R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {
                            "-:.*layers\\.0\\..*": {}, "+:.*down_proj": {"bits": 8}}})"),
              kLinear / 32 * 2 + kDown / 32 * 31 * (1 + 3.0 / 128) +
                  (kLinear - kDown) / 32 * 31 * (0.5 + 2.5 / 128) + kRest);
  check_bytes(quantised(R"({"quant_method": "auto-round", "bits": 4, "group_size": 128,
                            "extra_config": {"model.layers.0.mlp.down_proj": {"bits": 16}}})"),
              (kLinear - kDown / 32) * (0.5 + 2.5 / 128) + kDown / 32 * 2 + kRest);
  check_bytes(quantised(R"({"quant_method": "torchao", "quant_type": {"default": {
                            "_type": "ModuleFqnToConfig", "_data": {"module_fqn_to_config": {
                              "_default": {"_type": "Int8WeightOnlyConfig", "_data": {}},
                              "model.layers.0.mlp.down_proj": null}}}}})"),
              kLinear + kDown / 32 + kRest);
}

TEST_CASE("modules that cannot be counted are refused by name", "[catalogue]") {
  const auto error = [](const std::string& quantization) {
    return error_of([&] { quantised(quantization); });
  };
  CHECK(error(R"({"quant_method": "no_such"})")
            .starts_with("config.json: quantization_config.quant_method: \"no_such\" is not "
                         "supported; allowed: fp8, compressed-tensors, modelopt, gptq, "));
  CHECK(error(R"({"quant_method": "gptq", "bits": 16})") ==
        "config.json: quantization_config.bits: is 16; allowed: 2, 3, 4, 8");
  for (const char* method : {"gptq", "auto-round"}) {
    const std::string start = R"({"quant_method": ")" + std::string(method) + '"';
    CHECK(error(start + R"(, "bits": 5})") ==
          "config.json: quantization_config.bits: is 5; allowed: 2, 3, 4, 8");
    CHECK(error(start + "}") ==
          "config.json: quantization_config.bits: is missing; allowed: 2, 3, 4, 8");
  }
  CHECK(error(R"({"quant_method": "exl2", "bits": 0})") ==
        "config.json: quantization_config.bits: is 0; allowed: more than 0, at most 16");
  CHECK(error(R"({"quant_method": "aqlm", "num_codebooks": 0})") ==
        "config.json: quantization_config.num_codebooks: is 0; allowed: 1 to 16");
  CHECK(error(R"({"quant_method": "quanto", "weights": "int3"})") ==
        "config.json: quantization_config.weights: \"int3\" is not supported; allowed: int2, "
        "int4, int8, float8");
  CHECK(error(R"({"quant_method": "vptq", "config_for_layers": {"a": {"vector_lens": 8}}})") ==
        "config.json: quantization_config.config_for_layers.a.vector_lens: is no pair of integers; "
        "allowed: such as [-1, 8]");
  CHECK(error(R"({"quant_method": "awq", "w_bit": 3})") ==
        "config.json: quantization_config.w_bit: is 3; allowed: 4, 8");
  CHECK(error(R"({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 5}}})")
            .ends_with("weight_quant_params.nbits: is 5; allowed: 1, 2, 3, 4, 8"));
  CHECK(error(R"({"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*down.*": {"bits": 7}}})")
            .ends_with(".bits: is 7; allowed: 2, 3, 4, 8"));
  CHECK(error_of([] {
          llama(R"(, "quantization": {"group_size": 64, "bits": 7})");
        }).ends_with("quantization.bits: is 7; allowed: 2, 3, 4, 5, 6, 8"));
  CHECK(error(R"({"quant_method": "quark", "global_quant_config": {"weight": {
                  "dtype": "bfp16"}}})")
            .starts_with("config.json: quantization_config.global_quant_config.weight.dtype: "
                         "\"bfp16\" is not supported"));
  CHECK(error(R"({"quant_method": "torchao", "quant_type": "int3_rows"})")
            .starts_with("config.json: quantization_config.quant_type: \"int3_rows\" is not"));
  CHECK(error(R"({"quant_method": "fp8", "ignored_layers": ["re:(?<!a)b"]})")
            .starts_with("config.json: quantization_config.ignored_layers: \"re:(?<!a)b\" is not "
                         "understood"));
}

TEST_CASE("errors name the keys of config.json, with their ranges", "[catalogue]") {
  struct Case {
    std::string change;  // "key": value
    std::string message;
  };
  const auto error = [](const std::string& key, const std::string& value) {
    std::string config = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64,
      "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 4, "vocab_size": 256, "max_position_embeddings": 1024,
      "rms_norm_eps": 1e-05})";
    const std::size_t at = config.find("\"" + key + "\": ") + key.size() + 4;
    config.replace(at, config.find_first_of(",}", at) - at, value);
    return error_of([&] { parse_hugging_face_config(config, "config.json", "m"); });
  };
  CHECK(error("hidden_size", "0") == "config.json: hidden_size: is 0; allowed: 1 to 1048576");
  CHECK(error("num_hidden_layers", "0") ==
        "config.json: num_hidden_layers: is 0; allowed: 1 to 4096");
  CHECK(error("num_attention_heads", "0") ==
        "config.json: num_attention_heads: is 0; allowed: 1 to 4096");
  CHECK(error("num_key_value_heads", "0") ==
        "config.json: num_key_value_heads: is 0; allowed: 1 to 4096");
  CHECK(error("num_key_value_heads", "3") ==
        "config.json: num_key_value_heads: 3 does not divide num_attention_heads 4; allowed: a "
        "divisor of num_attention_heads");
  CHECK(error("intermediate_size", "0") ==
        "config.json: intermediate_size: is 0; allowed: 1 to 1048576");
  CHECK(error("rms_norm_eps", "0") == "config.json: rms_norm_eps: is 0; allowed: 1e-20 to 1");
  CHECK(error("rms_norm_eps", "NaN") == "config.json: rms_norm_eps: is nan; allowed: 1e-20 to 1");
  CHECK(error("hidden_size", "-4") ==
        "config.json: hidden_size: -4 is out of range; allowed: 1 to 1048576");
  CHECK(error("vocab_size", "Infinity") ==
        "config.json: vocab_size: must be an integer, got Infinity; allowed: 1 to 16777216");
}

TEST_CASE("a model's files may have Python's numbers", "[catalogue]") {
  const ScratchFolder folder;
  folder.write("config.json", R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 258, "max_position_embeddings": 4096,
    "time_step_limit": [0.0, Infinity], "floor": -Infinity})");
  folder.write("generation_config.json", R"({"eos_token_id": 7, "penalty": NaN})");
  CHECK(find_model(folder.path(), {}).eos_token_ids == std::vector<std::int32_t>{7});
}

// Replaces each value within `place`, one at a time, by values of all types; `check` reads the
// document that `place` is a part of.
template <class Check>
void replace_each(Json& place, const Check& check) {
  const Json others[] = {
      Json(), "x", "", 7, -1, 0.5, true, Json::array(), Json::array({Json()}), Json::object()};
  const auto replace = [&](Json& value) {
    for (const Json& other : others) {
      Json kept = other;
      value.swap(kept);
      check();
      value.swap(kept);
    }
    replace_each(value, check);
  };
  for (Json& value : place) replace(value);
  for (const Json::Member* const member : place.sorted_items()) replace(*place.find(member->key));
}

TEST_CASE("values of other types are read or refused in one line", "[catalogue]") {
  constexpr const char* kConfigs[] = {
      R"({"quantization": {"group_size": 64, "bits": 4, "mode": "affine", "lm_head": true,
          "model.layers.0.mlp.down_proj": {"group_size": 64, "bits": 8, "mode": "affine"}}})",
      R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128],
          "ignored_layers": ["lm_head"], "modules_to_not_convert": ["re:.*mlp.*"],
          "kv_cache_scheme": "FP8"}})",
      R"({"quantization_config": {"quant_method": "compressed-tensors", "ignore": ["lm_head"],
          "format": "pack-quantized", "sparsity_config": {"format": "dense"},
          "config_groups": {"group_0": {"targets": ["Linear"], "format": "pack-quantized",
            "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128},
            "input_activations": {"num_bits": 8, "type": "float"}}},
          "kv_cache_scheme": {"num_bits": 8, "type": "float"}}})",
      R"({"quantization_config": {"quant_method": "modelopt", "quantization": {
          "quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "FP8",
          "exclude_modules": ["lm_head"], "quantized_layers": {
            "model.layers.0.mlp.up_proj": {"quant_algo": "W4A16_AWQ", "group_size": 128}}}}})",
      R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128,
          "lm_head": true, "dynamic": {"-:.*layers\\.0\\..*": {},
            "+:.*down_proj": {"bits": 8, "group_size": 64}}}})",
      R"({"quantization_config": {"quant_method": "awq", "w_bit": 4, "q_group_size": 128}})",
      R"({"quantization_config": {"quant_method": "auto-round", "bits": 4, "group_size": 128,
          "data_type": "int", "extra_config": {
            "model.layers.0.mlp.down_proj": {"bits": 8, "data_type": "int", "group_size": 32}}}})",
      R"({"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": false,
          "load_in_4bit": true, "bnb_4bit_use_double_quant": true,
          "llm_int8_skip_modules": ["lm_head"]}})",
      R"({"quantization_config": {"quant_method": "hqq", "skip_modules": ["lm_head"],
          "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}})",
      R"({"quantization_config": {"quant_method": "hqq", "quant_config": {
          "self_attn.q_proj": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}}})",
      R"({"quantization_config": {"quant_method": "quark", "exclude": ["lm_head"],
          "global_quant_config": {"weight": [{"dtype": "fp8_e4m3"},
                                             {"dtype": "int4", "qscheme": "per_group",
                                              "group_size": 32}],
                                  "input_tensors": {"dtype": "int8"}},
          "layer_quant_config": {"*.down_proj": {"weight": {
            "dtype": "fp8_e4m3", "group_size": 32, "scale_format": "e8m0"}}}}})",
      R"({"quantization_config": {"quant_method": "torchao", "quant_type": "int4_weight_only",
          "quant_type_kwargs": {"group_size": 128}}})",
      R"({"quantization_config": {"quant_method": "torchao", "quant_type": {"default": {
          "_type": "ModuleFqnToConfig", "_data": {"module_fqn_to_config": {
            "_default": {"_type": "Int8WeightOnlyConfig", "_data": {"group_size": 32}},
            "model.layers.0.mlp.down_proj": {"_type": "Int8WeightOnlyConfig", "_data": {}}}}}}}})",
      R"({"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["x"]}})",
      R"({"quantization_config": {"quant_method": "mxfp8"}})",
      R"({"quantization_config": {"quant_method": "eetq"}})",
  };
  for (const char* config : kConfigs) {
    Json quantization = Json::parse(config);
    replace_each(quantization, [&] {
      const std::string text = quantization.dump();
      const std::string error = error_of([&] { llama(", " + text.substr(1, text.size() - 2)); });
      if (error.empty()) return;
      INFO(text);
      CHECK(error.starts_with("config.json: quantization"));
      CHECK(contains(error, "; allowed: "));
      CHECK_FALSE(contains(error, "\n"));
    });
  }
}

TEST_CASE("null counts as an absent key of a module", "[catalogue]") {
  const auto of_mlx = [](const std::string& more) {
    return llama(R"(, "quantization": {"group_size": 64, "bits": 4)" + more + "}").weight_bytes();
  };
  CHECK(of_mlx(R"(, "lm_head": null, "model.layers.0.mlp.down_proj": null)") == of_mlx(""));
  CHECK(error_of([] { quantised(R"({"quant_method": "fp8", "weight_block_size": 128})"); }) ==
        "config.json: quantization_config.weight_block_size: must be a list of two integers, got "
        "128; allowed: rows and columns of a block, such as [128, 128]");
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
