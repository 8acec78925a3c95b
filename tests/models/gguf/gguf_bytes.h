// SPDX-License-Identifier: Apache-2.0
// Files in the GGUF format, put together byte by byte.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace metronome::testing {

// The low `count` bytes of a number, lowest first.
inline std::string low_bytes(std::uint64_t value, std::size_t count) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes += static_cast<char>((value >> (8 * i)) & 0xffu);
  return bytes;
}

inline std::string float32_bytes(float value) {
  return low_bytes(std::bit_cast<std::uint32_t>(value), 4);
}

inline std::string gguf_string(std::string_view text) {
  return low_bytes(text.size(), 8) + std::string(text);
}

// The numbers of types, as the format's document has them.
namespace gguf_type {
constexpr std::uint32_t kUint8 = 0, kInt8 = 1, kUint16 = 2, kInt16 = 3, kUint32 = 4, kInt32 = 5,
                        kFloat32 = 6, kBool = 7, kString = 8, kArray = 9, kUint64 = 10, kInt64 = 11,
                        kFloat64 = 12;
}

class GgufBytes {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;   // of what bytes() pads; the file says so only with add()
  std::int64_t extra_values = 0;  // what the counts say in addition
  std::int64_t extra_tensors = 0;

  GgufBytes& add(const std::string& key, std::uint32_t type, const std::string& payload) {
    values_ += gguf_string(key) + low_bytes(type, 4) + payload;
    ++num_values_;
    return *this;
  }
  GgufBytes& text(const std::string& key, std::string_view text) {
    return add(key, gguf_type::kString, gguf_string(text));
  }
  GgufBytes& u32(const std::string& key, std::uint32_t value) {
    return add(key, gguf_type::kUint32, low_bytes(value, 4));
  }
  GgufBytes& f32(const std::string& key, float value) {
    return add(key, gguf_type::kFloat32, float32_bytes(value));
  }
  GgufBytes& truth(const std::string& key, bool value) {
    return add(key, gguf_type::kBool, low_bytes(value ? 1 : 0, 1));
  }
  GgufBytes& array(const std::string& key, std::uint32_t type, std::uint64_t count,
                   const std::string& elements) {
    return add(key, gguf_type::kArray, low_bytes(type, 4) + low_bytes(count, 8) + elements);
  }
  GgufBytes& texts(const std::string& key, const std::vector<std::string>& texts) {
    std::string elements;
    for (const std::string& text : texts) elements += gguf_string(text);
    return array(key, gguf_type::kString, texts.size(), elements);
  }
  GgufBytes& floats(const std::string& key, const std::vector<float>& numbers) {
    std::string elements;
    for (const float number : numbers) elements += float32_bytes(number);
    return array(key, gguf_type::kFloat32, numbers.size(), elements);
  }
  GgufBytes& i32s(const std::string& key, const std::vector<std::int32_t>& numbers) {
    std::string elements;
    for (const std::int32_t number : numbers) {
      elements += low_bytes(static_cast<std::uint32_t>(number), 4);
    }
    return array(key, gguf_type::kInt32, numbers.size(), elements);
  }

  // `dims` is innermost first, as in the file. `type` is ggml's: 0 is F32, 1 F16.
  GgufBytes& tensor(const std::string& name, std::uint32_t type,
                    const std::vector<std::uint64_t>& dims, const std::string& data) {
    while (data_.size() % alignment != 0) data_ += '\0';
    return tensor_at(name, type, dims, data_.size(), data);
  }
  GgufBytes& tensor_at(const std::string& name, std::uint32_t type,
                       const std::vector<std::uint64_t>& dims, std::uint64_t offset,
                       const std::string& data) {
    tensors_ += gguf_string(name) + low_bytes(dims.size(), 4);
    for (const std::uint64_t dim : dims) tensors_ += low_bytes(dim, 8);
    tensors_ += low_bytes(type, 4) + low_bytes(offset, 8);
    data_ += data;
    ++num_tensors_;
    return *this;
  }
  // An F32 tensor of the given numbers, outermost dimension first.
  GgufBytes& floats32(const std::string& name, const std::vector<std::uint64_t>& shape,
                      const std::vector<float>& numbers) {
    std::string data;
    for (const float number : numbers) data += float32_bytes(number);
    return tensor(name, 0, {shape.rbegin(), shape.rend()}, data);
  }

  // Metadata and the list of tensors, without the data.
  std::string head() const {
    const auto count = [](std::int64_t real, std::int64_t extra) {
      return low_bytes(static_cast<std::uint64_t>(real + extra), 8);
    };
    return "GGUF" + low_bytes(version, 4) + count(num_tensors_, extra_tensors) +
           count(num_values_, extra_values) + values_ + tensors_;
  }

  std::string bytes() const {
    std::string file = head();
    if (num_tensors_ == 0) return file;
    while (file.size() % alignment != 0) file += '\0';
    return file + data_;
  }

 private:
  std::string values_, tensors_, data_;
  std::int64_t num_values_ = 0;
  std::int64_t num_tensors_ = 0;
};

inline std::span<const std::byte> bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

}  // namespace metronome::testing
