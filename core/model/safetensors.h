// Files in the safetensors format: an 8-byte little-endian header length, a JSON header that gives
// each tensor's dtype, shape and [begin, end) of its bytes, then the bytes. Format:
// github.com/huggingface/safetensors, README and safetensors/src/tensor.rs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace metronome {

enum class TensorType : std::uint8_t { Float32, Float16, BFloat16, Other };

struct Tensor {
  std::string name;
  TensorType type = TensorType::Other;
  std::string type_name;             // as the file writes it: "BF16", "I64"
  std::vector<std::int64_t> shape;   // outermost first; empty: a scalar
  std::span<const std::byte> bytes;  // row-major, little-endian; any alignment

  std::int64_t num_elements() const;
};

// The tensors of a whole file, by name. `path` is shown in messages. Throws ConfigError, with the
// tensor's name where there is one, unless everything is exactly as the format has it: the header
// lies within the file and is a JSON object without duplicate names, every tensor has a known
// dtype, a shape whose product fits, offsets within the file that span exactly the bytes of its
// shape, and the tensors together cover the bytes behind the header without overlap or gap.
//
// Stricter than the reference reader where that one is lenient: a name given twice, a key other
// than dtype, shape and data_offsets, and blanks before the header's brace are refused. Types of
// less than a byte (F4, F6) are not known.
std::vector<Tensor> parse_safetensors(std::span<const std::byte> file, const std::string& path);

// Which file of a model folder holds which tensor: the weight_map of a
// model.safetensors.index.json, from tensor to file. Throws ConfigError unless the text is a JSON
// object without duplicate keys whose weight_map leads to files inside the folder.
std::map<std::string, std::string> parse_safetensors_index(std::string_view json,
                                                           const std::string& path);

// "tensor 'NAME'", on one line and of bounded length whatever the name holds.
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
  const Tensor* find(std::string_view name) const;                 // nullptr: there is none

 private:
  struct Unmap {
    std::size_t size;
    void operator()(const std::byte* begin) const;
  };

  std::string path_;
  std::unique_ptr<const std::byte, Unmap> mapping_;
  std::vector<Tensor> tensors_;
};

}  // namespace metronome
