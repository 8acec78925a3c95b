// SPDX-License-Identifier: Apache-2.0
// Files in the safetensors format, put together byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace metronome::testing {

// The low `count` bytes of a number, lowest first.
inline std::string little_endian(std::uint64_t value, std::size_t count) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes += static_cast<char>((value >> (8 * i)) & 0xffu);
  return bytes;
}

inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  return little_endian(header.size(), 8) + header + data;
}

// One entry of a header: "name":{...}.
inline std::string header_entry(const std::string& name, const std::string& dtype,
                                const std::string& shape, std::uint64_t begin, std::uint64_t end) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape +
         R"(,"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

}  // namespace metronome::testing
