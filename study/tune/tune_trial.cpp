// SPDX-License-Identifier: Apache-2.0
#include "study/tune/tune_trial.h"

#include <algorithm>
#include <boost/math/distributions/beta.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "core/scenario/fleet_groups.h"
#include "core/scenario/scenario.h"

namespace metronome {
namespace {

namespace bm = boost::math;

// Not in long double. Boost would set up its constants when any command starts, which takes time
// and ends a process under valgrind.
using Doubles = bm::policies::policy<bm::policies::promote_double<false>>;
using Beta = bm::beta_distribution<double, Doubles>;
using Normal = bm::normal_distribution<double, Doubles>;
using StudentsT = bm::students_t_distribution<double, Doubles>;

constexpr double kSure = 0.95;  // confidence of each of the two bounds
// Batches per run. Neighbours among many short batches may still depend on each other. A few long
// batches reveal that, but give a poor estimate themselves.
constexpr std::size_t kBatchesOfRun[] = {10, 5};
constexpr double kBatchStays = 2;

// The share of good requests in each batch.
std::vector<double> batch_shares(const TuneTrial& trial, std::size_t batches_of_run) {
  const std::size_t num_batches =
      std::min(trial.num_runs * batches_of_run, std::max<std::size_t>(trial.good.size(), 1));
  std::vector<double> shares;
  for (std::size_t b = 0; b < num_batches; ++b) {
    const auto begin = static_cast<std::ptrdiff_t>(b * trial.good.size() / num_batches);
    const auto end = static_cast<std::ptrdiff_t>((b + 1) * trial.good.size() / num_batches);
    const auto num_good =
        std::accumulate(trial.good.begin() + begin, trial.good.begin() + end, std::int64_t{0});
    shares.push_back(static_cast<double>(num_good) / static_cast<double>(end - begin));
  }
  return shares;
}

struct MeanAndError {
  double mean = 0;
  double variance = 0;  // of the mean
};

MeanAndError mean_and_error(const std::vector<double>& values) {
  const auto size = static_cast<double>(values.size());
  MeanAndError result;
  result.mean = std::accumulate(values.begin(), values.end(), 0.0) / size;
  for (const double value : values) result.variance += std::pow(value - result.mean, 2);
  result.variance /= size * (size - 1);
  return result;
}

double t_quantile(std::size_t num_batches) {
  return bm::quantile(StudentsT(static_cast<double>(num_batches - 1)), kSure);
}

bool has_batches(const TuneTrial& trial) { return trial.good.size() >= 2; }

Clustering clustering_of(const TuneTrial& trial) {
  Clustering greatest;
  const double p = trial.attainment;
  if (!has_batches(trial) || p <= 0 || p >= 1) return greatest;
  const double independent = p * (1 - p) / static_cast<double>(trial.good.size());
  for (const std::size_t batches_of_run : kBatchesOfRun) {
    const std::vector<double> shares = batch_shares(trial, batches_of_run);
    const double effect = mean_and_error(shares).variance / independent;
    if (effect > greatest.design_effect) greatest = {effect, shares.size()};
  }
  return greatest;
}

}  // namespace

FigureValues figures_of(const TuneTrial& trial, const Scenario& scenario) {
  Summary summary = trial.summary;
  summary.slo_attainment = trial.attainment;
  summary.request_goodput = trial.goodput;
  const ScenarioGpus gpus = gpus_of(scenario);
  const auto count = static_cast<double>(gpus.count);
  RunFacts facts;
  facts.num_gpus = count;
  if (gpus.price_per_hour) facts.price_per_gpu_hour = *gpus.price_per_hour / count;
  return {summary, facts};
}

bool served_alike(const TuneTrial& a, const TuneTrial& b) {
  const auto times = [](const TuneTrial& trial) {
    const Summary& summary = trial.summary;
    std::vector<double> all = {trial.load,          summary.output_throughput, trial.num_in_system,
                               summary.itl.mean_ms, summary.itl.std_ms,        summary.itl.max_ms};
    for (const auto* runs :
         {&trial.run_p99_ttft_ms, &trial.run_p99_itl_ms, &trial.run_mean_tpot_ms}) {
      all.insert(all.end(), runs->begin(), runs->end());
    }
    return all;
  };
  const std::vector<double> times_a = times(a);
  const std::vector<double> times_b = times(b);
  return a.num_simulated == b.num_simulated && a.good == b.good &&
         std::equal(times_a.begin(), times_a.end(), times_b.begin(), times_b.end(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

std::size_t requests_for_batches(const TuneTrial& trial) {
  const auto num_batches = static_cast<double>(trial.num_runs * kBatchesOfRun[0]);
  return static_cast<std::size_t>(std::ceil(num_batches * kBatchStays * trial.num_in_system));
}

Clustering clustering_near(const std::vector<TuneTrial>& trials, double load, double target) {
  constexpr double kMoreLoad = 1.2;
  constexpr double kTimesAsMany = 1.5;  // the allowed number of bad requests, times this
  Clustering greatest;
  const auto take = [&greatest](const TuneTrial& trial) {
    const Clustering own = clustering_of(trial);
    if (own.design_effect > greatest.design_effect) greatest = own;
  };
  const TuneTrial* nearest = nullptr;  // of the trials with too many bad requests
  for (const TuneTrial& trial : trials) {
    if (trial.load > kMoreLoad * load) continue;
    if (trial.attainment < target && trial.attainment > 0 &&
        (nearest == nullptr || trial.attainment > nearest->attainment)) {
      nearest = &trial;
    }
    if (1 - trial.attainment <= kTimesAsMany * (1 - target)) take(trial);
  }
  if (nearest != nullptr) take(*nearest);
  return greatest;
}

AttainmentBounds attainment_bounds(const TuneTrial& trial, const Clustering& near) {
  const Clustering own = clustering_of(trial);
  const Clustering& clustering = own.design_effect > near.design_effect ? own : near;
  const double freedom =
      std::pow(bm::quantile(Normal(), kSure) / t_quantile(clustering.num_batches), 2);
  const double size = static_cast<double>(trial.good.size()) / clustering.design_effect * freedom;
  const double num_good = trial.attainment * size;
  const double num_bad = size - num_good;
  AttainmentBounds bounds = {0, 1};
  if (trial.attainment > 0) {
    bounds.low = bm::quantile(Beta(num_good, num_bad + 1), 1 - kSure);
  }
  if (trial.attainment < 1) {
    bounds.high = bm::quantile(Beta(num_good + 1, num_bad), kSure);
  }
  return bounds;
}

bool is_good_more_often(const TuneTrial& a, const TuneTrial& b) {
  METRONOME_CHECK(a.good.size() == b.good.size() && a.num_runs == b.num_runs,
                  "trials that are compared served the same requests");
  if (!has_batches(a)) return false;
  return std::all_of(std::begin(kBatchesOfRun), std::end(kBatchesOfRun), [&](std::size_t batches) {
    std::vector<double> leads = batch_shares(a, batches);
    const std::vector<double> others = batch_shares(b, batches);
    for (std::size_t i = 0; i < leads.size(); ++i) leads[i] -= others[i];
    const MeanAndError lead = mean_and_error(leads);
    return lead.mean > t_quantile(leads.size()) * std::sqrt(lead.variance);
  });
}

bool is_lower(const std::vector<double>& a, const std::vector<double>& b) {
  METRONOME_CHECK(a.size() == b.size(), "runs that are compared served the same requests");
  if (a.size() < 2) return false;
  std::vector<double> leads = b;
  for (std::size_t i = 0; i < a.size(); ++i) leads[i] -= a[i];
  const MeanAndError lead = mean_and_error(leads);
  return lead.mean > t_quantile(leads.size()) * std::sqrt(lead.variance);
}

}  // namespace metronome
