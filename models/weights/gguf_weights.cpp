// SPDX-License-Identifier: Apache-2.0
#include "models/weights/gguf_weights.h"

#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/names.h"
#include "models/gguf/gguf_file.h"
#include "models/weights/float16.h"
#include "models/weights/gguf_family.h"
#include "models/weights/quantised_blocks.h"

namespace metronome {
namespace {

// Every type that is read, the plain ones first.
std::vector<TensorType> read_types() {
  std::vector<TensorType> types = {TensorType::Float32, TensorType::Float16, TensorType::BFloat16};
  for (std::int64_t i = 0; i < kNumBlockFormats; ++i) types.push_back(block_format_at(i).type);
  return types;
}

TensorType type_of(const GgmlType& stored) {
  for (const TensorType type : read_types()) {
    if (to_string(type) == stored.name) return type;
  }
  return TensorType::Other;
}

std::string read_type_names() {
  std::vector<std::string_view> names;
  for (const TensorType type : read_types()) names.push_back(to_string(type));
  return join_names(names);
}

// `count` weights of any alignment, as floats.
void convert(TensorType type, const std::byte* bytes, std::int64_t count, float* out) {
  if (type == TensorType::Float32) {
    std::memcpy(out, bytes, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  if (const BlockFormat* format = block_format(type)) {
    dequantise(type, bytes, count / format->num_weights, out);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes + static_cast<std::size_t>(i) * sizeof(bits), sizeof(bits));
    out[i] = type == TensorType::BFloat16 ? float_of_bf16(bits) : float_of_half(bits);
  }
}

// Where the rows of a tensor of the model are.
struct StoredRows {
  const std::byte* bytes = nullptr;  // of the first row
  TensorType type = TensorType::Other;
  std::int64_t cols = 0;  // weights of a row; 1 in a bias, whose elements are its rows
  std::int64_t row_bytes = 0;
  std::int64_t head_rows = 0;  // of a head whose rows are permuted; 0 = rows are in order
  bool has_one_added = false;

  const std::byte* row(std::int64_t row) const {
    if (head_rows > 0) {
      const std::int64_t pairs = head_rows / 2;
      const std::int64_t within = row % head_rows;
      row += 2 * (within % pairs) + within / pairs - within;
    }
    return bytes + row * row_bytes;
  }
};

class GgufWeights final : public WeightSource {
 public:
  GgufWeights(const std::string& path, const ModelConfig& model)
      : file_(path), model_(model), family_(family_of(file_)) {
    for_each_weight(model,
                    [this](const WeightSpec& spec) { tensors_.emplace(spec.name, find(spec)); });
  }

  TensorType type(const WeightSpec& spec) const override { return stored(spec).type; }

  void read(const WeightSpec& spec, std::int64_t row_begin, std::int64_t row_end,
            float* out) const override {
    const StoredRows& rows = stored_rows(spec, row_begin, row_end);
    const std::int64_t rows_of_one = spec.cols / rows.cols;
    const std::int64_t end = row_end * rows_of_one;
    for (std::int64_t row = row_begin * rows_of_one; row < end; ++row, out += rows.cols) {
      convert(rows.type, rows.row(row), rows.cols, out);
      if (!rows.has_one_added) continue;
      for (std::int64_t i = 0; i < rows.cols; ++i) out[i] -= 1.0f;
    }
  }

  void read_blocks(const WeightSpec& spec, std::int64_t row_begin, std::int64_t row_end,
                   std::byte* out) const override {
    const StoredRows& rows = stored_rows(spec, row_begin, row_end);
    METRONOME_CHECK(block_format(rows.type) != nullptr, "blocks of a quantised tensor");
    const auto row_bytes = static_cast<std::size_t>(rows.row_bytes);
    for (std::int64_t row = row_begin; row < row_end; ++row, out += row_bytes) {
      std::memcpy(out, rows.row(row), row_bytes);
    }
  }

  std::vector<std::string> unused_tensors() const override {
    std::vector<std::string> unused;
    for (const GgufTensor& tensor : file_.tensors()) {
      // RoPE's frequencies and factors are read with the configuration; old files store some with
      // each layer.
      const bool is_of_rope = tensor.name.ends_with("attn_rot_embd.weight") ||
                              tensor.name.ends_with("rope_freqs.weight") ||
                              tensor.name.starts_with("rope_factors_");
      if (!used_.contains(&tensor) && !is_of_rope) unused.push_back(tensor.name);
    }
    return unused;
  }

 private:
  static const GgufFamily& family_of(const GgufFile& file) {
    const GgufFamily* family =
        find_gguf_family(file.text("general.architecture").value_or(std::string_view()));
    METRONOME_CHECK(family != nullptr, "the family of a configuration that was read");
    return *family;
  }

  [[noreturn]] void fail(const std::string& name, const std::string& message) const {
    file_.fail("tensor " + gguf_shown(name), message);
  }

  // The place of a tensor that the file has.
  std::pair<GgufPlace, const GgufTensor*> find_place(const WeightSpec& spec) const {
    const std::vector<GgufPlace> places = gguf_places(model_, family_, spec);
    METRONOME_CHECK(!places.empty(), "no name in GGUF files for " + spec.name);
    for (const GgufPlace& place : places) {
      if (const GgufTensor* tensor = file_.find_tensor(place.name)) return {place, tensor};
    }
    fail(places.front().name, "is missing; allowed: every tensor of " + std::string(family_.name));
  }

  StoredRows find(const WeightSpec& spec) {
    const auto [place, tensor] = find_place(spec);
    if (tensor->shape != place.shape) {
      fail(place.name, "has shape " + shape_text(tensor->shape) +
                           "; allowed: " + shape_text(place.shape) + ", as the metadata requires");
    }
    const bool is_bias = spec.role == WeightRole::Bias;
    StoredRows found;
    found.type = type_of(*tensor->type);
    if (is_bias && block_format(found.type) != nullptr) found.type = TensorType::Other;
    if (found.type == TensorType::Other) {
      fail(place.name, "has type " + std::string(tensor->type->name) +
                           "; allowed: " + (is_bias ? "F32, F16, BF16" : read_type_names()));
    }
    found.cols = is_bias ? 1 : spec.cols;
    found.row_bytes = stored_bytes(found.type, found.cols);
    found.bytes = tensor->bytes.data() + place.first_row * found.row_bytes;
    const std::string_view part = std::string_view(spec.name).substr(0, spec.name.rfind('.'));
    const bool is_rotated = part.ends_with(".q_proj") || part.ends_with(".k_proj");
    if (family_.permutes_rotary_rows && is_rotated) found.head_rows = model_.head_dim;
    found.has_one_added = family_.adds_one_to_norms && spec.role == WeightRole::Norm;
    used_.insert(tensor);
    return found;
  }

  const StoredRows& stored(const WeightSpec& spec) const {
    const auto found = tensors_.find(spec.name);
    METRONOME_CHECK(found != tensors_.end(), "no tensor " + spec.name + " in this model");
    METRONOME_CHECK(found->second.cols == (spec.role == WeightRole::Bias ? 1 : spec.cols),
                    "another model's tensor " + spec.name);
    return found->second;
  }

  const StoredRows& stored_rows(const WeightSpec& spec, std::int64_t row_begin,
                                std::int64_t row_end) const {
    METRONOME_CHECK(0 <= row_begin && row_begin <= row_end && row_end <= spec.rows,
                    "rows outside of the tensor");
    return stored(spec);
  }

  GgufFile file_;
  ModelConfig model_;
  const GgufFamily& family_;
  std::map<std::string, StoredRows> tensors_;  // by spec name
  std::set<const GgufTensor*> used_;
};

}  // namespace

std::unique_ptr<WeightSource> open_gguf_weights(const std::string& path, const ModelConfig& model) {
  return std::make_unique<GgufWeights>(path, model);
}

}  // namespace metronome
