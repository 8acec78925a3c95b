// SPDX-License-Identifier: Apache-2.0
// Files in the GGUF format, versions 2 and 3, little-endian: metadata (named values), then the
// name, type, shape and place of each tensor, then the tensors' bytes. Format:
// github.com/ggml-org/ggml, docs/gguf.md and src/gguf.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "system/mapped_file.h"

namespace metronome {

// The types of metadata, by their number in the file.
enum class GgufType : std::uint32_t {
  Uint8,
  Int8,
  Uint16,
  Int16,
  Uint32,
  Int32,
  Float32,
  Bool,
  String,
  Array,
  Uint64,
  Int64,
  Float64,
};

// A value of the metadata. Its bytes are those of the file, and have been checked.
struct GgufValue {
  GgufType type = GgufType::Uint8;
  GgufType element_type = GgufType::Uint8;  // of an array
  std::uint64_t count = 0;                  // of an array's elements
  std::span<const std::byte> bytes;         // a string's without its length, an array's elements
};

// A storage type of tensors (ggml_type). A row is a whole number of blocks.
struct GgmlType {
  std::uint32_t id = 0;
  std::string_view name;  // "F32", "Q4_K"
  std::int64_t block_elements = 1;
  std::int64_t block_bytes = 1;
};

struct GgufTensor {
  std::string name;
  const GgmlType* type = nullptr;
  std::vector<std::int64_t> shape;   // outermost first; the file has the reverse
  std::span<const std::byte> bytes;  // row-major, little-endian; any alignment in memory
};

// Throws ConfigError, in one line with the key or the tensor's name if there is one, unless:
// - Magic, version and counts fit the file, and every length and count lies within it.
// - Every value has a known type. Keys and tensors' names differ. Arrays nest 4 deep at most.
// - Every tensor has a known type, 1 to 4 dimensions of at least 1 (or none), and rows of whole
//   blocks. It begins at a multiple of general.alignment, lies within the file, and shares no byte.
// Memory grows with what has been read, so no number in the file sets its size.
//
// A file that llama-gguf-split made is the first part of a model (split.no is 0). Its other parts
// are read from beside it, and have tensors alone. Throws ConfigError that names the part if one is
// missing or belongs to another model, and that names the first part for any other.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path);  // maps the file; it must not shrink
  GgufFile(std::span<const std::byte> bytes, std::string path);  // `bytes` must outlive the object

  const std::string& path() const { return path_; }                    // of the first part
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // by name
  const GgufTensor* find_tensor(std::string_view name) const;          // nullptr if none

  // nullptr if the file has no such key.
  const GgufValue* find(std::string_view key) const;

  // The value of a key; empty if there is none. Throw ConfigError for another type of value.
  std::optional<std::int64_t> integer(std::string_view key) const;  // of any integer type
  std::optional<double> number(std::string_view key) const;         // of any number type
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;  // any bytes
  std::vector<std::string_view> texts(std::string_view key) const;
  std::vector<std::int64_t> integers(std::string_view key) const;
  std::vector<float> floats(std::string_view key) const;  // of float32
  std::vector<bool> booleans(std::string_view key) const;

  // Throws ConfigError "path: key: message".
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;

 private:
  GgufFile() = default;
  void read(std::span<const std::byte> bytes);
  void add_other_parts();
  void add_part(std::int64_t number, std::int64_t count);
  const GgufValue* find_array(std::string_view key, const char* allowed,
                              bool (*is_allowed)(GgufType)) const;
  [[noreturn]] void fail_type(std::string_view key, const GgufValue& value,
                              const char* allowed) const;

  std::string path_;
  std::vector<MappedFile> files_;                          // the first part, then the others
  std::vector<std::pair<std::string, GgufValue>> values_;  // by key
  std::vector<GgufTensor> tensors_;
};

// "a STRING", "an array of 3 UINT32".
std::string gguf_type_text(const GgufValue& value);

// A text of the file for messages: printable, in quotes, shortened.
std::string gguf_shown(std::string_view text);

}  // namespace metronome
