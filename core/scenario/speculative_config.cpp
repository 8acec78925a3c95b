// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/speculative_config.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

#include "core/engine/step_plan.h"
#include "core/workload/workload_sections.h"

namespace metronome {
namespace {

constexpr std::string_view kMethods[] = {"none", "ngram", "draft_model", "eagle", "mtp"};
constexpr std::string_view kKinds[] = {"rate", "length", "positions", "log"};

using enum SpeculativeMethod;
using enum AcceptanceKind;

constexpr unsigned kAnyMethod = bits(Ngram, DraftModel, Eagle, Mtp);
constexpr unsigned kModelMethods = bits(DraftModel, Eagle, Mtp);
constexpr KeyUse kMethodUses[] = {
    {"num_speculative_tokens", kAnyMethod},
    {"num_speculative_tokens_per_batch_size", kAnyMethod},
    {"prompt_lookup_max", bits(Ngram)},
    {"prompt_lookup_min", bits(Ngram)},
    {"model", bits(DraftModel), bits(DraftModel)},
    {"draft_tensor_parallel_size", kModelMethods},
    {"cost_file", kModelMethods},
    {"pass_overhead_us", kModelMethods},
    {"ngram_us_per_kilotoken", bits(Ngram)},
    {"acceptance", kAnyMethod},
    {"acceptance.proposal_rate", bits(Ngram)},
};
constexpr KeyUse kKindUses[] = {
    {"rate", bits(Rate)},
    {"mean_length", bits(Length), bits(Length)},
    {"mean_length_tokens", bits(Length)},
    {"weights", bits(Rate, Length)},
    {"positions", bits(Positions), bits(Positions)},
    {"log", bits(Log), bits(Log)},
};
constexpr UseTable kMethodTable = {"method", kMethods, kMethodUses};
constexpr UseTable kKindTable = {"kind", kKinds, kKindUses};

Unused unused_by_method(std::string_view name) { return unused_in_table(kMethodTable, name); }
Unused unused_by_kind(std::string_view name) { return unused_in_table(kKindTable, name); }

void visit_acceptance(FieldVisitor& visitor, AcceptanceConfig& config) {
  if (!visitor.open_section("acceptance", "for simulation: which draft tokens are accepted")) {
    return;
  }
  visitor.choice("kind", config.kind, kKinds, "what describes it");
  visitor.numbers("rate", config.rate, 0, 1,
                  "rate: probability that a draft token is accepted if those before it were; "
                  "several: one for each type of requests");
  visitor.numbers("mean_length", config.mean_length, 1, kMaxDrafts + 1,
                  "length: accepted tokens of a draft, and one more, in the mean, as vLLM logs; "
                  "several: one for each type of requests");
  visitor.optional_integer("mean_length_tokens", config.mean_length_tokens, 1, kMaxDrafts,
                           "length: draft tokens a step with which it was measured; null: "
                           "num_speculative_tokens");
  visitor.numbers("weights", config.weights, 0, 1e12,
                  "weight of each type of requests; empty = equal");
  visitor.numbers("positions", config.positions, 0, 1,
                  "positions: share of drafts whose first 1, 2, ... tokens are accepted, as vLLM "
                  "logs");
  visitor.path("log", config.log,
               "log: file with vLLM's \"SpecDecoding metrics\" lines; relative to the scenario's "
               "folder, or with --set to the current folder");
  visitor.number("proposal_rate", config.proposal_rate, 0, 1,
                 "ngram: share of decodes for which the lookup finds draft tokens");
  visitor.close_section();
}

std::optional<SpeculativeError> find_schedule_error(const SpeculativeConfig& config) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < config.num_speculative_tokens_per_batch_size.size(); ++i) {
    const std::vector<std::int64_t>& row = config.num_speculative_tokens_per_batch_size[i];
    const std::string key = fmt::format("num_speculative_tokens_per_batch_size.{}", i);
    if (i == 0 && row[0] != 1) return SpeculativeError{key, "must begin with 1 request"};
    if (row[0] <= last) {
      return SpeculativeError{
          key, fmt::format("begins at {} requests, which the row before covers; allowed: above {}",
                           row[0], last)};
    }
    if (row[1] < row[0]) {
      return SpeculativeError{key, "ends before it begins; allowed: [first, last, drafts]"};
    }
    last = row[1];
  }
  return std::nullopt;
}

std::optional<SpeculativeError> find_acceptance_error(const SpeculativeConfig& config) {
  const AcceptanceConfig& acceptance = config.acceptance;
  const auto num_tokens = static_cast<std::size_t>(config.num_speculative_tokens);
  if (acceptance.kind == Positions) {
    if (acceptance.positions.size() < num_tokens) {
      return SpeculativeError{
          "acceptance.positions",
          fmt::format("has {} entries; allowed: one for each of num_speculative_tokens = {}",
                      acceptance.positions.size(), num_tokens)};
    }
    if (!std::is_sorted(acceptance.positions.rbegin(), acceptance.positions.rend())) {
      return SpeculativeError{"acceptance.positions",
                              "increases; allowed: no entry above the one before, as a draft token "
                              "is accepted only if those before it were"};
    }
    return std::nullopt;
  }
  if (acceptance.kind == Log) {
    if (!acceptance.log.empty()) return std::nullopt;
    return SpeculativeError{"acceptance.log",
                            "required key is missing: acceptance.kind 'log' needs a file; allowed: "
                            "the log of a vLLM server with drafts"};
  }
  const bool is_length = acceptance.kind == Length;
  const std::vector<double>& types = is_length ? acceptance.mean_length : acceptance.rate;
  if (types.empty()) {
    return SpeculativeError{is_length ? "acceptance.mean_length" : "acceptance.rate",
                            "the list is empty; allowed: a number for each type of requests"};
  }
  if (!acceptance.weights.empty() && acceptance.weights.size() != types.size()) {
    return SpeculativeError{
        "acceptance.weights",
        fmt::format("has {} entries; allowed: {}, one for each type of requests",
                    acceptance.weights.size(), types.size())};
  }
  const std::vector<double>& weights = acceptance.weights;
  if (!weights.empty() &&
      std::all_of(weights.begin(), weights.end(), [](double w) { return w == 0; })) {
    return SpeculativeError{"acceptance.weights", "all are 0; allowed: at least one above 0"};
  }
  if (!is_length) return std::nullopt;
  const std::int64_t measured =
      acceptance.mean_length_tokens.value_or(config.num_speculative_tokens);
  const double longest = *std::max_element(types.begin(), types.end());
  if (longest <= static_cast<double>(measured + 1)) return std::nullopt;
  return SpeculativeError{"acceptance.mean_length",
                          fmt::format("is more than {} draft tokens and one; allowed: 1 to {}",
                                      measured, measured + 1)};
}

}  // namespace

void visit_fields(FieldVisitor& visitor, SpeculativeConfig& config) {
  visitor.choice(
      "method", config.method, kMethods,
      "what proposes draft tokens: nothing, a lookup in the text, a smaller model, EAGLE "
      "layers or the model's own (MTP)");
  visitor.integer("num_speculative_tokens", config.num_speculative_tokens, 0, kMaxDrafts,
                  "draft tokens of a decode; 0: none");
  visitor.integer_rows("num_speculative_tokens_per_batch_size",
                       config.num_speculative_tokens_per_batch_size, 3, 0, 1 << 20,
                       "draft tokens by the number of requests in a step: [first, last, tokens]; "
                       "empty: always num_speculative_tokens");
  visitor.integer("prompt_lookup_max", config.prompt_lookup_max, 1, 1024,
                  "ngram: longest sequence of last tokens to look up");
  visitor.integer("prompt_lookup_min", config.prompt_lookup_min, 1, 1024,
                  "ngram: shortest sequence of last tokens to look up");
  visitor.name_or_path("model", config.model,
                       "draft_model: the smaller model, as the scenario's `model`");
  visitor.optional_integer("draft_tensor_parallel_size", config.draft_tensor_parallel_size, 1, 64,
                           "for simulation: GPUs of the drafter; null: those of the model");
  visitor.name_or_path("cost_file", config.cost_file,
                       "for simulation: step times of the drafter, as cost_model.file; empty: the "
                       "hardware's roofline");
  visitor.number("pass_overhead_us", config.pass_overhead_us, 0, 1e6,
                 "for simulation: time for which the device waits for the host in each pass of the "
                 "drafter, microseconds; 0: the passes are one graph, as in vLLM 0.33");
  visitor.number("ngram_us_per_kilotoken", config.ngram_us_per_kilotoken, 0, 1e6,
                 "ngram, for simulation: host time of a lookup in 1,000 tokens, microseconds");
  visit_acceptance(visitor, config.acceptance);
}

std::vector<Choice> speculative_choices() {
  return {{"", "method", unused_by_method}, {"acceptance", "kind", unused_by_kind}};
}

std::optional<SpeculativeError> find_error(const SpeculativeConfig& config) {
  if (!config.is_on()) return std::nullopt;
  if (config.method == DraftModel && config.model.empty()) {
    return SpeculativeError{"model",
                            "required key is missing: method 'draft_model' needs a smaller model; "
                            "allowed: a name of the catalogue, or a path to a config.json or model "
                            "folder"};
  }
  if (config.method == Ngram && config.prompt_lookup_min > config.prompt_lookup_max) {
    return SpeculativeError{
        "prompt_lookup_min",
        fmt::format("is more than prompt_lookup_max; allowed: 1 to {}", config.prompt_lookup_max)};
  }
  if (auto error = find_schedule_error(config)) return error;
  if (config.num_speculative_tokens == 0) return std::nullopt;
  return find_acceptance_error(config);
}

double acceptance_length(double rate, std::int64_t num_tokens) {
  double length = 1;
  double all_accepted = 1;
  for (std::int64_t i = 0; i < num_tokens; ++i) length += all_accepted *= rate;
  return length;
}

double acceptance_rate(double mean_length, std::int64_t num_tokens) {
  double low = 0;
  double high = 1;
  constexpr int kHalvings = 60;  // beyond the precision of a double
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (acceptance_length(middle, num_tokens) < mean_length ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace metronome
