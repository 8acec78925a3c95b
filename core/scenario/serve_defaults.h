// SPDX-License-Identifier: Apache-2.0
// The settings that an engine's server chooses for a GPU. People start `vllm serve` and
// `sglang.launch_server` without these options, so a scenario without the keys means these values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/hardware/hardware.h"

namespace metronome {

struct ServeDefault {
  std::string key;     // of a scenario: "engine.max_num_seqs"
  std::string value;   // as YAML
  std::string reason;  // one line: which engine, and for which GPUs
};
// Whether one of them is for `key`.
bool is_default_of(std::span<const ServeDefault> defaults, std::string_view key);

// The user's choice of the settings that other defaults follow; absent: not chosen.
struct ChosenOptions {
  std::int64_t tensor_parallel_size = 1;
  std::optional<std::int64_t> max_num_seqs = {};
  // Of vLLM.
  std::optional<std::int64_t> max_num_batched_tokens = {};
  std::optional<std::int64_t> max_model_len = {};  // the model's limit if the user set none
  bool enable_chunked_prefill = true;
  std::int64_t num_speculative_tokens = 0;
  bool looks_up_drafts = false;  // speculative.method ngram
  // Of SGLang.
  std::optional<std::int64_t> chunked_prefill_size = {};
  std::int64_t max_prefill_tokens = 16384;
};

// Of `vllm serve` (its API server, not its class LLM) in version 0.`minor`, 19 to 33.
std::vector<ServeDefault> vllm_serve_defaults(int minor, const HardwareSpec& gpu,
                                              const ChosenOptions& chosen);

// Of SGLang 0.5.23. Of a pool's size it only knows that max_running_requests is at least 2048.
std::vector<ServeDefault> sglang_serve_defaults(const HardwareSpec& gpu,
                                                const ChosenOptions& chosen);

}  // namespace metronome
