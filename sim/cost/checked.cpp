// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/checked.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/core.h>
#include <numeric>
#include <span>
#include <system_error>
#include <vector>

#include "core/base/number_chars.h"
#include "sim/cost/csv_table.h"

namespace metronome {

extern const std::string_view kCheckedCsv;  // sim/catalogue/checked.csv

namespace {

// The weight of a measured run of the same family, and what a difference takes of a weight. Fitted
// to the values of checked.csv, where families, numbers of GPUs, and groups of a family were left
// out one at a time, so that the sum of the bands' interval scores (Gneiting and Raftery, JASA 102,
// 2007) is the least; rounded. Tried on those that were left out: tests/sim/cost/test_checked.cpp.
constexpr double kSameFamily = 6;
constexpr double kOtherModel = 0.2;
constexpr double kOtherEngine = 0.25;
constexpr double kOtherHardware = 0.4;
constexpr double kOtherWeights = 0.5;
constexpr double kOtherKind = 0.6;  // a mixture of experts for a dense model, or the reverse
constexpr double kPerDoubledGpus = 0.6;
constexpr double kPerQuadrupledClients = 0.25;
// The shares of weight below the ends of a band: nine tenths are between them.
constexpr double kLowShare = 0.05;
constexpr double kHighShare = 0.95;

// A value with the weight of its run.
struct CheckedError {
  double error = 0;  // measured / simulated - 1
  std::size_t group = 0;
};

struct CheckedGroup {
  CheckedRun run;
  std::size_t num_values = 0;
};

struct CheckedErrors {
  std::vector<CheckedGroup> groups;
  std::vector<CheckedError> tpot, ttft;  // ascending
};

// Of numbers in per cent, simulated / measured - 1.
void read_errors(const CsvTable& csv, std::string_view column, std::size_t group,
                 std::vector<CheckedError>& errors) {
  std::string_view rest = csv.text(column);
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    double percent = -100;
    const auto [at, error] = read_number(rest.data(), rest.data() + end, percent);
    if (error != std::errc() || at != rest.data() + end || percent <= -100) {
      csv.fail(column, "is no list of errors");
    }
    errors.push_back({1 / (1 + percent / 100) - 1, group});
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

CheckedErrors read_checked() {
  CsvTable csv(kCheckedCsv, "checked.csv",
               {"cost_model", "hardware", "model", "kind", "weights", "engine",
                "tensor_parallel_size", "clients", "tpot", "ttft"});
  CheckedErrors all;
  while (csv.next()) {
    const std::size_t group = all.groups.size();
    const std::size_t num_before = all.tpot.size();
    read_errors(csv, "tpot", group, all.tpot);
    read_errors(csv, "ttft", group, all.ttft);
    all.groups.push_back(
        {{.cost_model = std::string(csv.text("cost_model")),
          .hardware = std::string(csv.text("hardware")),
          .model = std::string(csv.text("model")),
          .has_experts = csv.text("kind") == "experts",
          .weights = std::string(csv.text("weights")),
          .engine = std::string(csv.text("engine")),
          .tensor_parallel_size = static_cast<std::int64_t>(csv.amount("tensor_parallel_size")),
          .num_in_system = csv.amount("clients")},
         all.tpot.size() - num_before});
  }
  for (std::vector<CheckedError>* errors : {&all.tpot, &all.ttft}) {
    std::stable_sort(
        errors->begin(), errors->end(),
        [](const CheckedError& a, const CheckedError& b) { return a.error < b.error; });
  }
  return all;
}

const CheckedErrors& all_checked() {
  static const CheckedErrors all = read_checked();
  return all;
}

// The largest power of `base` that is at most `amount`, as an exponent.
int floor_log(double amount, double base) {
  int exponent = 0;
  for (double power = base; power <= amount; power *= base) ++exponent;
  return exponent;
}

bool is_one_family(const CheckedRun& a, const CheckedRun& b) {
  return a.model == b.model && a.hardware == b.hardware && a.weights == b.weights &&
         a.engine == b.engine;
}

// 0: the measured run does not count.
double weight_of(const CheckedRun& run, const CheckedRun& measured) {
  if (run.cost_model != measured.cost_model) return 0;
  double weight = is_one_family(run, measured) ? kSameFamily : 1;
  if (run.model != measured.model) weight *= kOtherModel;
  if (run.engine != measured.engine) weight *= kOtherEngine;
  if (run.hardware != measured.hardware) weight *= kOtherHardware;
  if (run.weights != measured.weights) weight *= kOtherWeights;
  if (run.has_experts != measured.has_experts) weight *= kOtherKind;
  const auto take = [&weight](double share, int from, int to) {
    for (int i = 0; i < std::abs(to - from); ++i) weight *= share;
  };
  const auto gpus = [](const CheckedRun& one) {
    return floor_log(static_cast<double>(one.tensor_parallel_size), 2);
  };
  take(kPerDoubledGpus, gpus(run), gpus(measured));
  if (run.num_in_system > 0 && measured.num_in_system > 0) {
    take(kPerQuadrupledClients, floor_log(run.num_in_system, 4),
         floor_log(measured.num_in_system, 4));
  }
  return weight;
}

// Weighted quantiles: a value's share is that of the weight below it and half its own.
ErrorBand band_of(std::span<const CheckedError> errors, std::span<const double> weights) {
  double total = 0;
  for (const CheckedError& error : errors) total += weights[error.group];
  const auto quantile = [&](double share) {
    double below = 0;
    const CheckedError* last = nullptr;
    double last_share = 0;
    for (const CheckedError& error : errors) {
      const double weight = weights[error.group];
      if (weight == 0) continue;
      const double at = (below + weight / 2) / total;
      if (at >= share) {
        if (last == nullptr) return error.error;
        const double part = (share - last_share) / (at - last_share);
        return last->error + part * (error.error - last->error);
      }
      below += weight;
      last = &error;
      last_share = at;
    }
    return last->error;
  };
  return {quantile(kLowShare), quantile(kHighShare)};
}

std::string group_text(const CheckedRun& run) {
  std::string text = run.model;
  if (run.weights != "plain") text += " in " + run.weights;
  text += run.tensor_parallel_size > 1
              ? fmt::format(" on {} {}", run.tensor_parallel_size, run.hardware)
              : " on " + run.hardware;
  return text + " with " + run.engine;
}

std::vector<double> weights_of(const CheckedRun& run) {
  std::vector<double> weights;
  for (const CheckedGroup& group : all_checked().groups) {
    weights.push_back(weight_of(run, group.run));
  }
  return weights;
}

}  // namespace

CheckedRun checked_run(std::string_view cost_model, const HardwareSpec& hardware,
                       const ModelConfig& model, std::string_view policy,
                       std::int64_t tensor_parallel_size) {
  const bool has_experts = model.n_experts > 0;
  return {
      .cost_model = std::string(cost_model),
      .hardware = hardware.name,
      .model = model.name,
      .has_experts = has_experts,
      .weights = std::string(to_string(has_experts ? model.expert_format : model.linear_format)),
      .engine = std::string(policy),
      .tensor_parallel_size = tensor_parallel_size};
}

std::string unchecked_warning(const CheckedRun& run) {
  if (run.cost_model != "roofline" && run.cost_model != "operators") return {};
  const std::vector<CheckedGroup>& all = all_checked().groups;
  const auto any = [&](auto is_near) {
    return std::any_of(all.begin(), all.end(), [&](const CheckedGroup& group) {
      return group.run.cost_model == run.cost_model && group.run.hardware == run.hardware &&
             is_near(group.run);
    });
  };
  std::string what;
  if (!any([](const CheckedRun&) { return true; })) {
    what = "of this GPU";
  } else if (run.has_experts && !any([](const CheckedRun& near) { return near.has_experts; })) {
    what = "of a mixture of experts on this GPU";
  } else if (run.weights != to_string(WeightFormat::Plain) &&
             !any([&](const CheckedRun& near) { return near.weights == run.weights; })) {
    what = "with " + run.weights + " weights on this GPU";
  } else if (run.tensor_parallel_size > 1 && !any([&](const CheckedRun& near) {
               return 2 * near.tensor_parallel_size >= run.tensor_parallel_size;
             })) {
    what = "of so many GPUs";
  }
  if (what.empty()) return {};
  return run.hardware + ": " + run.cost_model + " times " + what +
         " were never compared with a measured run (docs/accuracy.md)";
}

std::optional<TimeAccuracy> accuracy_near(const CheckedRun& run) {
  const CheckedErrors& all = all_checked();
  const std::vector<double> weights = weights_of(run);
  const auto most = std::max_element(weights.begin(), weights.end());
  if (most == weights.end() || *most == 0) return std::nullopt;
  const CheckedRun& nearest = all.groups[static_cast<std::size_t>(most - weights.begin())].run;
  TimeAccuracy accuracy;
  accuracy.nearest = group_text(nearest);
  for (const CheckedGroup& group : all.groups) {
    const bool is_nearest = group.run.cost_model == run.cost_model &&
                            is_one_family(group.run, nearest) &&
                            group.run.tensor_parallel_size == nearest.tensor_parallel_size;
    if (is_nearest) accuracy.num_values += static_cast<std::int64_t>(group.num_values);
  }
  accuracy.tpot = band_of(all.tpot, weights);
  accuracy.ttft = band_of(all.ttft, weights);
  double sum = 0;
  double total = 0;
  for (const CheckedError& error : all.tpot) {
    sum += weights[error.group] * std::fabs(error.error);
    total += weights[error.group];
  }
  accuracy.mean_tpot_error = sum / total;
  return accuracy;
}

void leave_out(LeftOut what, const std::function<void(const LeftOutValue&)>& take) {
  const CheckedErrors& all = all_checked();
  for (std::size_t g = 0; g < all.groups.size(); ++g) {
    const CheckedRun& run = all.groups[g].run;
    std::vector<double> weights = weights_of(run);
    for (std::size_t other = 0; other < weights.size(); ++other) {
      const bool is_left_out =
          what == LeftOut::Families ? is_one_family(run, all.groups[other].run) : other == g;
      if (is_left_out) weights[other] = 0;
    }
    if (std::accumulate(weights.begin(), weights.end(), 0.0) == 0) continue;
    const ErrorBand tpot = band_of(all.tpot, weights);
    const ErrorBand ttft = band_of(all.ttft, weights);
    const auto values_of = [g](std::span<const CheckedError> errors) {
      std::vector<double> values;
      for (const CheckedError& error : errors) {
        if (error.group == g) values.push_back(error.error);
      }
      return values;
    };
    const std::vector<double> tpots = values_of(all.tpot);
    const std::vector<double> ttfts = values_of(all.ttft);
    for (std::size_t i = 0; i < tpots.size(); ++i) {
      take({run, tpot.low <= tpots[i] && tpots[i] <= tpot.high,
            ttft.low <= ttfts[i] && ttfts[i] <= ttft.high});
    }
  }
}

}  // namespace metronome
