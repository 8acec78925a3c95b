// SPDX-License-Identifier: Apache-2.0
// Which tensors a model has, reading them from a folder, and drawing them from a seed.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/model/model_catalogue.h"
#include "core/model/model_family.h"
#include "models/weights/float16.h"
#include "models/weights/model_weights.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/models/weights/safetensors_bytes.h"
#include "tests/scratch_folder.h"

namespace metronome::TEST_FILE {
namespace {

using namespace metronome::testing;

// Two layers, and every dimension of another size.
ModelConfig small_llama() {
  ModelConfig model;
  model.name = "small";
  model.architecture = "LlamaForCausalLM";
  model.n_layers = 2;
  model.hidden_dim = 6;
  model.n_heads = 4;
  model.n_kv_heads = 2;
  model.head_dim = 2;
  model.ffn_dim = 5;
  model.vocab_size = 7;
  model.max_position_embeddings = 64;
  return model;
}

ModelConfig small_gemma() {
  ModelConfig model = small_llama();
  model.architecture = "Gemma3ForConditionalGeneration";
  model.has_tied_embeddings = model.has_qk_norm = model.has_post_norms = true;
  model.has_unit_offset_norms = true;
  return model;
}

struct Stored {
  std::string dtype = "F32";
  std::string shape;
  std::string data;
};
using Tensors = std::map<std::string, Stored>;  // by name, as they are stored

std::string float_bytes(float value) {
  return little_endian(std::bit_cast<std::uint32_t>(value), 4);
}

// Element i of the n-th tensor is 100 n + i.
Tensors numbered_tensors(const ModelConfig& model) {
  Tensors tensors;
  int n = 0;
  for (const WeightSpec& spec : weight_specs(model)) {
    Stored stored;
    stored.shape = "[" + std::to_string(spec.rows) + "," + std::to_string(spec.cols) + "]";
    if (spec.role == WeightRole::Norm) stored.shape = "[" + std::to_string(spec.cols) + "]";
    for (std::int64_t i = 0; i < spec.rows * spec.cols; ++i) {
      stored.data += float_bytes(static_cast<float>(100 * n + i));
    }
    tensors[spec.name] = stored;
    ++n;
  }
  return tensors;
}

std::string file_of(const Tensors& tensors) {
  std::string header;
  std::string data;
  for (const auto& [name, stored] : tensors) {
    header += header.empty() ? "{" : ",";
    const std::size_t begin = data.size();
    data += stored.data;
    header += header_entry(name, stored.dtype, stored.shape, begin, data.size());
  }
  return safetensors_bytes(header + "}", data);
}

std::vector<float> read_all(const WeightSource& source, const WeightSpec& spec) {
  std::vector<float> values(static_cast<std::size_t>(spec.rows * spec.cols));
  source.read(spec, 0, spec.rows, values.data());
  return values;
}

std::vector<std::string> names_of(const std::vector<WeightSpec>& specs) {
  std::vector<std::string> names;
  for (const WeightSpec& spec : specs) names.push_back(spec.name);
  return names;
}

// The error of a folder of one file of these tensors.
std::string folder_error(const ModelConfig& model, const Tensors& tensors) {
  const ScratchFolder folder;
  folder.write("model.safetensors", file_of(tensors));
  const std::string error = error_of([&] { open_model_folder(folder.path(), model); });
  if (error.empty()) return "";
  REQUIRE(error.starts_with(folder.path() + "/"));
  return error.substr(folder.path().size() + 1);
}

TEST_CASE("the tensors of a Llama, by hand", "[core][weights]") {
  constexpr WeightRole kLinear = WeightRole::Linear;
  constexpr WeightRole kNorm = WeightRole::Norm;
  ModelConfig model = small_llama();
  model.n_layers = 1;
  const std::string layer = "model.layers.0.";
  const std::vector<WeightSpec> expected = {
      {"model.embed_tokens.weight", 7, 6, WeightRole::Embedding},
      {layer + "input_layernorm.weight", 1, 6, kNorm},
      {layer + "self_attn.q_proj.weight", 8, 6, kLinear},
      {layer + "self_attn.k_proj.weight", 4, 6, kLinear},
      {layer + "self_attn.v_proj.weight", 4, 6, kLinear},
      {layer + "self_attn.o_proj.weight", 6, 8, kLinear},
      {layer + "post_attention_layernorm.weight", 1, 6, kNorm},
      {layer + "mlp.gate_proj.weight", 5, 6, kLinear},
      {layer + "mlp.up_proj.weight", 5, 6, kLinear},
      {layer + "mlp.down_proj.weight", 6, 5, kLinear},
      {"model.norm.weight", 1, 6, kNorm},
      {"lm_head.weight", 7, 6, kLinear},
  };
  CHECK(weight_specs(model) == expected);
  model.architecture = "MistralForCausalLM";
  CHECK(weight_specs(model) == expected);
  model.has_tied_embeddings = true;
  CHECK(weight_specs(model) == std::vector<WeightSpec>(expected.begin(), expected.end() - 1));
}

TEST_CASE("what Qwen 3 and Gemma 3 add", "[core][weights]") {
  ModelConfig model = small_llama();
  model.n_layers = 1;
  const std::vector<std::string> llama = names_of(weight_specs(model));
  const auto added = [&llama](const ModelConfig& other) {
    std::vector<std::string> names;
    for (const std::string& name : names_of(weight_specs(other))) {
      if (std::find(llama.begin(), llama.end(), name) == llama.end()) names.push_back(name);
    }
    return names;
  };
  model.has_qk_norm = true;
  CHECK(added(model) == std::vector<std::string>{"model.layers.0.self_attn.q_norm.weight",
                                                 "model.layers.0.self_attn.k_norm.weight"});
  CHECK(weight_spec(model, 0, "self_attn.k_norm") ==
        WeightSpec{"model.layers.0.self_attn.k_norm.weight", 1, 2, WeightRole::Norm});
  model.has_post_norms = true;
  CHECK(added(model) ==
        std::vector<std::string>{"model.layers.0.self_attn.q_norm.weight",
                                 "model.layers.0.self_attn.k_norm.weight",
                                 "model.layers.0.pre_feedforward_layernorm.weight",
                                 "model.layers.0.post_feedforward_layernorm.weight"});
}

TEST_CASE("a model's tensors have as many elements as it has parameters", "[core][weights]") {
  const std::vector<ModelConfig> models = all_models();
  REQUIRE(models.size() >= 10);
  for (const ModelConfig& model : models) {
    if (find_family(model.architecture) == nullptr) continue;  // nothing computes it
    INFO(model.name);
    std::int64_t num_elements = 0;
    std::vector<std::string> names;
    for (const WeightSpec& spec : weight_specs(model)) {
      num_elements += spec.rows * spec.cols;
      names.push_back(spec.name);
    }
    CHECK(num_elements == model.n_params() - model.tower_params);
    std::sort(names.begin(), names.end());
    CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  }
}

TEST_CASE("one tensor by its name", "[core][weights]") {
  const ModelConfig model = small_llama();
  CHECK(weight_spec(model, 1, "mlp.up_proj") ==
        WeightSpec{"model.layers.1.mlp.up_proj.weight", 5, 6, WeightRole::Linear});
  CHECK(weight_spec(model, -1, "model.norm").name == "model.norm.weight");
  CHECK(weight_spec(model, -1, "lm_head").rows == 7);
  CHECK(weight_spec(model, -1, "model.embed_tokens").role == WeightRole::Embedding);
  CHECK_THROWS_AS(weight_spec(model, 2, "mlp.up_proj"), InvariantError);
  CHECK_THROWS_AS(weight_spec(model, 0, "lm_head"), InvariantError);
  CHECK_THROWS_AS(weight_spec(model, -1, "mlp.up_proj"), InvariantError);
  CHECK_THROWS_AS(weight_spec(small_gemma(), -1, "lm_head"), InvariantError);
}

TEST_CASE("a folder of one file", "[core][weights]") {
  const ModelConfig model = small_llama();
  Tensors tensors = numbered_tensors(model);
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {"I64", "[1]", std::string(8, 'x')};
  const ScratchFolder folder;
  folder.write("model.safetensors", file_of(tensors));
  const auto source = open_model_folder(folder.path(), model);
  float n = 0;
  for (const WeightSpec& spec : weight_specs(model)) {
    INFO(spec.name);
    CHECK(source->type(spec) == TensorType::Float32);
    const std::vector<float> values = read_all(*source, spec);
    for (std::size_t i = 0; i < values.size(); ++i) {
      REQUIRE(values[i] == n + static_cast<float>(i));
    }
    n += 100;
  }
  // Rows 1 and 2 of a tensor, and nothing else.
  const WeightSpec spec = weight_spec(model, 0, "mlp.down_proj");
  std::vector<float> rows(12, -1.0f);
  source->read(spec, 1, 3, rows.data() + 1);
  const float first = read_all(*source, spec)[5];
  for (int i = 0; i < 10; ++i) {
    CHECK(rows[static_cast<std::size_t>(i) + 1] == first + static_cast<float>(i));
  }
  CHECK(rows.front() == -1.0f);
  CHECK(rows.back() == -1.0f);
  source->read(spec, 2, 2, nullptr);
  CHECK_THROWS_AS(source->read(spec, 0, 7, rows.data()), InvariantError);
  CHECK_THROWS_AS(source->read(spec, -1, 0, rows.data()), InvariantError);
  CHECK_THROWS_AS(source->type({"model.other.weight", 1, 1, WeightRole::Linear}), InvariantError);
}

TEST_CASE("halves and bfloat16 are read exactly, at odd addresses too", "[core][weights]") {
  const ModelConfig model = small_llama();
  Tensors tensors = numbered_tensors(model);
  const WeightSpec spec = weight_spec(model, -1, "model.norm");
  struct Case {
    const char* dtype;
    TensorType type;
    std::uint64_t bits[6];
  };
  const Case cases[] = {
      {"F16", TensorType::Float16, {0x3c00, 0xc000, 0x0001, 0x7bff, 0x8000, 0x3555}},
      {"BF16", TensorType::BFloat16, {0x3f80, 0xc000, 0x3380, 0x477f, 0x8000, 0x3eab}},
      {"F32",
       TensorType::Float32,
       {0x3f800000, 0xc0000000, 0x33800000, 0x477fe000, 0x80000000, 0x3eaaa000}}};
  const std::vector<float> expected[] = {{1.0f, -2.0f, 0x1p-24f, 65504.0f, -0.0f, 0x1.554p-2f},
                                         {1.0f, -2.0f, 0x1p-24f, 65280.0f, -0.0f, 0x1.56p-2f},
                                         {1.0f, -2.0f, 0x1p-24f, 65504.0f, -0.0f, 0x1.554p-2f}};
  for (std::size_t c = 0; c < std::size(cases); ++c) {
    for (std::size_t shift = 0; shift < 4; ++shift) {
      INFO(cases[c].dtype << ", " << shift << " bytes further");
      Stored& stored = tensors["model.norm.weight"];
      stored = {cases[c].dtype, "[6]", ""};
      for (const std::uint64_t bits : cases[c].bits) {
        stored.data += little_endian(bits, cases[c].type == TensorType::Float32 ? 4 : 2);
      }
      tensors["a"] = {"U8", "[" + std::to_string(shift) + "]", std::string(shift, 'x')};
      const ScratchFolder folder;
      folder.write("model.safetensors", file_of(tensors));
      const auto source = open_model_folder(folder.path(), model);
      CHECK(source->type(spec) == cases[c].type);
      const std::vector<float> values = read_all(*source, spec);
      CHECK(values == expected[c]);
      CHECK(std::signbit(values[4]));
    }
  }
}

TEST_CASE("tensors that do not fit the model", "[core][weights]") {
  const ModelConfig model = small_llama();
  const Tensors sound = numbered_tensors(model);
  CHECK(folder_error(model, sound) == "");

  Tensors tensors = sound;
  tensors.erase("model.layers.1.mlp.up_proj.weight");
  CHECK(folder_error(model, tensors) ==
        "model.safetensors: tensor 'model.layers.1.mlp.up_proj.weight': is missing; allowed: "
        "every tensor of LlamaForCausalLM");

  tensors = sound;
  std::swap(tensors["model.layers.0.mlp.up_proj.weight"],
            tensors["model.layers.0.mlp.down_proj.weight"]);
  CHECK(folder_error(model, tensors) ==
        "model.safetensors: tensor 'model.layers.0.mlp.up_proj.weight': has shape [6, 5]; "
        "allowed: [5, 6], as config.json requires for LlamaForCausalLM");

  tensors = sound;
  tensors["model.norm.weight"].shape = "[1,6]";
  CHECK(folder_error(model, tensors) ==
        "model.safetensors: tensor 'model.norm.weight': has shape [1, 6]; allowed: [6], as "
        "config.json requires for LlamaForCausalLM");

  tensors = sound;
  tensors["model.norm.weight"] = {"I32", "[6]", std::string(24, '\0')};
  CHECK(folder_error(model, tensors) ==
        "model.safetensors: tensor 'model.norm.weight': has dtype I32; allowed: F32, F16, BF16");
}

TEST_CASE("the output head is required unless it is tied", "[core][weights]") {
  ModelConfig model = small_llama();
  Tensors tensors = numbered_tensors(model);
  model.has_tied_embeddings = true;
  CHECK(folder_error(model, tensors) == "");  // one that is there is ignored
  tensors["lm_head.weight"] = {"I8", "[1]", "x"};
  CHECK(folder_error(model, tensors) == "");
  tensors.erase("lm_head.weight");
  CHECK(folder_error(model, tensors) == "");
  model.has_tied_embeddings = false;
  CHECK(folder_error(model, tensors) ==
        "model.safetensors: tensor 'lm_head.weight': is missing; allowed: every tensor of "
        "LlamaForCausalLM, or tie_word_embeddings in config.json");
}

TEST_CASE("the prefixes of Gemma 3's multimodal files", "[core][weights]") {
  const Tensors plain = numbered_tensors(small_gemma());
  const auto with_prefix = [&plain](const std::string& old, const std::string& replacement) {
    Tensors tensors = {{"vision_tower.x", {"F32", "[0]", ""}}};
    for (const auto& [name, stored] : plain) {
      REQUIRE(name.starts_with(old));
      tensors[replacement + name.substr(old.size())] = stored;
    }
    return tensors;
  };
  const ModelConfig gemma = small_gemma();
  CHECK(folder_error(gemma, plain) == "");
  CHECK(folder_error(gemma, with_prefix("model.", "language_model.model.")) == "");
  CHECK(folder_error(gemma, with_prefix("model.", "model.language_model.")) == "");
  CHECK(folder_error(gemma, with_prefix("model.", "other."))
            .starts_with("model.safetensors: tensor 'model.embed_tokens.weight': is missing"));
  // Where the head is a tensor of its own, the older names prefix it as well.
  ModelConfig untied = gemma;
  untied.has_tied_embeddings = false;
  Tensors tensors = with_prefix("model.", "language_model.model.");
  tensors["language_model.lm_head.weight"] = plain.at("model.embed_tokens.weight");
  CHECK(folder_error(untied, tensors) == "");
  // Other models have no such names.
  ModelConfig llama = gemma;
  llama.architecture = "LlamaForCausalLM";
  CHECK_FALSE(folder_error(llama, with_prefix("model.", "language_model.model.")).empty());

  const ScratchFolder folder;
  folder.write("model.safetensors", file_of(with_prefix("model.", "model.language_model.")));
  const auto source = open_model_folder(folder.path(), gemma);
  const WeightSpec spec = weight_spec(gemma, 0, "self_attn.q_norm");
  CHECK(read_all(*source, spec) == std::vector<float>{500.0f, 501.0f});
}

// Tensors whose name has "layers.1." are in the second of two files.
struct Shards {
  Tensors first;
  Tensors second;
  std::map<std::string, std::string> files;

  explicit Shards(const ModelConfig& model) {
    for (const auto& [name, stored] : numbered_tensors(model)) {
      const bool is_second = name.find("layers.1.") != std::string::npos;
      (is_second ? second : first)[name] = stored;
      files[name] = is_second ? "m-2.safetensors" : "m-1.safetensors";
    }
  }
  std::string index() const {
    std::string map;
    for (const auto& [name, file] : files) {
      map.append(map.empty() ? "\"" : ",\"").append(name).append("\":\"").append(file).append("\"");
    }
    return R"({"metadata":{"total_size":1},"weight_map":{)" + map + "}}";
  }
  void write(const ScratchFolder& folder) const {
    folder.write("m-1.safetensors", file_of(first));
    folder.write("m-2.safetensors", file_of(second));
    folder.write("model.safetensors.index.json", index());
  }
};

std::string shards_error(const ModelConfig& model, const Shards& shards,
                         const std::string& absent_file = "") {
  const ScratchFolder folder;
  shards.write(folder);
  if (!absent_file.empty()) std::filesystem::remove(folder.path() + "/" + absent_file);
  const std::string error = error_of([&] { open_model_folder(folder.path(), model); });
  return error.empty() ? error : error.substr(folder.path().size() + 1);
}

TEST_CASE("a folder of several files and an index", "[core][weights]") {
  const ModelConfig model = small_llama();
  const Shards sound(model);
  CHECK(shards_error(model, sound) == "");
  {
    const ScratchFolder folder;
    sound.write(folder);
    const auto source = open_model_folder(folder.path(), model);
    const WeightSpec spec = weight_spec(model, 1, "input_layernorm");
    CHECK(read_all(*source, spec)[1] == 1001.0f);  // tensor 10 of weight_specs
    // As transformers does, one file wins over an index.
    Tensors one_file = numbered_tensors(model);
    one_file[spec.name].data.replace(4, 4, float_bytes(-1.0f));
    folder.write("model.safetensors", file_of(one_file));
    CHECK(read_all(*open_model_folder(folder.path(), model), spec)[1] == -1.0f);
  }

  CHECK(shards_error(model, sound, "m-2.safetensors") ==
        "model.safetensors.index.json: tensor 'model.layers.1.input_layernorm.weight': is in "
        "m-2.safetensors, which is missing; allowed: a folder with all files of the index");

  Shards shards = sound;
  shards.first.erase("model.norm.weight");
  CHECK(shards_error(model, shards) ==
        "model.safetensors.index.json: tensor 'model.norm.weight': is not in m-1.safetensors; "
        "allowed: every tensor of LlamaForCausalLM");

  shards = sound;  // in a file, but not in the index
  shards.files.erase("model.norm.weight");
  CHECK(shards_error(model, shards) ==
        "model.safetensors.index.json: tensor 'model.norm.weight': is missing; allowed: every "
        "tensor of LlamaForCausalLM");

  shards = sound;
  shards.first["unused"] = {"I8", "[1]", "x"};
  CHECK(shards_error(model, shards) == "");

  shards = sound;
  shards.files.clear();
  CHECK(shards_error(model, shards)
            .starts_with("model.safetensors.index.json: tensor 'model.embed_tokens.weight': is "
                         "missing; "));

  shards = sound;
  shards.files["model.norm.weight"] = "../m-1.safetensors";
  CHECK(shards_error(model, shards)
            .starts_with("model.safetensors.index.json: tensor 'model.norm.weight': cannot be in "
                         "\"../m-1.safetensors\"; "));

  shards = sound;
  shards.second["model.layers.1.mlp.up_proj.weight"].shape = "[6,5]";
  CHECK(shards_error(model, shards)
            .starts_with("m-2.safetensors: tensor 'model.layers.1.mlp.up_proj.weight': has shape"));
}

TEST_CASE("folders without weights that can be read", "[core][weights]") {
  const ModelConfig model = small_llama();
  const ScratchFolder folder;
  const auto error = [&] { return error_of([&] { open_model_folder(folder.path(), model); }); };
  const std::string allowed =
      "; allowed: model.safetensors, or model.safetensors.index.json and the files that it names";
  CHECK(error() == folder.path() + ": has no weights" + allowed);
  folder.write("pytorch_model.bin", "x");
  CHECK(error() == folder.path() +
                       ": has weights only as pytorch_model.bin, which is not supported" + allowed);
  folder.write("model.safetensors", "");
  CHECK(error().starts_with(folder.path() + "/model.safetensors: is empty; "));
  const std::string absent = folder.path() + "/absent";
  CHECK(error_of([&] { open_model_folder(absent, model); }) ==
        absent + ": is not a folder; allowed: the folder of a model");
}

// Golden values: worked out by a separate program from the definition in the header.
TEST_CASE("random weights are what the definition says", "[core][weights]") {
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  const std::uint64_t key = random_weight_key(7, name);
  CHECK(key == 0xe8fb1ba4ec220adfull);
  CHECK(random_weight_key(0, "lm_head.weight") == 0x91b2bcb3e8b513f9ull);
  CHECK(random_weight_key(1, "lm_head.weight") == 0x0d1cb3c4cc61775aull);
  CHECK(random_weight_key(7, "model.embed_tokens.weight") == 0x3252413063c52228ull);

  CHECK(random_weight_scale(3) == 1.0f);
  CHECK(random_weight_scale(48) == 0.25f);
  CHECK(random_weight_scale(64) == 0x1.bb67aep-3f);

  const float scale = random_weight_scale(64);
  CHECK(random_weight(key, 0, scale) == -0x1.768f32p-4f);
  CHECK(random_weight(key, 1, scale) == -0x1.dde72ap-4f);
  CHECK(random_weight(key, 2, scale) == 0x1.2c8500p-3f);
  CHECK(random_weight(key, 1000, scale) == -0x1.366314p-3f);
  CHECK(random_weight(key, (1ull << 40) + 5, scale) == 0x1.64f8d6p-3f);

  ModelConfig model = small_llama();
  model.hidden_dim = 64;
  model.n_heads = 32;
  const WeightSpec spec = weight_spec(model, 0, "self_attn.q_proj");
  REQUIRE(spec.cols == 64);
  const auto half = random_weights(model, 7);
  CHECK(half->type(spec) == TensorType::BFloat16);
  const std::vector<float> halves = read_all(*half, spec);
  CHECK(halves[0] == float_of_bf16(0xbdbb));
  CHECK(halves[1] == float_of_bf16(0xbdef));
  CHECK(halves[2] == float_of_bf16(0x3e16));
  CHECK(halves[1000] == float_of_bf16(0xbe1b));
  model.bytes_per_weight = 4;
  const auto full = random_weights(model, 7);
  CHECK(full->type(spec) == TensorType::Float32);
  CHECK(read_all(*full, spec)[1000] == -0x1.366314p-3f);
}

TEST_CASE("random weights do not depend on what is read with them", "[core][weights]") {
  const ModelConfig model = small_llama();
  const auto source = random_weights(model, 3);
  for (const WeightSpec& spec : weight_specs(model)) {
    INFO(spec.name);
    const std::vector<float> whole = read_all(*source, spec);
    for (std::int64_t begin = 0; begin <= spec.rows; ++begin) {
      std::vector<float> rest(whole.begin() + begin * spec.cols, whole.end());
      std::vector<float> read(rest.size());
      source->read(spec, begin, spec.rows, read.data());
      CHECK(read == rest);
    }
  }
  const WeightSpec spec = weight_spec(model, 0, "mlp.up_proj");
  CHECK(read_all(*source, spec) == read_all(*random_weights(model, 3), spec));
  CHECK(read_all(*source, spec) != read_all(*random_weights(model, 4), spec));
  CHECK(read_all(*source, spec) != read_all(*source, weight_spec(model, 1, "mlp.up_proj")));
  CHECK_THROWS_AS(source->read(spec, 0, spec.rows + 1, nullptr), InvariantError);
}

TEST_CASE("random norms scale by one", "[core][weights]") {
  ModelConfig model = small_llama();
  const WeightSpec spec = weight_spec(model, -1, "model.norm");
  CHECK(read_all(*random_weights(model, 3), spec) == std::vector<float>(6, 1.0f));
  model.has_unit_offset_norms = true;
  CHECK(read_all(*random_weights(model, 3), spec) == std::vector<float>(6, 0.0f));
}

// A million draws. A mean of n uniform draws of variance v has a standard error of sqrt(v / n); the
// bounds are five of them. Fixed seeds: nothing here varies.
TEST_CASE("random weights are uniform with variance 1 / inputs", "[core][weights]") {
  constexpr int kInputs = 1000;
  const float scale = random_weight_scale(kInputs);
  for (const std::uint64_t seed : {0ull, 1ull, 12345ull}) {
    INFO("seed " << seed);
    const std::uint64_t key = random_weight_key(seed, "lm_head.weight");
    constexpr int kDraws = 1'000'000;
    constexpr int kBins = 16;
    std::vector<int> counts(kBins);
    double sum = 0;
    double squares = 0;
    double neighbours = 0;
    double previous = 0;
    bool is_in_range = true;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      const double drawn = static_cast<double>(random_weight(key, i, scale)) / scale;
      is_in_range = is_in_range && drawn >= -1.0 && drawn < 1.0;
      sum += drawn;
      squares += drawn * drawn;
      neighbours += drawn * previous;
      previous = drawn;
      ++counts.at(static_cast<std::size_t>((drawn + 1) * kBins / 2));
    }
    CHECK(is_in_range);
    CHECK(std::abs(sum / kDraws) < 5 * std::sqrt(1.0 / 3 / kDraws));
    CHECK(std::abs(squares / kDraws - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / kDraws));
    CHECK(std::abs(neighbours / kDraws) < 5 * std::sqrt(1.0 / 9 / kDraws));
    const double expected = static_cast<double>(kDraws) / kBins;
    for (const int count : counts) CHECK(std::abs(count - expected) < 5 * std::sqrt(expected));
    // Uniform in [-scale, scale) has variance scale^2 / 3.
    CHECK(scale * scale / 3 * kInputs == Approx(1.0).epsilon(1e-6));
  }
}

}  // namespace
}  // namespace metronome::TEST_FILE
