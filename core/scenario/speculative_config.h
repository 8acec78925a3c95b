// SPDX-License-Identifier: Apache-2.0
// The `speculative` section of a scenario: speculative decoding. Keys that vLLM's
// --speculative-config has have its names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config_choice.h"
#include "core/config/config_reader.h"

namespace metronome {

enum class SpeculativeMethod : std::uint8_t { None, Ngram, DraftModel, Eagle, Mtp };
enum class AcceptanceKind : std::uint8_t { Rate, Length, Positions, Log };

// For simulation: how many draft tokens of a decode the target model accepts. The draw for a token
// depends on the seed, the request and the token's place in its output alone.
//   rate       a draft token is accepted with this probability if those before it were
//   length     the rate that gives this mean acceptance length, the accepted tokens of a draft and
//              one more, with mean_length_tokens drafts a step
//   positions  vLLM's per-position acceptance rates: [i] is the share of drafts whose first i + 1
//              tokens were accepted
//   log        those of vLLM's "SpecDecoding metrics" lines, each for its time
struct AcceptanceConfig {
  AcceptanceKind kind = AcceptanceKind::Rate;
  std::vector<double> rate = {0.7};                // one for each type of requests
  std::vector<double> mean_length;                 // one for each type of requests
  std::optional<std::int64_t> mean_length_tokens;  // null = num_speculative_tokens
  std::vector<double> weights;                     // of the types; empty = equal
  std::vector<double> positions;
  std::string log;           // path, as WorkloadConfig's trace file
  double proposal_rate = 1;  // ngram: the share of decodes for which the lookup finds drafts
};

struct SpeculativeConfig {
  SpeculativeMethod method = SpeculativeMethod::None;
  std::int32_t num_speculative_tokens = 3;  // drafts of a decode
  // Rows [first, last, drafts]: with so many requests in a step, each decode of the next step has
  // so many drafts, at most num_speculative_tokens. Sizes between rows are as in the row before.
  // Empty: always num_speculative_tokens.
  std::vector<std::vector<std::int64_t>> num_speculative_tokens_per_batch_size;
  // ngram: longest and shortest sequence of last tokens that is looked up in the text.
  std::int32_t prompt_lookup_max = 5;
  std::int32_t prompt_lookup_min = 5;
  std::string model;  // draft_model: as Scenario::model
  // For simulation: GPUs of the drafter; null = tensor_parallel_size.
  std::optional<std::int64_t> draft_tensor_parallel_size;
  std::string cost_file;                // step times of the draft model, as cost_model.file
  double pass_overhead_us = 0;          // device waits for the host so long in each of its passes
  double ngram_us_per_kilotoken = 1.0;  // host time of a lookup, per 1,000 tokens of a text
  AcceptanceConfig acceptance;

  bool is_on() const { return method != SpeculativeMethod::None; }
  // The most drafts of a decode; 0 without speculative decoding.
  std::int32_t num_drafts() const { return is_on() ? num_speculative_tokens : 0; }
  bool has_drafts() const { return num_drafts() > 0; }
};

void visit_fields(FieldVisitor& visitor, SpeculativeConfig& config);

// The choices `method` and `acceptance.kind`, with the keys that each value does not use. Sections
// are relative to `speculative`.
std::vector<Choice> speculative_choices();

// The sentence about the first value that contradicts another, and its key ("acceptance.weights").
struct SpeculativeError {
  std::string key;
  std::string message;
};
std::optional<SpeculativeError> find_error(const SpeculativeConfig& config);

// The probability that a draft token is accepted, if those before it were, with which drafts of
// `num_tokens` have this mean acceptance length: the solution of (1 - p^(n+1)) / (1 - p) = length
// (Leviathan, Kalman, Matias 2023, equation 1). Requires 1 <= mean_length <= num_tokens + 1.
double acceptance_rate(double mean_length, std::int64_t num_tokens);

// The mean acceptance length with this rate.
double acceptance_length(double rate, std::int64_t num_tokens);

}  // namespace metronome
