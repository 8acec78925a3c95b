// SPDX-License-Identifier: Apache-2.0
// Files in the safetensors format. The file begins with an 8-byte little-endian header length. Then
// comes a JSON header with each tensor's dtype, shape and byte range [begin, end), then the bytes.
// Format: github.com/huggingface/safetensors, README and safetensors/src/tensor.rs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/weights/tensor_type.h"
#include "system/mapped_file.h"

namespace metronome {

struct Tensor {
  std::string name;
  TensorType type = TensorType::Other;
  std::string type_name;             // as in the file: "BF16", "I64"
  std::vector<std::int64_t> shape;   // outermost first; empty: a scalar
  std::span<const std::byte> bytes;  // row-major, little-endian; any alignment

  std::int64_t num_elements() const;
};

// The tensors of a whole file, by name. `path` is shown in messages. Throws ConfigError, with the
// tensor's name if there is one, unless the file follows the format exactly:
// - The header lies within the file and is a JSON object without duplicate names.
// - Every tensor has a known dtype and a shape of at most 2^63 - 1 bytes.
// - Its offsets lie within the file and span exactly the bytes of its shape.
// - Together the tensors cover the bytes after the header without overlap or gap.
//
// Stricter than the reference reader. It rejects duplicate names, keys other than dtype, shape and
// data_offsets, and blanks before the header's brace. Types of less than a byte (F4, F6) are
// unknown.
std::vector<Tensor> parse_safetensors(std::span<const std::byte> file, const std::string& path);

// Maps each tensor of a model folder to its file: the weight_map of a model.safetensors.index.json.
// Throws ConfigError unless the text is a JSON object without duplicate keys. Every file must be
// inside the folder.
std::map<std::string, std::string> parse_safetensors_index(std::string_view json,
                                                           const std::string& path);

// "tensor 'NAME'", always on one line and of bounded length.
std::string tensor_label(std::string_view name);
// "[2, 3]".
std::string shape_text(std::span<const std::int64_t> shape);

// A memory-mapped file. Throws ConfigError when it cannot be opened or is malformed. The file must
// not shrink while it is in use.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }  // by name
  const Tensor* find(std::string_view name) const;                 // nullptr if none

 private:
  std::string path_;
  MappedFile file_;
  std::vector<Tensor> tensors_;
};

}  // namespace metronome
