// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/config/catalogue.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "core/model/model_family.h"
#include "sim/roofline/roofline.h"
#include "tests/catch.h"
#include "tests/core/config/published_counts.h"
#include "tests/error_of.h"
#include "tests/expected.h"
#include "tests/scratch_folder.h"

namespace metronome::TEST_FILE {
namespace {

using testing::Answers;
using testing::change_text;
using testing::contains;
using testing::error_of;
using testing::replaced;

SourceLocation somewhere() { return {std::make_shared<const std::string>("scenario.yaml"), 3}; }

TEST_CASE("every model is sound and as large as published", "[sim][catalogue]") {
  const std::map<std::string, std::int64_t>& published = testing::kPublishedCounts;
  const std::vector<ModelConfig> models = all_models();
  CHECK(models.size() == published.size());
  for (const ModelConfig& model : models) {
    INFO(model.name);
    CHECK(model.shape_error().empty());
    REQUIRE(published.count(model.name) == 1);
    const std::int64_t count = published.at(model.name);
    if (model.given_kinds.empty()) {
      CHECK(model.n_params() - model.tower_params == count);
    } else {  // without biases, and with towers by their keys
      CHECK(std::abs(static_cast<double>(model.n_params() - count)) <
            0.01 * static_cast<double>(count));
    }
    const bool is_computed = find_family(model.architecture) != nullptr &&
                             model.expert_format == WeightFormat::Plain &&
                             model.linear_format == WeightFormat::Plain;
    CHECK(model.unsupported.empty() == is_computed);
    CHECK(
        (model.eos_token_ids.size() >= 1 || !model.given_kinds.empty() || model.name == "mimo-7b"));
    CHECK(find_model(model.name, {}) == model);
  }
}

TEST_CASE("the text of an entry is that of its lines", "[catalogue]") {
  constexpr std::string_view kText =
      "# about\n\na-b:  # one\n  # more\n  x: 1\n  c:\n    y: 2\n\nb:\n  x: 3\n\nc:\n  x: 4";
  CHECK(entry_text(kText, "a-b") == "a-b:  # one\n  # more\n  x: 1\n  c:\n    y: 2\n\n");
  CHECK(entry_text(kText, "b") == "b:\n  x: 3\n\n");
  CHECK(entry_text(kText, "c") == "c:\n  x: 4");
  for (const char* none : {"", "a", "x", "  c", "a-b:", "b:\n  x", "# about", "d"}) {
    CHECK(entry_text(kText, none).empty());
  }
}

TEST_CASE("models are found by their repositories on Hugging Face", "[sim][catalogue]") {
  CHECK(find_model("meta-llama/Llama-3.1-8B-Instruct", {}) == find_model("llama-3.1-8b", {}));
  CHECK(find_model("qwen/qwen3-4b", {}) == find_model("qwen3-4b", {}));
  CHECK(find_model_folder("meta-llama/Llama-3.1-8B-Instruct").empty());
  std::size_t num_found = 0;
  for (const ModelConfig& model : all_models()) {
    for (const std::string& repository : repositories_of(model.name)) {
      INFO(repository);
      CHECK(catalogue_name(repository) == model.name);
      ++num_found;
    }
  }
  CHECK(num_found >= 30);
  CHECK(error_of([] { find_model("scenarios/meta-llama/Llama-3.1-9B", somewhere()); }) ==
        "scenario.yaml:3: model: no such file or repository: scenarios/meta-llama/Llama-3.1-9B; "
        "allowed: a name of `metronome list models` or of `tools/model`, or "
        "the path of a GGUF file, of a config.json or of its folder");
}

TEST_CASE("every GPU is sound", "[sim][catalogue]") {
  std::vector<std::string> names;
  const ModelConfig model = find_model("llama-3.2-3b", {});
  for (const HardwareSpec& hardware : all_hardware()) {
    INFO(hardware.name);
    names.push_back(hardware.name);
    CHECK(find_hardware(hardware.name, {}) == hardware);
    CHECK(hardware.peak_flops >= 15e12);
    CHECK(hardware.peak_flops <= 2520e12);
    // Each halving of the format doubles the peak, or more; one accelerator has one for both.
    const double least = hardware.name == "gaudi-3" ? 1 : 1.99;
    for (const double peak : {hardware.peak_flops_fp8, hardware.peak_flops_fp4}) {
      const bool is_a_multiple =
          peak >= least * hardware.peak_flops && peak <= 8.01 * hardware.peak_flops;
      CHECK((peak == 0 || is_a_multiple));
    }
    CHECK((hardware.peak_flops_fp8 > 0 || hardware.peak_flops_fp4 == 0));
    CHECK((hardware.peak_flops_fp8 > 0) == (hardware.matmul_efficiency_fp8 > 0));
    CHECK((hardware.peak_flops_fp4 > 0) == (hardware.matmul_efficiency_fp4 > 0));
    CHECK(hardware.peak_bandwidth >= 200e9);
    CHECK(hardware.peak_bandwidth <= 8e12);
    CHECK(hardware.memory_bytes >= std::int64_t{9} << 30);
    CHECK(hardware.memory_bytes <= std::int64_t{288} << 30);
    for (const double efficiency :
         {hardware.matmul_efficiency, hardware.attention_efficiency, hardware.bandwidth_efficiency,
          hardware.kv_bandwidth_efficiency, hardware.expert_efficiency}) {
      CHECK(efficiency > 0.24);
      CHECK(efficiency < 1);
    }
    CHECK(hardware.link_bandwidth > 0);
    CHECK(hardware.allreduce_latency_us > 0);
    CHECK(RooflineCostModel(model, hardware, {}).kv_capacity_blocks(16) > 500);
  }
  CHECK(names.size() >= 85);
}

TEST_CASE("catalogue GPUs come near published decode times", "[sim][catalogue]") {
  struct Measured {
    const char* hardware;
    const char* model;
    std::int32_t batch;
    std::int32_t context;  // mean over the run
    double ms;
  };
  const Measured measured[] = {
      // vLLM 0.30, median inter-token latency (silybench-data): 128 tokens in, 1024 out; the last
      // one 8192 in, 512 out. It plans a step while the one before runs, so that no host gap shows.
      {"h100-sxm", "qwen3-8b", 1, 640, 6.86},
      {"h100-sxm", "qwen3-8b", 16, 640, 7.53},
      {"h100-sxm", "qwen3-8b", 64, 640, 9.49},
      {"h100-sxm", "qwen3-8b", 128, 640, 12.0},
      {"h100-sxm", "qwen3-8b", 256, 640, 18.08},
      {"h100-sxm", "qwen3-8b", 64, 3072, 17.05},
      {"h100-sxm", "qwen3-8b", 1, 8448, 7.30},
      // gpt-fast: 93.9 tokens/s; calm: 61 tokens/s.
      {"a100-80gb", "llama-3.1-8b", 1, 200, 1000 / 93.9},
      {"rtx-4090", "llama-3.1-8b", 1, 200, 1000 / 61.0},
  };
  for (const Measured& run : measured) {
    INFO(run.hardware << " " << run.model << " batch " << run.batch << " context " << run.context);
    RooflineCostModel cost_model(find_model(run.model, {}), find_hardware(run.hardware, {}), {});
    StepPlan plan;
    const ScheduledChunk decode = {RequestId{0}, run.context - 1, 1, ChunkKind::Decode, true};
    plan.chunks.assign(static_cast<std::size_t>(run.batch), decode);
    plan.passes.push_back({0, run.batch});
    CHECK(to_ms(cost_model.step_cost(plan).total_ns) == Approx(run.ms).epsilon(0.05));
  }
}

TEST_CASE("unknown names", "[sim][catalogue]") {
  Answers answers("catalogue/unknown_names.txt");
  for (const char* name : {"lama-3.2-3b", "gpt-4", "", "./nope/config.json"}) {
    answers.add("model: " + std::string(name), error_of([&] { find_model(name, somewhere()); }));
  }
  for (const char* name : {"h-201", "dgx-sparkk", "nope.yaml", "."}) {
    answers.add("hardware: " + std::string(name),
                error_of([&] { find_hardware(name, somewhere()); }));
  }
}

const char* const kLlamaJson = R"({
  "architectures": ["LlamaForCausalLM"],
  "attention_bias": false,
  "eos_token_id": 128001,
  "head_dim": 128,
  "hidden_act": "silu",
  "hidden_size": 3072,
  "intermediate_size": 8192,
  "max_position_embeddings": 131072,
  "num_attention_heads": 24,
  "num_hidden_layers": 28,
  "num_key_value_heads": 8,
  "rms_norm_eps": 1e-05,
  "rope_scaling": {
    "factor": 32.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3"
  },
  "rope_theta": 500000.0,
  "tie_word_embeddings": true,
  "torch_dtype": "bfloat16",
  "vocab_size": 128256
})";

const char* const kQwenJson = R"({
  "architectures": ["Qwen3ForCausalLM"],
  "eos_token_id": 151645,
  "head_dim": 128,
  "hidden_size": 4096,
  "intermediate_size": 12288,
  "max_position_embeddings": 40960,
  "num_attention_heads": 32,
  "num_hidden_layers": 36,
  "num_key_value_heads": 8,
  "rms_norm_eps": 1e-06,
  "rope_scaling": null,
  "rope_theta": 1000000,
  "sliding_window": null,
  "tie_word_embeddings": false,
  "torch_dtype": "bfloat16",
  "use_sliding_window": false,
  "vocab_size": 151936
})";

const char* const kGemmaJson = R"({
  "architectures": ["Gemma3ForCausalLM"],
  "eos_token_id": [1, 106],
  "final_logit_softcapping": null,
  "head_dim": 256,
  "hidden_activation": "gelu_pytorch_tanh",
  "hidden_size": 1152,
  "intermediate_size": 6912,
  "max_position_embeddings": 32768,
  "num_attention_heads": 4,
  "num_hidden_layers": 26,
  "num_key_value_heads": 1,
  "query_pre_attn_scalar": 256,
  "rms_norm_eps": 1e-06,
  "rope_local_base_freq": 10000,
  "rope_scaling": null,
  "rope_theta": 1000000,
  "sliding_window": 512,
  "sliding_window_pattern": 6,
  "torch_dtype": "bfloat16",
  "vocab_size": 262144
})";

// As published: what equals the architecture's defaults is left out.
const char* const kGemmaNestedJson = R"({
  "architectures": ["Gemma3ForConditionalGeneration"],
  "eos_token_id": [1, 106],
  "text_config": {
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "model_type": "gemma3_text",
    "num_hidden_layers": 34,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "sliding_window": 1024
  },
  "torch_dtype": "bfloat16",
  "vision_config": {"hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
                    "num_hidden_layers": 27, "patch_size": 14}
})";

// Llama 2 has no head_dim and, in its first files, no num_key_value_heads.
const char* const kLlama2Json = R"({
  "architectures": ["LlamaForCausalLM"],
  "hidden_size": 4096,
  "intermediate_size": 11008,
  "max_position_embeddings": 4096,
  "num_attention_heads": 32,
  "num_hidden_layers": 32,
  "rms_norm_eps": 1e-05,
  "tie_word_embeddings": false,
  "torch_dtype": "float16",
  "vocab_size": 32000
})";

ModelConfig parse(const std::string& json) {
  return parse_hugging_face_config(json, "config.json", "parsed");
}

// Answers to the config.json `base` with one text in it replaced by another, for each pair.
void add_errors(Answers& answers, const char* base,
                const std::vector<std::pair<std::string, std::string>>& changes) {
  for (const auto& change : changes) {
    const auto parse_changed = [&] { parse(replaced(base, change.first, change.second)); };
    answers.add(change_text(change.first, change.second), error_of(parse_changed));
  }
}

TEST_CASE("config.json of each architecture", "[sim][catalogue]") {
  const std::pair<const char*, const char*> files[] = {{kLlamaJson, "llama-3.2-3b"},
                                                       {kQwenJson, "qwen3-8b"},
                                                       {kGemmaJson, "gemma-3-1b"},
                                                       {kGemmaNestedJson, "gemma-3-4b"},
                                                       {kLlama2Json, "llama-2-7b"}};
  for (const auto& [json, name] : files) {
    INFO(name);
    ModelConfig model = parse(json);
    CHECK(model.name == "parsed");
    model.name = name;
    CHECK(model == find_model(name, {}));
  }
  const std::string by_type =
      replaced(kQwenJson, R"("architectures": ["Qwen3ForCausalLM"])", R"("model_type": "qwen3")");
  CHECK(parse(by_type).architecture == "Qwen3ForCausalLM");

  std::string mistral = replaced(kLlamaJson, "LlamaForCausalLM", "MistralForCausalLM");
  mistral = replaced(mistral, R"("rope_theta": 500000.0)", R"("sliding_window": 4096)");
  CHECK(parse(mistral).n_window_layers() == 28);
  CHECK(parse(mistral).rope_theta == 10000);
  // Without the key, transformers has a window of 4096; only a null turns it off.
  mistral = replaced(mistral, R"("sliding_window": 4096)", R"("max_window_layers": 28)");
  CHECK(parse(mistral).sliding_window == 4096);
  mistral = replaced(mistral, R"("max_window_layers": 28)", R"("sliding_window": null)");
  CHECK(parse(mistral).sliding_window == 0);
  CHECK(parse(replaced(kLlamaJson, "bfloat16", "float32")).bytes_per_weight == 4);
}

TEST_CASE("layer types of newer config files", "[sim][catalogue]") {
  const auto with_types = [](const std::string& types) {
    const std::string json = replaced(kGemmaJson, R"("num_hidden_layers": 26)",
                                      R"("num_hidden_layers": 6, "layer_types": )" + types);
    return replaced(json, R"("sliding_window_pattern": 6,)", "");
  };
  const std::string s = R"("sliding_attention")";
  const std::string f = R"("full_attention")";
  const auto list = [](const std::vector<std::string>& items) {
    std::string text = "[";
    for (const std::string& item : items) text += (text.size() > 1 ? "," : "") + item;
    return text + "]";
  };
  CHECK(parse(with_types(list({s, s, f, s, s, f}))).global_layer_interval == 3);
  CHECK(parse(with_types(list({s, s, s, s, s, s}))).n_global_layers() == 0);
  CHECK(parse(with_types(list({f, f, f, f, f, f}))).n_global_layers() == 6);
  const ModelConfig mixed = parse(with_types(list({s, f, s, s, f, s})));
  CHECK(mixed.global_layer_interval == 0);
  CHECK(mixed.window_layers == std::vector<std::int64_t>{0, 2, 3, 5});
  CHECK(mixed.n_window_layers() == 4);
  CHECK(mixed.is_window_layer(3));
  CHECK(!mixed.is_window_layer(4));
  CHECK(contains(error_of([&] {
                   parse(with_types(list({s, "7", s, s, s, s})));
                 }),
                 "config.json: layer_types: entry 1 is 7; allowed: 6 times sliding_attention"));
  CHECK(contains(error_of([&] { parse(with_types(list({s, f}))); }), "layer_types: "));
}

TEST_CASE("a model from a file or its folder", "[sim][catalogue]") {
  const testing::ScratchFolder folder;
  const std::string path = folder.write("Llama-3.2-3B/config.json", kLlamaJson);
  const ModelConfig from_file = find_model(path, {});
  CHECK(from_file.name == "Llama-3.2-3B");
  CHECK(from_file.n_params() == 3'212'749'824);
  CHECK(find_model(folder.path() + "/Llama-3.2-3B", {}) == from_file);
  CHECK(find_model(folder.path() + "/Llama-3.2-3B/", {}) == from_file);
  CHECK(contains(error_of([&] { find_model(folder.path(), somewhere()); }),
                 "scenario.yaml:3: model: " + folder.path() + "/config.json does not exist"));
  const std::string empty = folder.write("empty/config.json", "");
  CHECK(error_of([&] { find_model(empty, somewhere()); }).starts_with(empty + ":1: is not JSON"));
}

TEST_CASE("malformed config.json", "[sim][catalogue]") {
  Answers answers("catalogue/malformed.txt");
  add_errors(answers, kLlamaJson,
             {{R"("hidden_size": 3072,)", ""},
              {"3072", "\"3072\""},
              {"3072", "3072.5"},
              {"3072", "-1"},
              {"3072", "99999999999999999999"},
              {"3072", "9999999999999999999"},
              {"3072", "0"},
              {R"("num_key_value_heads": 8)", R"("num_key_value_heads": 7)"},
              {R"("num_key_value_heads": 8)", R"("num_key_value_heads": 0)"},
              {R"("tie_word_embeddings": true)", R"("tie_word_embeddings": 1)"},
              {"bfloat16", "float8"},
              {R"("attention_bias": false)", R"("quantization_config": {})"},
              {R"(["LlamaForCausalLM"])", "[]"},
              {R"("architectures": ["LlamaForCausalLM"],)", ""},
              {"3072,", "3072"},
              {"3072", "1e999"}});
  add_errors(answers, kGemmaNestedJson, {{R"("hidden_size": 2560,)", ""}});
  add_errors(answers, kQwenJson,
             {{R"("use_sliding_window": false)", R"("use_sliding_window": 1)"}});
  for (const char* json : {"[1, 2]", R"({"architectures": ["Gemma3ForConditionalGeneration"]})"}) {
    answers.add(json, error_of([&] { parse(json); }));
  }
}

TEST_CASE("rotary parameters in either spelling", "[sim][catalogue]") {
  // transformers 5 has one object where 4 has three keys.
  std::string llama = replaced(kLlamaJson, R"("rope_scaling": {)", R"("rope_parameters": {
    "rope_theta": 500000.0,)");
  llama = replaced(llama, R"("rope_theta": 500000.0,
  "tie)",
                   R"("tie)");
  llama = replaced(llama, "torch_dtype", "dtype");
  CHECK(parse(llama) == parse(kLlamaJson));

  std::string gemma = replaced(kGemmaJson, R"("rope_local_base_freq": 10000,
  "rope_scaling": null,
  "rope_theta": 1000000,)",
                               R"("rope_parameters": {
    "full_attention": {"factor": 8.0, "rope_theta": 500000, "rope_type": "linear"},
    "sliding_attention": {"rope_theta": 2000.0, "rope_type": "default"}
  },)");
  ModelConfig model = parse(gemma);
  CHECK(model.rope_theta == 500000);
  CHECK(model.rope_local_theta == 2000);
  CHECK(model.rope_scaling == RopeScaling{RopeScaling::Kind::Linear, 8, 1, 4, 8192});
  CHECK(model.unsupported.empty());
  model =
      parse(replaced(gemma, R"("rope_type": "default")", R"("rope_type": "linear", "factor": 2)"));
  CHECK(model.unsupported ==
        "rope_parameters.sliding_attention.rope_type: scaling in window layers is not supported; "
        "allowed: default");
  CHECK(contains(error_of([&] { parse(replaced(gemma, R"("factor": 8.0, )", "")); }),
                 "rope_parameters.full_attention.factor: is missing"));

  // "type" is the older name of "rope_type"; original positions default to the model's.
  model = parse(replaced(kQwenJson, R"("rope_scaling": null)",
                         R"("rope_scaling": {"type": "linear", "factor": 2})"));
  CHECK(model.rope_scaling == RopeScaling{RopeScaling::Kind::Linear, 2, 1, 4, 8192});
  model = parse(replaced(kLlamaJson, R"("original_max_position_embeddings": 8192,)", ""));
  CHECK(model.rope_scaling.original_max_positions == 131072);
}

TEST_CASE("arithmetic that a config.json leaves out", "[sim][catalogue]") {
  const ModelConfig llama = parse(replaced(kLlama2Json, R"("rms_norm_eps": 1e-05,)", ""));
  CHECK(llama.norm_eps == 1e-6);
  CHECK(llama.rope_theta == 10000);
  CHECK(llama.rope_local_theta == 0);
  CHECK(llama.rope_scaling.kind == RopeScaling::Kind::None);
  CHECK(llama.query_pre_attn_scalar == 0);
  CHECK(llama.activation == Activation::Silu);
  CHECK(llama.eos_token_ids == std::vector<std::int32_t>{2});
  CHECK(!llama.has_unit_offset_norms);
  CHECK(!llama.scales_embeddings);
  CHECK(parse(replaced(kQwenJson, R"("eos_token_id": 151645,)", "")).eos_token_ids.empty());

  const ModelConfig gemma = parse(replaced(kGemmaNestedJson, R"("eos_token_id": [1, 106],)", ""));
  CHECK(gemma.rope_theta == 1e6);
  CHECK(gemma.rope_local_theta == 1e4);
  CHECK(gemma.query_pre_attn_scalar == 256);
  CHECK(gemma.activation == Activation::GeluTanh);
  CHECK(gemma.eos_token_ids == std::vector<std::int32_t>{1});
  CHECK(gemma.has_unit_offset_norms);
  CHECK(gemma.scales_embeddings);

  // Absent means the default of the class, null means none.
  CHECK(parse(replaced(kGemmaJson, "[1, 106]", "null")).eos_token_ids.empty());
  CHECK(parse(replaced(kGemmaJson, "[1, 106]", "[]")).eos_token_ids.empty());
  const std::string silent = replaced(kQwenJson, R"("num_key_value_heads": 8,)", "");
  CHECK(parse(silent).n_kv_heads == 32);
  CHECK(parse(replaced(kQwenJson, R"("num_key_value_heads": 8)", R"("num_key_value_heads": null)"))
            .n_kv_heads == 32);
  const std::string mistral = replaced(kLlamaJson, "LlamaForCausalLM", "MistralForCausalLM");
  CHECK(parse(replaced(mistral, R"("num_key_value_heads": 8,)", "")).n_kv_heads == 8);
}

TEST_CASE("what no executor computes is noted and changes nothing else", "[sim][catalogue]") {
  Answers answers("catalogue/not_computed.txt");
  const auto add_note = [&](const std::string& question, const char* base,
                            const std::string& json) {
    ModelConfig model = parse(json);
    answers.add(question, std::exchange(model.unsupported, ""));
    CHECK(model == parse(base));
  };
  const auto add = [&](const char* base, const std::string& from, const std::string& to) {
    add_note(change_text(from, to), base, replaced(base, from, to));
  };
  const auto add_with = [&](const char* base, const std::string& pair) {
    add_note(pair, base, replaced(base, R"("hidden_size": )", pair + R"(, "hidden_size": )"));
  };
  add(kLlamaJson, R"("silu")", R"("relu")");
  add(kQwenJson, R"("rope_scaling": null)",
      R"("rope_scaling": {"rope_type": "dynamic", "factor": 4.0})");
  add_with(kQwenJson, R"("partial_rotary_factor": 0.5)");
  add_with(kGemmaNestedJson, R"("use_bidirectional_attention": true)");
  add_with(kGemmaJson, R"("rope_parameters": {"rope_type": "default"})");
  add_with(kQwenJson, R"("rope_parameters": {"full_attention": {}})");

  CHECK(parse(replaced(kLlamaJson, R"("head_dim": 128)", R"("head_dim": 5)")).unsupported ==
        "head_dim: 5 is odd, but RoPE rotates pairs; allowed: an even number");
  const ModelConfig gelu = parse(replaced(kLlamaJson, R"("silu")", R"("gelu_pytorch_tanh")"));
  CHECK(gelu.activation == Activation::GeluTanh);
  CHECK(gelu.unsupported.empty());
}

TEST_CASE("parts that a config.json adds to a family", "[sim][catalogue]") {
  const auto with = [](const char* base, const std::string& pair) {
    return parse(replaced(base, R"("hidden_size": )", pair + R"(, "hidden_size": )"));
  };
  const ModelConfig biased = parse(replaced(kLlamaJson, R"("attention_bias": false)",
                                            R"("attention_bias": true, "mlp_bias": true)"));
  CHECK(biased.unsupported.empty());
  CHECK(biased.n_params() - parse(kLlamaJson).n_params() ==
        std::int64_t{28} * (3072 + 2 * 1024 + 3072 + 2 * 8192 + 3072));
  CHECK(with(kGemmaJson, R"("attn_logit_softcapping": 50.0)").attention_softcap == 50);
  CHECK(parse(replaced(kGemmaJson, R"("final_logit_softcapping": null)",
                       R"("final_logit_softcapping": 30)"))
            .logit_softcap == 30);
}

TEST_CASE("malformed arithmetic in a config.json", "[sim][catalogue]") {
  Answers answers("catalogue/malformed_arithmetic.txt");
  add_errors(answers, kLlamaJson,
             {{"1e-05", "\"1e-05\""},
              {"1e-05", "0"},
              {"500000.0", "-1"},
              {"500000.0", "true"},
              {"500000.0", "1e400"},
              {"500000.0", "1e300"},
              {R"("factor": 32.0)", R"("factor": 0.5)"},
              {R"("factor": 32.0,)", ""},
              {R"("low_freq_factor": 1.0)", R"("low_freq_factor": 4)"},
              {R"("low_freq_factor": 1.0)", R"("low_freq_factor": 0)"},
              {"8192,\n    \"rope_type\"", "0,\n    \"rope_type\""},
              {"\"llama3\"", "7"},
              {R"("attention_bias": false)", R"("attention_bias": "no")"},
              {"\"silu\"", "[1]"}});
  for (const char* id : {"-1", "1.5", "4294967296", "\"2\"", "[1, -1]", "[[1]]"}) {
    add_errors(answers, kLlamaJson,
               {{R"("eos_token_id": 128001)", R"("eos_token_id": )" + std::string(id)}});
  }
  add_errors(answers, kQwenJson, {{R"("rope_scaling": null)", R"("rope_scaling": 2)"}});
  add_errors(answers, kGemmaJson,
             {{R"("query_pre_attn_scalar": 256)", R"("query_pre_attn_scalar": -8)"},
              {R"("final_logit_softcapping": null)", R"("final_logit_softcapping": "on")"}});
}

TEST_CASE("catalogue files", "[sim][catalogue]") {
  const auto model_error = [](const std::string& yaml) {
    return error_of([&] { parse_models(yaml, "m.yaml"); });
  };
  const std::string entry =
      "tiny:\n"
      "  architecture: LlamaForCausalLM\n"
      "  n_layers: 2\n"
      "  hidden_dim: 64\n"
      "  n_heads: 4\n"
      "  n_kv_heads: 2\n"
      "  head_dim: 16\n"
      "  ffn_dim: 128\n"
      "  vocab_size: 100\n"
      "  max_position_embeddings: 512\n";
  CHECK(parse_models(entry, "m.yaml").front().n_params() ==
        2 * (64 * 8 * 16 + 64 * 64 + 3 * 64 * 128 + 2 * 64) + 2 * 6400 + 64);
  CHECK(contains(model_error(replaced(entry, "ffn_dim", "ffn_dmi")), "m.yaml:8: tiny.ffn_dmi"));
  CHECK(contains(model_error(replaced(entry, "128", "wide")), "m.yaml:8: tiny.ffn_dim"));
  CHECK(contains(model_error(replaced(entry, "  ffn_dim: 128\n", "")), "tiny.ffn_dim: is 0"));
  CHECK(contains(model_error(replaced(entry, "n_kv_heads: 2", "n_kv_heads: 3")),
                 "m.yaml:1: tiny.n_kv_heads: 3 does not divide"));
  CHECK(contains(model_error(""), "m.yaml"));
  CHECK(contains(model_error(entry + "  norm_eps: 0\n"), "m.yaml:1: tiny.norm_eps: is 0; "));
  CHECK(contains(model_error(entry + "  rope_scaling: {factor: 2}\n"),
                 "tiny.rope_scaling.factor: has no meaning without a kind of scaling"));
  CHECK(contains(model_error(entry + "  rope_scaling: {kind: ntk}\n"),
                 "m.yaml:11: tiny.rope_scaling.kind"));
  CHECK(contains(model_error(entry + "  eos_token_ids: [-2]\n"), "tiny.eos_token_ids.0"));
  CHECK(parse_models(entry + "  eos_token_ids: [7, 8]\n", "m.yaml").front().eos_token_ids ==
        std::vector<std::int32_t>{7, 8});
  CHECK(
      contains(parse_models(replaced(entry, "LlamaFor", "OtherFor"), "m.yaml").front().unsupported,
               "architecture: 'OtherForCausalLM' is not supported"));

  const testing::ScratchFolder folder;
  const std::string path = folder.write(
      "gpu.yaml", "mine:\n  peak_flops: 1e14\n  peak_bandwidth: 1e12\n  memory_bytes: 1000000\n");
  const HardwareSpec mine = find_hardware(path, {});
  CHECK(mine.name == "mine");
  CHECK(mine.peak_flops == 1e14);
  CHECK(mine.matmul_efficiency == 1);
  const std::string two =
      folder.write("two.yaml",
                   "a: {peak_flops: 1e14, peak_bandwidth: 1e12, memory_bytes: 1}\n"
                   "b: {peak_flops: 1e14, peak_bandwidth: 1e12, memory_bytes: 1}\n");
  CHECK(contains(error_of([&] { find_hardware(two, somewhere()); }),
                 "scenario.yaml:3: hardware: " + two + " has 2 entries"));
  const std::string missing = folder.write("missing.yaml", "a: {peak_flops: 1e14}\n");
  CHECK(error_of([&] { find_hardware(missing, somewhere()); }) ==
        missing + ":1: a.peak_bandwidth: is missing; allowed: a number above 0");
  const std::string wrong = folder.write(
      "wrong.yaml", "a: {peak_flops: 1e14, peak_bandwidth: 1e12, matmul_efficiency: 1.2}\n");
  CHECK(contains(error_of([&] { find_hardware(wrong, somewhere()); }),
                 wrong + ":1: a.matmul_efficiency"));
}

}  // namespace
}  // namespace metronome::TEST_FILE
