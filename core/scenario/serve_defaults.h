// SPDX-License-Identifier: Apache-2.0
// The settings that an engine's server chooses for a GPU. People start `vllm serve` and
// `sglang.launch_server` without these options, so a scenario without the keys means these values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/types.h"
#include "core/hardware/hardware.h"

namespace metronome {

struct ServeDefault {
  std::string key;     // of a scenario: "engine.max_num_seqs"
  std::string value;   // as YAML
  std::string reason;  // one line: which engine, and for which GPUs; or the model's name
};
// Whether one of them is for `key`.
bool is_default_of(std::span<const ServeDefault> defaults, std::string_view key);

// The defaults of one engine, for whoever lists them.
class ServeDefaultList {
 public:
  explicit ServeDefaultList(std::string origin) : origin_(std::move(origin)) {}

  // `reason` follows the origin: " for a GPU of 70 GiB or more".
  void add(const char* key, const std::string& value, const std::string& reason = "") {
    defaults_.push_back({key, value, origin_ + reason});
  }
  void add(const char* key, std::int64_t value, const std::string& reason = "") {
    add(key, std::to_string(value), reason);
  }
  std::vector<ServeDefault> take() { return std::move(defaults_); }

 private:
  std::string origin_;
  std::vector<ServeDefault> defaults_;
};

inline double memory_gib(const HardwareSpec& gpu) {
  return static_cast<double>(gpu.memory_bytes) / kGib;
}

}  // namespace metronome
