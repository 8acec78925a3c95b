// SPDX-License-Identifier: Apache-2.0
#include "reports/compare/comparable.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "core/base/names.h"
#include "core/base/number_text.h"

namespace metronome {
namespace {

// The fields in which models differ. Formats of weights are settings of one model.
auto shape_of(const ModelConfig& model) {
  return std::tuple(model.n_layers, model.hidden_dim, model.n_heads, model.n_kv_heads,
                    model.head_dim, model.ffn_dim, model.n_experts, model.expert_ffn_dim,
                    model.vocab_size);
}

using Lengths = std::vector<std::int32_t>;

Lengths lengths_of(const ObservedRun& run, std::int32_t ObservedRequest::*length) {
  Lengths lengths;
  for (const ObservedRequest& request : run.requests) lengths.push_back(request.*length);
  std::sort(lengths.begin(), lengths.end());
  return lengths;
}

std::string lengths_text(const Lengths& lengths) {
  if (lengths.front() == lengths.back()) return grouped_text(std::int64_t{lengths.front()});
  const double sum = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  return grouped_text(std::int64_t{lengths.front()}) + " to " +
         grouped_text(std::int64_t{lengths.back()}) + " (mean " +
         grouped_text(sum / static_cast<double>(lengths.size()), 1) + ")";
}

std::int64_t num_requests(const ObservedRun& run) {
  return run.num_completed() + run.num_incomplete;
}

// Of two lists in order, the entries of the first that the second lacks.
std::int64_t num_missing(const Lengths& some, const Lengths& all) {
  Lengths missing;
  std::set_difference(some.begin(), some.end(), all.begin(), all.end(),
                      std::back_inserter(missing));
  return static_cast<std::int64_t>(missing.size());
}

// Means of lengths that a client rounded, or took of other requests too, differ less.
constexpr double kSameMean = 0.01;

// Compares lengths with the mean of a client's result without requests; false: it has none.
bool compare_mean(const std::optional<double>& mean, const Lengths& lengths, const char* what,
                  std::vector<std::string>& found) {
  if (!mean) return false;
  const double sum = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  const double own = sum / static_cast<double>(lengths.size());
  if (std::abs(*mean - own) <= kSameMean * own) return true;
  found.push_back(std::string(what) + " of " + grouped_text(*mean, 1) + " tokens on average, not " +
                  grouped_text(own, 1));
  return true;
}

struct LengthKind {
  const char* what;
  std::int32_t ObservedRequest::*length;
  std::optional<double> MeasuredRun::*mean;  // of a client's result without requests
};
constexpr LengthKind kLengthKinds[] = {
    {"prompts", &ObservedRequest::num_prompt_tokens, &MeasuredRun::mean_prompt_tokens},
    {"outputs", &ObservedRequest::num_output_tokens, &MeasuredRun::mean_output_tokens}};

void compare_lengths(const ObservedRun& measured, const ObservedRun& simulated,
                     const LengthKind& kind, RunDifferences& differences) {
  const char* const what = kind.what;
  std::vector<std::string>& found = differences.found;
  const Lengths a = lengths_of(measured, kind.length);
  const Lengths b = lengths_of(simulated, kind.length);
  if (a.empty() || a.front() == kUnknownTokens) {
    const std::optional<double> mean =
        measured.client ? (*measured.client).*kind.mean : std::nullopt;
    if (!compare_mean(mean, b, what, found)) {
      differences.remarks.push_back(std::string("the lengths of ") + what +
                                    " are not known; they were not compared");
    }
    return;
  }
  const std::int64_t num_others = std::max(num_missing(a, b) - simulated.num_incomplete,
                                           num_missing(b, a) - measured.num_incomplete);
  if (num_others <= 0) return;
  const std::string own = lengths_text(a);
  const std::string other = lengths_text(b);
  if (own != other) {
    found.push_back(std::string(what) + " of " + own + " tokens, not " + other);
  } else if (num_requests(measured) == num_requests(simulated)) {
    found.push_back(grouped_text(num_others) + " " + what + " of other lengths");
  }
}

// nullopt: too few arrivals are known.
std::optional<double> arrival_rate(const ObservedRun& run) {
  constexpr std::size_t kFewest = 10;
  if (run.requests.size() < kFewest) return std::nullopt;
  TimeNs first = kNever;
  TimeNs last = kNoTime;
  for (const ObservedRequest& request : run.requests) {
    if (request.begin == kNoTime) return std::nullopt;
    first = std::min(first, request.begin);
    last = std::max(last, request.begin);
  }
  if (last <= first) return std::nullopt;
  return static_cast<double>(run.requests.size() - 1) * static_cast<double>(kNsPerSecond) /
         static_cast<double>(last - first);
}

}  // namespace

NamedModel model_of(const ObservedRun& run) {
  if (!run.stored) return served_model(run.model);
  const RunInfo& info = run.stored->result.info;
  const bool is_served = info.config.is_null() || !run.stored->record.has_steps();
  return is_served ? served_model(info.model) : stored_model(*run.stored);
}

ModelComparison compare_models(const NamedModel& measured, const NamedModel& simulated) {
  if (measured.name.empty() || lower_ascii(measured.name) == lower_ascii(simulated.name)) return {};
  if (measured.config && simulated.config) {
    if (shape_of(*measured.config) == shape_of(*simulated.config)) return {};
    return {true, "the model is " + measured.name + ", not " + simulated.name};
  }
  return {false, "the model is called " + measured.name +
                     ", whose shape is not known here; it was not compared with " + simulated.name};
}

RunDifferences differences_of(const ObservedRun& measured, const ObservedRun& simulated) {
  RunDifferences differences;
  const ModelComparison models = compare_models(model_of(measured), model_of(simulated));
  if (models.differs) {
    differences.found.push_back(models.text);
  } else if (!models.text.empty()) {
    differences.remarks.push_back(models.text);
  }
  if (num_requests(measured) != num_requests(simulated)) {
    differences.found.push_back(grouped_text(num_requests(measured)) + " requests, not " +
                                grouped_text(num_requests(simulated)));
  }
  for (const LengthKind& kind : kLengthKinds) {
    compare_lengths(measured, simulated, kind, differences);
  }
  const auto rates = std::pair(arrival_rate(measured), arrival_rate(simulated));
  constexpr double kFaster = 2;
  if (rates.first && rates.second &&
      std::max(*rates.first / *rates.second, *rates.second / *rates.first) > kFaster) {
    differences.remarks.push_back("requests arrive at " + grouped_text(*rates.first, 2) +
                                  "/s, not at " + grouped_text(*rates.second, 2) + "/s");
  }
  return differences;
}

std::string joined_differences(const std::vector<std::string>& found) {
  std::string text;
  for (const std::string& one : found) text += (text.empty() ? "" : "; ") + one;
  return text;
}

}  // namespace metronome
