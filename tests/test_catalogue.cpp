#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/model/model_catalogue.h"
#include "sim/hardware_catalogue.h"
#include "sim/roofline.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/scratch_folder.h"

namespace metronome {
namespace {

using testing::error_of;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

SourceLocation somewhere() { return {std::make_shared<const std::string>("scenario.yaml"), 3}; }

TEST_CASE("every model is sound and as large as published", "[sim][catalogue]") {
  // Elements of the checkpoints on Hugging Face. Gemma-3-4B: the language model as keras-hub
  // counts it (gemma3_4b_text), with 64 rows less in its embedding table.
  const std::map<std::string, std::int64_t> published = {
      {"llama-3.2-1b", 1'235'814'400}, {"llama-3.2-3b", 3'212'749'824},
      {"llama-3.1-8b", 8'030'261'248}, {"llama-3.1-70b", 70'553'706'496},
      {"llama-2-7b", 6'738'415'616},   {"qwen3-0.6b", 596'049'920},
      {"qwen3-4b", 4'022'468'096},     {"qwen3-8b", 8'190'735'360},
      {"qwen3-14b", 14'768'307'200},   {"qwen3-32b", 32'762'123'264},
      {"gemma-3-1b", 999'885'952},     {"gemma-3-4b", 3'880'099'328 + 64 * 2560},
  };
  const std::vector<ModelConfig> models = all_models();
  CHECK(models.size() == published.size());
  for (const ModelConfig& model : models) {
    INFO(model.name);
    CHECK(model.shape_error().empty());
    REQUIRE(published.count(model.name) == 1);
    CHECK(model.n_params() == published.at(model.name));
    CHECK(find_model(model.name, {}) == model);
  }
}

TEST_CASE("every GPU is sound", "[sim][catalogue]") {
  std::vector<std::string> names;
  const ModelConfig model = find_model("llama-3.2-3b", {});
  for (const HardwareSpec& hardware : all_hardware()) {
    INFO(hardware.name);
    names.push_back(hardware.name);
    CHECK(find_hardware(hardware.name, {}) == hardware);
    CHECK(hardware.peak_flops >= 100e12);
    CHECK(hardware.peak_flops <= 1000e12);
    CHECK(hardware.peak_bandwidth >= 800e9);
    CHECK(hardware.peak_bandwidth <= 5e12);
    CHECK(hardware.memory_bytes >= std::int64_t{15} << 30);
    CHECK(hardware.memory_bytes <= std::int64_t{141'000'000'000 * 17 / 16});
    for (const double efficiency : {hardware.matmul_efficiency, hardware.attention_efficiency,
                                    hardware.bandwidth_efficiency}) {
      CHECK(efficiency > 0.3);
      CHECK(efficiency < 1);
    }
    CHECK(hardware.link_bandwidth > 0);
    CHECK(hardware.allreduce_latency_us > 0);
    CHECK(hardware.host_gap_us > 0);
    CHECK(RooflineCostModel(model, hardware, {}).kv_capacity_blocks(16) > 1000);
  }
  CHECK(names == std::vector<std::string>{"h200", "h100-sxm", "a100-80gb", "l40s", "rtx-4090",
                                          "rtx-5080", "rtx-pro-6000"});
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
      // one 8192 in, 512 out.
      {"h100-sxm", "qwen3-8b", 1, 640, 6.86},
      {"h100-sxm", "qwen3-8b", 16, 640, 7.53},
      {"h100-sxm", "qwen3-8b", 64, 640, 9.49},
      {"h100-sxm", "qwen3-8b", 128, 640, 12.0},
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
    const double ms = to_ms(cost_model.step_cost(plan).total_ns + cost_model.host_gap_ns());
    CHECK(ms == Approx(run.ms).epsilon(0.07));
  }
}

TEST_CASE("unknown names", "[sim][catalogue]") {
  const std::string model = error_of([] { find_model("lama-3.2-3b", somewhere()); });
  CHECK(
      model.starts_with("scenario.yaml:3: model: unknown name 'lama-3.2-3b' "
                        "(did you mean 'llama-3.2-3b'?); allowed: llama-3.2-1b, "));
  CHECK(contains(model, "gemma-3-4b, or the path of a config.json"));
  CHECK(!contains(error_of([] { find_model("gpt-4", somewhere()); }), "did you mean"));

  const std::string hardware = error_of([] { find_hardware("h-200", somewhere()); });
  CHECK(
      hardware.starts_with("scenario.yaml:3: hardware: unknown name 'h-200' "
                           "(did you mean 'h200'?); allowed: h200, h100-sxm, "));
  CHECK(contains(hardware, "rtx-pro-6000, or the path of a YAML file"));
  CHECK(contains(error_of([] { find_model("", somewhere()); }), "unknown name ''"));
  CHECK(error_of([] {
          find_model("./nope/config.json", somewhere());
        }).starts_with("scenario.yaml:3: model: no such file: ./nope/config.json; allowed: "));
  CHECK(error_of([] {
          find_hardware("nope.yaml", somewhere());
        }).starts_with("scenario.yaml:3: hardware: no such file: nope.yaml; allowed: "));
  CHECK(error_of([] {
          find_hardware(".", somewhere());
        }).starts_with("scenario.yaml:3: hardware: . is a folder; allowed: "));
}

const char* const kLlamaJson = R"({
  "architectures": ["LlamaForCausalLM"],
  "attention_bias": false,
  "head_dim": 128,
  "hidden_size": 3072,
  "intermediate_size": 8192,
  "max_position_embeddings": 131072,
  "num_attention_heads": 24,
  "num_hidden_layers": 28,
  "num_key_value_heads": 8,
  "rope_scaling": {"factor": 32.0, "rope_type": "llama3"},
  "rope_theta": 500000.0,
  "tie_word_embeddings": true,
  "torch_dtype": "bfloat16",
  "vocab_size": 128256
})";

const char* const kQwenJson = R"({
  "architectures": ["Qwen3ForCausalLM"],
  "head_dim": 128,
  "hidden_size": 4096,
  "intermediate_size": 12288,
  "max_position_embeddings": 40960,
  "num_attention_heads": 32,
  "num_hidden_layers": 36,
  "num_key_value_heads": 8,
  "rope_scaling": null,
  "sliding_window": null,
  "tie_word_embeddings": false,
  "torch_dtype": "bfloat16",
  "use_sliding_window": false,
  "vocab_size": 151936
})";

const char* const kGemmaJson = R"({
  "architectures": ["Gemma3ForCausalLM"],
  "head_dim": 256,
  "hidden_size": 1152,
  "intermediate_size": 6912,
  "max_position_embeddings": 32768,
  "num_attention_heads": 4,
  "num_hidden_layers": 26,
  "num_key_value_heads": 1,
  "query_pre_attn_scalar": 256,
  "sliding_window": 512,
  "sliding_window_pattern": 6,
  "torch_dtype": "bfloat16",
  "vocab_size": 262144
})";

// As published: what equals the architecture's defaults is left out.
const char* const kGemmaNestedJson = R"({
  "architectures": ["Gemma3ForConditionalGeneration"],
  "text_config": {
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "model_type": "gemma3_text",
    "num_hidden_layers": 34,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "sliding_window": 1024
  },
  "torch_dtype": "bfloat16",
  "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27}
})";

// Llama 2 has no head_dim and, in its first files, no num_key_value_heads.
const char* const kLlama2Json = R"({
  "architectures": ["LlamaForCausalLM"],
  "hidden_size": 4096,
  "intermediate_size": 11008,
  "max_position_embeddings": 4096,
  "num_attention_heads": 32,
  "num_hidden_layers": 32,
  "tie_word_embeddings": false,
  "torch_dtype": "float16",
  "vocab_size": 32000
})";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

ModelConfig parse(const std::string& json) {
  return parse_hugging_face_config(json, "config.json", "parsed");
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
  CHECK(contains(error_of([&] {
                   parse(with_types(list({s, f, s, s, f, s})));
                 }),
                 "config.json: layer_types: entry 3 is \"sliding_attention\" and breaks"));
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
                 "scenario.yaml:3: model: cannot read " + folder.path() + "/config.json"));
  const std::string empty = folder.write("empty/config.json", "");
  CHECK(error_of([&] { find_model(empty, somewhere()); }).starts_with(empty + ":1: is not JSON"));
}

TEST_CASE("malformed config.json", "[sim][catalogue]") {
  const auto error_with = [](const std::string& from, const std::string& to) {
    return error_of([&] { parse(replaced(kLlamaJson, from, to)); });
  };
  CHECK(error_with(R"("hidden_size": 3072,)", "") ==
        "config.json: hidden_size: is missing; allowed: an integer");
  CHECK(error_with("3072", "\"3072\"") ==
        "config.json: hidden_size: must be an integer, got \"3072\"; allowed: 0 to 2^40");
  CHECK(contains(error_with("3072", "3072.5"), "hidden_size: must be an integer, got 3072.5"));
  CHECK(contains(error_with("3072", "-1"), "hidden_size: must be an integer, got -1"));
  CHECK(contains(error_with("3072", "99999999999999999999"), "hidden_size: must be an integer"));
  CHECK(contains(error_with("3072", "9999999999999999999"), "hidden_size: must be an integer"));
  CHECK(contains(error_with("3072", "1e999"), "config.json: has a number too large"));
  CHECK(contains(error_with("3072", "0"), "config.json: hidden_dim: is 0; allowed: 1 to "));
  CHECK(contains(error_with("\"num_key_value_heads\": 8", "\"num_key_value_heads\": 7"),
                 "n_kv_heads: 7 does not divide n_heads 24"));
  CHECK(contains(error_with("\"num_key_value_heads\": 8", "\"num_key_value_heads\": 0"),
                 "n_kv_heads: is 0"));
  CHECK(contains(error_with("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": 1"),
                 "tie_word_embeddings: must be true or false, got 1"));
  CHECK(contains(error_with("bfloat16", "float8"), "torch_dtype: \"float8\" is not supported"));
  CHECK(contains(error_with("\"attention_bias\": false", "\"quantization_config\": {}"),
                 "quantization_config: quantised weights are not supported"));
  const std::string unknown = error_with("LlamaForCausalLM", "GPT2LMHeadModel");
  CHECK(contains(unknown, "architectures: \"GPT2LMHeadModel\" is not supported; allowed: "));
  CHECK(contains(unknown,
                 "LlamaForCausalLM, MistralForCausalLM, Qwen3ForCausalLM, "
                 "Gemma3ForCausalLM, Gemma3ForConditionalGeneration"));
  CHECK(contains(error_with("[\"LlamaForCausalLM\"]", "[]"), "architectures: must be a list"));
  CHECK(contains(error_with("\"architectures\": [\"LlamaForCausalLM\"],", ""),
                 "architectures: is missing; allowed: LlamaForCausalLM"));
  CHECK(error_with("3072,", "3072") ==
        "config.json:6: is not JSON; allowed: the config.json of a model");
  CHECK(contains(error_of([] { parse("[1, 2]"); }), "config.json: must be an object"));
  CHECK(contains(error_of([] { parse(replaced(kGemmaNestedJson, "\"hidden_size\": 2560,", "")); }),
                 "config.json: text_config.hidden_size: is missing"));
  CHECK(
      contains(error_of([] { parse(R"({"architectures": ["Gemma3ForConditionalGeneration"]})"); }),
               "config.json: text_config: is missing"));
  CHECK(contains(error_of([] {
                   parse(replaced(kQwenJson, "\"use_sliding_window\": false",
                                  "\"use_sliding_window\": true"));
                 }),
                 "use_sliding_window: true is not supported"));
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
}  // namespace metronome
