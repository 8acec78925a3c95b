// SPDX-License-Identifier: Apache-2.0
#include "reports/compare/validation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/base/distribution.h"
#include "core/base/error.h"
#include "core/base/rng.h"

namespace metronome {
namespace {

constexpr std::size_t kNumStatistics = 5;
constexpr std::array<const char*, kNumStatistics> kStatistics = {"mean", "p50", "p90", "p95",
                                                                 "p99"};
constexpr std::array<double, kNumStatistics> kShares = {0, 0.50, 0.90, 0.95, 0.99};
using Statistics = std::array<double, kNumStatistics>;

struct Value {
  double ns = 0;
  std::uint32_t request = 0;
};

// A metric's values in one run, sorted by value.
class Sample {
 public:
  explicit Sample(std::vector<Value> values) : values_(std::move(values)) {
    std::stable_sort(values_.begin(), values_.end(),
                     [](const Value& a, const Value& b) { return a.ns < b.ns; });
  }
  bool empty() const { return values_.empty(); }
  std::size_t size() const { return values_.size(); }
  const std::vector<Value>& values() const { return values_; }

  // Counts request i `weights[i]` times. Returns NumPy's mean and percentiles (method "linear") of
  // the resulting sample; NaN for an empty sample.
  Statistics statistics(const std::vector<std::uint32_t>& weights) const {
    Statistics result;
    result.fill(std::numeric_limits<double>::quiet_NaN());
    std::uint64_t total = 0;
    double sum = 0;
    for (const Value& value : values_) {
      total += weights[value.request];
      sum += value.ns * weights[value.request];
    }
    if (total == 0) return result;
    result[0] = sum / static_cast<double>(total);
    std::uint64_t seen = 0;  // copies before values_[at]
    std::size_t at = 0;
    for (std::size_t s = 1; s < kNumStatistics; ++s) {
      const double rank = kShares[s] * static_cast<double>(total - 1);
      const auto below = static_cast<std::uint64_t>(rank);
      while (seen + weights[values_[at].request] <= below) seen += weights[values_[at++].request];
      std::size_t next = at;
      if (below + 1 < total && seen + weights[values_[at].request] == below + 1) {
        do {
          ++next;
        } while (weights[values_[next].request] == 0);
      }
      const double fraction = rank - static_cast<double>(below);
      result[s] = values_[at].ns + (values_[next].ns - values_[at].ns) * fraction;
    }
    return result;
  }

 private:
  std::vector<Value> values_;
};

double distance(const Sample& a, const Sample& b) {
  double largest = 0;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    const double next = std::min(a.values()[i].ns, b.values()[j].ns);
    while (i < a.size() && a.values()[i].ns <= next) ++i;
    while (j < b.size() && b.values()[j].ns <= next) ++j;
    const double share_a = static_cast<double>(i) / static_cast<double>(a.size());
    const double share_b = static_cast<double>(j) / static_cast<double>(b.size());
    largest = std::max(largest, std::abs(share_a - share_b));
  }
  return largest;
}

struct Metric {
  const char* name;
  // Calls add(value in ns) for each value of a request.
  void (*visit)(const ObservedRequest& request, const std::function<void(double)>& add);
};

const Metric kMetrics[] = {
    {"ttft",
     [](const ObservedRequest& r, const std::function<void(double)>& add) {
       if (r.ttft_ns != kNoTime) add(static_cast<double>(r.ttft_ns));
     }},
    {"tpot",
     [](const ObservedRequest& r, const std::function<void(double)>& add) {
       if (r.has_tpot()) add(r.tpot_ns());
     }},
    {"itl",
     [](const ObservedRequest& r, const std::function<void(double)>& add) {
       for (const TimeNs gap : r.gaps) add(static_cast<double>(gap));
     }},
    {"e2el",
     [](const ObservedRequest& r, const std::function<void(double)>& add) {
       if (r.e2el_ns != kNoTime) add(static_cast<double>(r.e2el_ns));
     }},
};

Sample sample_of(const ObservedRun& run, const Metric& metric) {
  std::vector<Value> values;
  for (std::size_t i = 0; i < run.requests.size(); ++i) {
    metric.visit(run.requests[i], [&](double ns) {
      values.push_back({ns, static_cast<std::uint32_t>(i)});
    });
  }
  return Sample(std::move(values));
}

bool are_same_requests(const ObservedRun& a, const ObservedRun& b) {
  return std::equal(a.requests.begin(), a.requests.end(), b.requests.begin(), b.requests.end(),
                    [](const ObservedRequest& x, const ObservedRequest& y) {
                      return x.num_prompt_tokens == y.num_prompt_tokens &&
                             x.num_output_tokens == y.num_output_tokens;
                    });
}

// How often each of n requests is drawn in n draws with replacement.
void draw_weights(Rng& rng, std::vector<std::uint32_t>& weights) {
  std::fill(weights.begin(), weights.end(), 0);
  const auto last = static_cast<std::int64_t>(weights.size()) - 1;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    ++weights[static_cast<std::size_t>(rng.uniform_int(0, last))];
  }
}

constexpr auto kNsPerMsDouble = static_cast<double>(kNsPerMs);

std::string figure_key(const Metric& metric, std::size_t statistic) {
  return std::string(kStatistics[statistic]) + "_" + metric.name + "_ms";
}

FigureError figure_error(const Metric& metric, std::size_t statistic, double measured_ms,
                         double simulated_ms) {
  return {.figure = &figure(figure_key(metric, statistic)),
          .measured = measured_ms,
          .simulated = simulated_ms,
          .error = simulated_ms / measured_ms - 1};
}

// The errors of those statistics that the measured run has without its requests.
void compare_given_figures(const Metric& metric, const FigureValues& measured,
                           const ObservedRun& simulated, FigureComparison& comparison) {
  const Sample sample = sample_of(simulated, metric);
  if (sample.empty()) return;
  const Statistics simulated_ns =
      sample.statistics(std::vector<std::uint32_t>(simulated.requests.size(), 1));
  for (std::size_t s = 0; s < kNumStatistics; ++s) {
    const double measured_ms = measured.number(figure_key(metric, s));
    if (std::isnan(measured_ms)) continue;
    comparison.latencies.push_back(
        figure_error(metric, s, measured_ms, simulated_ns[s] / kNsPerMsDouble));
  }
}

// The errors of one metric's statistics, with their bands.
void compare_metric(const Metric& metric, const ObservedRun& measured, const ObservedRun& simulated,
                    int num_resamples, FigureComparison& comparison) {
  const Sample a = sample_of(measured, metric);
  const Sample b = sample_of(simulated, metric);
  if (a.empty() || b.empty()) return;
  comparison.distances.push_back({metric.name, distance(a, b)});
  std::vector<std::uint32_t> weights_a(measured.requests.size(), 1);
  std::vector<std::uint32_t> weights_b(simulated.requests.size(), 1);
  const Statistics measured_ns = a.statistics(weights_a);
  const Statistics simulated_ns = b.statistics(weights_b);
  std::array<std::vector<double>, kNumStatistics> errors;
  Rng rng(1, "validation");
  for (int n = 0; n < num_resamples; ++n) {
    draw_weights(rng, weights_a);
    if (comparison.is_paired) {
      weights_b = weights_a;
    } else {
      draw_weights(rng, weights_b);
    }
    const Statistics resampled_a = a.statistics(weights_a);
    const Statistics resampled_b = b.statistics(weights_b);
    for (std::size_t s = 0; s < kNumStatistics; ++s) {
      const double error = resampled_b[s] / resampled_a[s] - 1;
      if (std::isfinite(error)) errors[s].push_back(error);
    }
  }
  for (std::size_t s = 0; s < kNumStatistics; ++s) {
    FigureError error =
        figure_error(metric, s, measured_ns[s] / kNsPerMsDouble, simulated_ns[s] / kNsPerMsDouble);
    if (!errors[s].empty()) {
      std::sort(errors[s].begin(), errors[s].end());
      error.low = sorted_quantile(errors[s], 0.025);
      error.high = sorted_quantile(errors[s], 0.975);
    }
    comparison.latencies.push_back(error);
  }
}

// The figures of a result folder, but for throughputs: they count as a log of requests does. Of
// other runs only these are known.
FigureValues values_of(const ObservedRun& run) {
  FigureValues values;
  if (run.stored) values = ResultContent(run.stored->result).figures;
  if (run.requests.empty()) return run.client->figures;
  if (run.duration_ns == 0) return values;
  double num_prompt = 0;
  double num_output = 0;
  bool has_prompts = true;
  bool has_outputs = true;
  for (const ObservedRequest& request : run.requests) {
    num_prompt += request.num_prompt_tokens;
    num_output += request.num_output_tokens;
    has_prompts = has_prompts && request.num_prompt_tokens != kUnknownTokens;
    has_outputs = has_outputs && request.num_output_tokens != kUnknownTokens;
  }
  const double seconds = static_cast<double>(run.duration_ns) / static_cast<double>(kNsPerSecond);
  values.set("request_throughput", static_cast<double>(run.requests.size()) / seconds);
  if (has_outputs) values.set("output_throughput", num_output / seconds);
  if (has_prompts && has_outputs) {
    values.set("total_token_throughput", (num_prompt + num_output) / seconds);
  }
  return values;
}

void compare_others(const ObservedRun& measured, const ObservedRun& simulated,
                    FigureComparison& comparison) {
  const FigureValues a = values_of(measured);
  const FigureValues b = values_of(simulated);
  for (const std::string_view key : figures_of(FigureList::Validation)) {
    const double measured_value = a.number(key);
    const double simulated_value = b.number(key);
    if (std::isnan(measured_value) || std::isnan(simulated_value)) continue;
    comparison.others.push_back({.figure = &figure(key),
                                 .measured = measured_value,
                                 .simulated = simulated_value,
                                 .error = simulated_value / measured_value - 1});
  }
}

}  // namespace

double FigureComparison::mean_abs_error() const {
  double sum = 0;
  int count = 0;
  for (const FigureError& figure : latencies) {
    if (figure.metric() == "itl") continue;
    sum += std::abs(figure.error);
    ++count;
  }
  return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / count;
}

const FigureError& FigureComparison::worst() const {
  METRONOME_CHECK(!latencies.empty(), "every run has latencies");
  return *std::max_element(latencies.begin(), latencies.end(),
                           [](const FigureError& a, const FigureError& b) {
                             return std::abs(a.error) < std::abs(b.error);
                           });
}

FigureComparison compare_figures(const ObservedRun& measured, const ObservedRun& simulated,
                                 int num_resamples) {
  if (num_resamples == 0) {
    // A resample visits every gap a few times. Large runs get fewer resamples, to limit the time to
    // some seconds.
    std::size_t num_values = 0;
    for (const ObservedRun* run : {&measured, &simulated}) {
      for (const ObservedRequest& request : run->requests) num_values += 3 + request.gaps.size();
    }
    constexpr std::size_t kWork = 400'000'000;
    num_resamples = static_cast<int>(std::clamp<std::size_t>(kWork / num_values, 100, 1000));
  }
  FigureComparison comparison;
  comparison.has_requests = !measured.requests.empty();
  comparison.is_paired = are_same_requests(measured, simulated);
  for (const Metric& metric : kMetrics) {
    if (comparison.has_requests) {
      compare_metric(metric, measured, simulated, num_resamples, comparison);
    } else {
      compare_given_figures(metric, measured.client->figures, simulated, comparison);
    }
  }
  if (comparison.latencies.empty()) {
    throw ConfigError(measured.path + ": has no latency that " + simulated.path +
                      " has, too; allowed: at least one of TTFT, TPOT, ITL and E2EL");
  }
  compare_others(measured, simulated, comparison);
  return comparison;
}

FigureComparison compare_later_figures(const ObservedRun& measured, const ObservedRun& simulated,
                                       TimeNs after_ns) {
  const auto fail = [&](const std::string& what) {
    throw ConfigError(measured.path + ": " + what + " " + simulated.path);
  };
  if (!are_same_requests(measured, simulated)) {
    fail("cannot be compared from a later time on; allowed: the same requests as in");
  }
  ObservedRun later_measured;
  ObservedRun later_simulated;
  for (std::size_t i = 0; i < measured.requests.size(); ++i) {
    if (measured.requests[i].first_token <= after_ns) continue;
    later_measured.requests.push_back(measured.requests[i]);
    later_simulated.requests.push_back(simulated.requests[i]);
  }
  if (later_measured.requests.empty()) fail("has no later first token to compare with");
  FigureComparison comparison = compare_figures(later_measured, later_simulated);
  comparison.others.clear();
  return comparison;
}

}  // namespace metronome
