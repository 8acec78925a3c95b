// SPDX-License-Identifier: Apache-2.0
// The `slo` section of a scenario: the latency limits of a good request.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace metronome {

class FieldVisitor;

// Latency limits of MLPerf Inference's LLM benchmarks (p99 TTFT and TPOT). Source: mlcommons
// inference_policies, inference_rules.adoc.
enum class SloPreset : std::uint8_t {
  None,
  Llama31_8bConversational,
  Llama31_8bInteractive,
  Llama2_70bServer,
  Llama2_70bInteractive,
  Llama31_405bServer,
  Llama31_405bInteractive,
  DeepSeekR1Server,
  DeepSeekR1Interactive,
  GptOss120bServer,
  GptOss120bInteractive,
};

struct SloConfig {  // a request is good when it meets each of the first four that is set
  SloPreset preset = SloPreset::None;  // sets ttft_ms and tpot_ms; keys given together with it win
  std::optional<double> ttft_ms = {};
  std::optional<double> tpot_ms = {};
  std::optional<double> itl_ms = {};  // every inter-token gap of the request
  std::optional<double> e2el_ms = {};
  // Goals of a whole run, which make no request good or bad: core/metrics/goals.h.
  std::optional<double> itl_share = {};       // of all gaps within itl_ms; absent: every gap
  std::optional<double> longest_gap_ms = {};  // of all requests, beside a share
  std::optional<double> decode_rate =
      {};  // at least, tokens/s of an answer while prompts are computed
  std::optional<double> output_throughput = {};               // at least, tokens/s
  std::optional<double> cost_per_million_output_tokens = {};  // at most
  // The limits of the classes of requests, by number from 1; not a key. Empty: these are for all.
  std::vector<SloConfig> by_class = {};
  std::string class_name = {};  // of one of those; not a key

  // Whether itl_ms limits a share of all gaps of a run, and not those of each request.
  bool judges_gaps_of_run() const { return itl_share && *itl_share < 1; }
  bool has_limit() const {
    return ttft_ms || tpot_ms || (itl_ms && !judges_gaps_of_run()) || e2el_ms;
  }
  // The limits for a class; 0: of no class.
  const SloConfig& of_class(std::size_t number) const {
    return number == 0 || number > by_class.size() ? *this : by_class[number - 1];
  }
  // Whether they limit any request.
  bool limits_any() const;
};

// In the order of SloPreset; the first is "none".
std::vector<std::string_view> slo_preset_names();

// A key of the section that is a goal of a whole run.
struct RunGoalKey {
  std::string_view key;
  std::optional<double> SloConfig::*member;
};
std::span<const RunGoalKey> run_goal_keys();

// Keys, ranges and meaning.
void visit_fields(FieldVisitor& visitor, SloConfig& config);

}  // namespace metronome
