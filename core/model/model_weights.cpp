// The tensors of a model, and a reader for model folders.
#include "core/model/model_weights.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/names.h"
#include "core/model/float16.h"

namespace metronome {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

WeightSpec linear(const std::string& name, std::int64_t rows, std::int64_t cols) {
  return {name + ".weight", rows, cols, WeightRole::Linear};
}

WeightSpec norm(const std::string& name, std::int64_t cols) {
  return {name + ".weight", 1, cols, WeightRole::Norm};
}

WeightSpec embedding(const ModelConfig& model) {
  return {"model.embed_tokens.weight", model.vocab_size, model.hidden_dim, WeightRole::Embedding};
}

std::string layer_prefix(std::int64_t layer) {
  return "model.layers." + std::to_string(layer) + ".";
}

std::vector<WeightSpec> layer_specs(const ModelConfig& model, std::int64_t layer) {
  const std::string prefix = layer_prefix(layer);
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  const std::int64_t hidden = model.hidden_dim;
  const std::int64_t query = model.n_heads * model.head_dim;
  const std::int64_t key = model.n_kv_heads * model.head_dim;
  std::vector<WeightSpec> specs = {
      norm(prefix + "input_layernorm", hidden),
      linear(attention + "q_proj", query, hidden),
      linear(attention + "k_proj", key, hidden),
      linear(attention + "v_proj", key, hidden),
  };
  if (model.has_qk_norm) {
    specs.push_back(norm(attention + "q_norm", model.head_dim));
    specs.push_back(norm(attention + "k_norm", model.head_dim));
  }
  specs.push_back(linear(attention + "o_proj", hidden, query));
  specs.push_back(norm(prefix + "post_attention_layernorm", hidden));
  if (model.has_post_norms) specs.push_back(norm(prefix + "pre_feedforward_layernorm", hidden));
  specs.push_back(linear(mlp + "gate_proj", model.ffn_dim, hidden));
  specs.push_back(linear(mlp + "up_proj", model.ffn_dim, hidden));
  specs.push_back(linear(mlp + "down_proj", hidden, model.ffn_dim));
  if (model.has_post_norms) specs.push_back(norm(prefix + "post_feedforward_layernorm", hidden));
  return specs;
}

// The tensors after the layers.
std::vector<WeightSpec> output_specs(const ModelConfig& model) {
  std::vector<WeightSpec> specs = {norm("model.norm", model.hidden_dim)};
  if (!model.has_tied_embeddings) {
    specs.push_back(linear("lm_head", model.vocab_size, model.hidden_dim));
  }
  return specs;
}

[[noreturn]] void fail(const std::string& path, const std::string& message) {
  throw ConfigError(printable(path + ": " + message));
}

// The names that a folder may use for a tensor.
std::vector<std::string> stored_names(const std::string& architecture, const std::string& name) {
  std::vector<std::string> names = {name};
  if (architecture.starts_with("Gemma3")) {
    constexpr std::string_view kBase = "model.";
    names.push_back("language_model." + name);
    if (name.starts_with(kBase)) {
      names.push_back("model.language_model." + name.substr(kBase.size()));
    }
  }
  return names;
}

// Converts 16-bit elements at any alignment.
template <class Convert>
void read_halves(const std::byte* bytes, std::size_t count, float* out, Convert convert) {
  static_assert(std::endian::native == std::endian::little, "weights are stored little-endian");
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes + i * sizeof(bits), sizeof(bits));
    out[i] = convert(bits);
  }
}

class FolderWeights final : public WeightSource {
 public:
  FolderWeights(const std::string& folder, const ModelConfig& model)
      : folder_(folder), architecture_(model.architecture) {
    open_files();
    for (const WeightSpec& spec : weight_specs(model)) tensors_.emplace(spec.name, find(spec));
  }

  TensorType type(const WeightSpec& spec) const override { return tensor(spec).type; }

  void read(const WeightSpec& spec, std::int64_t row_begin, std::int64_t row_end,
            float* out) const override {
    METRONOME_CHECK(0 <= row_begin && row_begin <= row_end && row_end <= spec.rows,
                    "rows outside of the tensor");
    const Tensor& stored = tensor(spec);
    const auto first = static_cast<std::size_t>(row_begin * spec.cols);
    const auto count = static_cast<std::size_t>((row_end - row_begin) * spec.cols);
    if (count == 0) return;
    const std::byte* bytes = stored.bytes.data();
    if (stored.type == TensorType::Float32) {
      std::memcpy(out, bytes + first * sizeof(float), count * sizeof(float));
    } else if (stored.type == TensorType::BFloat16) {
      read_halves(bytes + first * 2, count, out, [](auto bits) { return float_of_bf16(bits); });
    } else {
      read_halves(bytes + first * 2, count, out, [](auto bits) { return float_of_half(bits); });
    }
  }

  std::vector<std::string> unused_layer_tensors() const override {
    std::vector<std::string> unused;
    for (const auto& [file, stored] : files_) {
      for (const Tensor& tensor : stored.tensors()) {
        // Old files store RoPE's frequencies with each layer.
        const bool is_of_layer = tensor.name.find("model.layers.") != std::string::npos &&
                                 !tensor.name.ends_with("rotary_emb.inv_freq");
        if (is_of_layer && !is_used(tensor)) unused.push_back(tensor.name);
      }
    }
    return unused;
  }

 private:
  bool is_used(const Tensor& tensor) const {
    return std::any_of(tensors_.begin(), tensors_.end(),
                       [&tensor](const auto& entry) { return entry.second == &tensor; });
  }
  std::string path_of(const std::string& file) const { return (fs::path(folder_) / file).string(); }
  std::string weights_path() const { return path_of(has_index_ ? kIndexFile : kSingleFile); }

  // One file wins over an index, as in transformers.
  void open_files() {
    if (!is_folder(folder_)) fail(folder_, "is not a folder; allowed: the folder of a model");
    if (path_exists(path_of(kSingleFile))) {
      files_.emplace(kSingleFile, SafetensorsFile(path_of(kSingleFile)));
      return;
    }
    has_index_ = path_exists(path_of(kIndexFile));
    if (!has_index_) fail_without_weights();
    const std::string index = weights_path();
    const std::optional<std::string> text = read_file(index);
    if (!text) fail(index, "cannot be read; allowed: a readable file");
    file_of_tensor_ = parse_safetensors_index(*text, index);
    for (const auto& [name, file] : file_of_tensor_) {
      if (files_.contains(file)) continue;
      if (!path_exists(path_of(file))) {
        fail(index, tensor_label(name) + ": is in " + file +
                        ", which is missing; allowed: a folder with all files of the index");
      }
      files_.emplace(file, SafetensorsFile(path_of(file)));
    }
  }

  [[noreturn]] void fail_without_weights() const {
    std::string message = "has no weights";
    for (const char* file : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
      if (path_exists(path_of(file))) {
        message = std::string("has weights only as ") + file + ", which is not supported";
      }
    }
    fail(folder_, message + "; allowed: " + kSingleFile + ", or " + kIndexFile +
                      " and the files that it names");
  }

  const Tensor* find(const WeightSpec& spec) const {
    const std::string needs =
        "; allowed: every tensor of " + architecture_ +
        (spec.name == "lm_head.weight" ? ", or tie_word_embeddings in config.json" : "");
    for (const std::string& name : stored_names(architecture_, spec.name)) {
      std::string file = kSingleFile;
      if (has_index_) {
        const auto entry = file_of_tensor_.find(name);
        if (entry == file_of_tensor_.end()) continue;
        file = entry->second;
      }
      if (const Tensor* found = files_.at(file).find(name)) {
        check_tensor(spec, *found, path_of(file));
        return found;
      }
      if (has_index_) fail(weights_path(), tensor_label(name) + ": is not in " + file + needs);
    }
    fail(weights_path(), tensor_label(spec.name) + ": is missing" + needs);
  }

  void check_tensor(const WeightSpec& spec, const Tensor& tensor, const std::string& path) const {
    std::vector<std::int64_t> shape = {spec.cols};
    if (spec.role != WeightRole::Norm) shape = {spec.rows, spec.cols};
    if (tensor.shape != shape) {
      fail(path, tensor_label(tensor.name) + ": has shape " + shape_text(tensor.shape) +
                     "; allowed: " + shape_text(shape) + ", as config.json requires for " +
                     architecture_);
    }
    if (tensor.type == TensorType::Other) {
      fail(path, tensor_label(tensor.name) + ": has dtype " + tensor.type_name +
                     "; allowed: F32, F16, BF16");
    }
  }

  const Tensor& tensor(const WeightSpec& spec) const {
    const auto found = tensors_.find(spec.name);
    METRONOME_CHECK(found != tensors_.end(), "no tensor " + spec.name + " in this model");
    METRONOME_CHECK(found->second->num_elements() == spec.rows * spec.cols,
                    "another model's tensor " + spec.name);
    return *found->second;
  }

  std::string folder_;
  std::string architecture_;
  bool has_index_ = false;
  std::map<std::string, std::string> file_of_tensor_;  // if there is an index
  std::map<std::string, SafetensorsFile> files_;       // by file name in the folder
  std::map<std::string, const Tensor*> tensors_;       // by spec name
};

}  // namespace

std::vector<WeightSpec> weight_specs(const ModelConfig& model) {
  std::vector<WeightSpec> specs = {embedding(model)};
  const auto append = [&specs](std::vector<WeightSpec> more) {
    std::move(more.begin(), more.end(), std::back_inserter(specs));
  };
  for (std::int64_t layer = 0; layer < model.n_layers; ++layer) append(layer_specs(model, layer));
  append(output_specs(model));
  return specs;
}

WeightSpec weight_spec(const ModelConfig& model, std::int64_t layer, const std::string& name) {
  METRONOME_CHECK(-1 <= layer && layer < model.n_layers, "a layer of the model");
  std::vector<WeightSpec> specs = {embedding(model)};
  std::string wanted = name + ".weight";
  if (layer < 0) {
    for (WeightSpec& spec : output_specs(model)) specs.push_back(std::move(spec));
  } else {
    specs = layer_specs(model, layer);
    wanted = layer_prefix(layer) + wanted;
  }
  const auto found = std::find_if(specs.begin(), specs.end(),
                                  [&](const WeightSpec& spec) { return spec.name == wanted; });
  METRONOME_CHECK(found != specs.end(), "no tensor " + wanted + " in this model");
  return *found;
}

void WeightSource::read_blocks(const WeightSpec& spec, std::int64_t, std::int64_t,
                               std::byte*) const {
  METRONOME_CHECK(false, "no blocks of tensor " + spec.name);
}

std::unique_ptr<WeightSource> open_model_folder(const std::string& folder,
                                                const ModelConfig& model) {
  return std::make_unique<FolderWeights>(folder, model);
}

}  // namespace metronome
