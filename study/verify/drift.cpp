// SPDX-License-Identifier: Apache-2.0
#include "study/verify/drift.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <vector>

#include "core/base/distribution.h"
#include "core/base/rng.h"

namespace metronome {
namespace {

using Composition = std::array<std::int64_t, 4>;
using Times = std::map<Composition, std::vector<double>>;

Times times_of(const EngineLog& log) {
  Times times;
  for (const LogObservation& seen : log.observations) {
    if (seen.kind != Observed::Iteration || !seen.is_plausible()) continue;
    times[{seen.num_prefill_requests, seen.num_prefill_tokens, seen.num_running,
           seen.num_decode_tokens}]
        .push_back(static_cast<double>(seen.elapsed_ns));
  }
  return times;
}

double sum_of(const Times& times) {
  double sum = 0;
  for (const auto& [composition, sample] : times) {
    for (const double ns : sample) sum += ns;
  }
  return sum;
}

// The time of one composition's steps, as many as the rarer log has.
struct Pair {
  double before_ns = 0;
  double after_ns = 0;
};

double ratio_of(const std::vector<Pair>& pairs) {
  Pair sum;
  for (const Pair& pair : pairs) {
    sum.before_ns += pair.before_ns;
    sum.after_ns += pair.after_ns;
  }
  return sum.after_ns / sum.before_ns;
}

void find_band(const std::vector<Pair>& pairs, StepDrift& drift) {
  constexpr int kResamples = 1000;
  if (pairs.size() < 2) return;
  Rng rng(1, "drift");
  const auto last = static_cast<std::int64_t>(pairs.size()) - 1;
  std::vector<double> ratios;
  std::vector<Pair> resample(pairs.size());
  for (int n = 0; n < kResamples; ++n) {
    for (Pair& pair : resample) pair = pairs[static_cast<std::size_t>(rng.uniform_int(0, last))];
    ratios.push_back(ratio_of(resample));
  }
  std::sort(ratios.begin(), ratios.end());
  drift.low = sorted_quantile(ratios, 0.025);
  drift.high = sorted_quantile(ratios, 0.975);
}

}  // namespace

StepDrift step_drift(const EngineLog& before, const EngineLog& after) {
  const Times all_before = times_of(before);
  Times all_after = times_of(after);
  StepDrift drift;
  std::vector<Pair> pairs;
  Pair common;
  for (const auto& [composition, times] : all_before) {
    const auto same = all_after.find(composition);
    if (same == all_after.end()) continue;
    std::vector<double> first = times;
    std::vector<double> second = same->second;
    const auto count = static_cast<double>(std::min(first.size(), second.size()));
    for (const double ns : first) common.before_ns += ns;
    for (const double ns : second) common.after_ns += ns;
    for (std::vector<double>* sample : {&first, &second}) std::sort(sample->begin(), sample->end());
    pairs.push_back({count * sorted_quantile(first, 0.5), count * sorted_quantile(second, 0.5)});
    ++drift.num_compositions;
    drift.num_before += std::ssize(first);
    drift.num_after += std::ssize(second);
  }
  if (pairs.empty()) return drift;
  drift.ratio = ratio_of(pairs);
  drift.share_before = common.before_ns / sum_of(all_before);
  drift.share_after = common.after_ns / sum_of(all_after);
  find_band(pairs, drift);
  return drift;
}

}  // namespace metronome
