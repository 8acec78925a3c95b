// SPDX-License-Identifier: Apache-2.0
// The keys of one architecture in a GGUF file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "models/gguf/gguf_file.h"

namespace metronome {

// The double that is written as the float: 1e-5 for the float nearest to it.
double as_written(double number);

// "block_count" means "llama.block_count". Every error is a ConfigError with file and whole key.
class GgufKeys {
 public:
  // `file` must outlive the object.
  GgufKeys(const GgufFile& file, std::string_view family) : file_(file), prefix_(family) {
    prefix_ += '.';
  }

  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  bool has(std::string_view key) const { return file_.find(full(key)) != nullptr; }
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;

  // 0 to 2^40. Also of a list with the same number for every layer.
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::int64_t required(std::string_view key) const;
  // Finite, as written in decimal.
  std::optional<double> number(std::string_view key) const;
  double required_number(std::string_view key) const;
  std::string text_or(std::string_view key, std::string_view otherwise) const;

 private:
  std::int64_t in_range(std::string_view key, std::int64_t value) const;

  const GgufFile& file_;
  std::string prefix_;
};

}  // namespace metronome
