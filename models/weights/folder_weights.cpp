// SPDX-License-Identifier: Apache-2.0
// A reader for model folders.
#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/names.h"
#include "models/weights/float16.h"
#include "models/weights/model_weights.h"
#include "models/weights/stored_tensor.h"

namespace metronome {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

[[noreturn]] void refuse(const std::string& path, const std::string& message) {
  throw ConfigError(printable(path + ": " + message));
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

// Elements [first, first + count) of a tensor.
void read_elements(const Tensor& tensor, std::int64_t first_element, std::int64_t num_elements,
                   float* out) {
  const auto first = static_cast<std::size_t>(first_element);
  const auto count = static_cast<std::size_t>(num_elements);
  if (count == 0) return;
  const std::byte* const bytes = tensor.bytes.data();
  if (tensor.type == TensorType::Float32) {
    std::memcpy(out, bytes + first * sizeof(float), count * sizeof(float));
  } else if (tensor.type == TensorType::BFloat16) {
    read_halves(bytes + first * 2, count, out, [](auto bits) { return float_of_bf16(bits); });
  } else {
    read_halves(bytes + first * 2, count, out, [](auto bits) { return float_of_half(bits); });
  }
}

// Tensors beside a language model that say nothing about it: frequencies and masks that old files
// store with each layer, constants of xIELU, tied heads, parts for pictures, layers that draft
// tokens.
bool is_harmless(std::string_view name) {
  for (const std::string_view end :
       {"rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias",
        ".attention.masked_bias", ".act_fn.beta", ".act_fn.eps"}) {
    if (name.ends_with(end)) return true;
  }
  for (const std::string_view part :
       {"vision", "visual.", "multi_modal_projector.", "mm_projector."}) {
    if (name.find(part) != name.npos) return true;
  }
  return name.starts_with("mtp.") || name.starts_with("model.mtp_layers.") ||
         name.ends_with("lm_head.weight");
}

class FolderWeights final : public WeightSource {
 public:
  FolderWeights(const std::string& folder, const ModelConfig& model)
      : folder_(folder), architecture_(model.architecture) {
    open_files();
    for_each_weight(model, [&](const WeightSpec& spec) {
      const Found found = find(spec, stored_tensors(model, spec));
      used_.insert(found.tensor);
      tensors_.emplace(spec.name, found);
    });
  }

  TensorType type(const WeightSpec& spec) const override { return found(spec).tensor->type; }

  void read(const WeightSpec& spec, std::int64_t row_begin, std::int64_t row_end,
            float* out) const override {
    METRONOME_CHECK(0 <= row_begin && row_begin <= row_end && row_end <= spec.rows,
                    "rows outside of the tensor");
    const Found& from = found(spec);
    const StoredTensor& place = from.place;
    if (place.is_transposed && spec.role != WeightRole::Bias) {
      return read_transposed(*from.tensor, place, spec.cols, row_begin, row_end, out);
    }
    // A bias is one row of elements, but a part of a fused one begins at an element.
    const bool is_bias = spec.role == WeightRole::Bias;
    const std::int64_t width = is_bias ? 1 : spec.cols;
    const std::int64_t end = is_bias ? row_end * spec.cols : row_end;
    std::int64_t row = is_bias ? row_begin * spec.cols : row_begin;
    while (row < end) {
      const std::int64_t num_rows = place.num_adjacent(row, end - row);
      read_elements(*from.tensor, place.stored_row(row) * width, num_rows * width, out);
      row += num_rows;
      out += num_rows * width;
    }
  }

  std::vector<std::string> unused_tensors() const override {
    std::vector<std::string> unused;
    for (const auto& [file, stored] : files_) {
      for (const Tensor& tensor : stored.tensors()) {
        if (!used_.contains(&tensor) && !is_harmless(tensor.name)) unused.push_back(tensor.name);
      }
    }
    return unused;
  }

 private:
  // Reads the columns from the first of the rows to the last, with what may lie between them.
  static void read_transposed(const Tensor& tensor, const StoredTensor& place,
                              std::int64_t num_cols, std::int64_t row_begin, std::int64_t row_end,
                              float* out) {
    if (row_begin == row_end) return;
    const std::int64_t first = place.stored_row(row_begin);
    std::vector<float> column(static_cast<std::size_t>(place.stored_row(row_end - 1) + 1 - first));
    for (std::int64_t col = 0; col < num_cols; ++col) {
      read_elements(tensor, place.first_element + first + col * place.rows,
                    static_cast<std::int64_t>(column.size()), column.data());
      for (std::int64_t row = row_begin; row < row_end; ++row) {
        out[(row - row_begin) * num_cols + col] =
            column[static_cast<std::size_t>(place.stored_row(row) - first)];
      }
    }
  }

  std::string path_of(const std::string& file) const { return (fs::path(folder_) / file).string(); }
  std::string weights_path() const { return path_of(has_index_ ? kIndexFile : kSingleFile); }

  // One file wins over an index, as in transformers.
  void open_files() {
    if (!is_folder(folder_)) refuse(folder_, "is not a folder; allowed: the folder of a model");
    if (path_exists(path_of(kSingleFile))) {
      files_.emplace(kSingleFile, SafetensorsFile(path_of(kSingleFile)));
      return;
    }
    has_index_ = path_exists(path_of(kIndexFile));
    if (!has_index_) fail_without_weights();
    const std::string index = weights_path();
    file_of_tensor_ = parse_safetensors_index(read_file(index, "a readable file"), index);
    for (const auto& [name, file] : file_of_tensor_) {
      if (files_.contains(file)) continue;
      if (!path_exists(path_of(file))) {
        refuse(index, tensor_label(name) + ": is in " + file +
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
    refuse(folder_, message + "; allowed: " + kSingleFile + ", or " + kIndexFile +
                        " and the files that it names");
  }

  // Where a spec's rows are.
  struct Found {
    const Tensor* tensor = nullptr;
    StoredTensor place;
  };

  // The first of the tensors that the folder has.
  Found find(const WeightSpec& spec, const std::vector<StoredTensor>& places) const {
    const Tensor* misshapen = nullptr;
    for (const StoredTensor& place : places) {
      const Tensor* const tensor = find(spec, place);
      if (tensor == nullptr) continue;
      if (tensor->shape == shape_of(spec, place)) {
        check_type(*tensor);
        return {tensor, place};
      }
      misshapen = tensor;
    }
    if (misshapen != nullptr) refuse_shape(spec, places, *misshapen);
    refuse(weights_path(),
           tensor_label(places.front().names.front()) + ": is missing" + needs_of(spec));
  }

  std::string needs_of(const WeightSpec& spec) const {
    return "; allowed: every tensor of " + architecture_ +
           (spec.name == "lm_head.weight" ? ", or tie_word_embeddings in config.json" : "");
  }

  const Tensor* find(const WeightSpec& spec, const StoredTensor& wanted) const {
    for (const std::string& name : wanted.names) {
      std::string file = kSingleFile;
      if (has_index_) {
        const auto entry = file_of_tensor_.find(name);
        if (entry == file_of_tensor_.end()) continue;
        file = entry->second;
      }
      if (const Tensor* found = files_.at(file).find(name)) return found;
      if (has_index_) {
        refuse(weights_path(), tensor_label(name) + ": is not in " + file + needs_of(spec));
      }
    }
    return nullptr;
  }

  static std::vector<std::int64_t> shape_of(const WeightSpec& spec, const StoredTensor& wanted) {
    if (!wanted.shape.empty()) return wanted.shape;
    if (spec.role == WeightRole::Bias) return {wanted.rows};
    if (wanted.is_transposed) return {wanted.cols, wanted.rows};
    return {wanted.rows, wanted.cols};
  }

  // The first place of the tensor's name says what is allowed.
  [[noreturn]] void refuse_shape(const WeightSpec& spec, const std::vector<StoredTensor>& places,
                                 const Tensor& tensor) const {
    const auto has_name = [&](const StoredTensor& place) {
      return std::find(place.names.begin(), place.names.end(), tensor.name) != place.names.end();
    };
    const auto place = std::find_if(places.begin(), places.end(), has_name);
    refuse(file_with(tensor), tensor_label(tensor.name) + ": has shape " +
                                  shape_text(tensor.shape) +
                                  "; allowed: " + shape_text(shape_of(spec, *place)) +
                                  ", as config.json requires for " + architecture_);
  }

  void check_type(const Tensor& tensor) const {
    if (tensor.type != TensorType::Other) return;
    refuse(file_with(tensor), tensor_label(tensor.name) + ": has dtype " + tensor.type_name +
                                  "; allowed: F32, F16, BF16");
  }

  // The path of the file that holds a tensor of this folder.
  std::string file_with(const Tensor& tensor) const {
    for (const auto& [file, stored] : files_) {
      if (stored.find(tensor.name) == &tensor) return path_of(file);
    }
    return weights_path();
  }

  const Found& found(const WeightSpec& spec) const {
    const auto entry = tensors_.find(spec.name);
    METRONOME_CHECK(entry != tensors_.end(), "no tensor " + spec.name + " in this model");
    METRONOME_CHECK(entry->second.tensor->num_elements() >= spec.rows * spec.cols,
                    "another model's tensor " + spec.name);
    return entry->second;
  }

  std::string folder_;
  std::string architecture_;
  bool has_index_ = false;
  std::map<std::string, std::string> file_of_tensor_;  // if there is an index
  std::map<std::string, SafetensorsFile> files_;       // by file name in the folder
  std::map<std::string, Found> tensors_;               // by spec name
  std::set<const Tensor*> used_;
};

}  // namespace

std::unique_ptr<WeightSource> open_model_folder(const std::string& folder,
                                                const ModelConfig& model) {
  return std::make_unique<FolderWeights>(folder, model);
}

}  // namespace metronome
