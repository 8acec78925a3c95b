// SPDX-License-Identifier: Apache-2.0
// Compares a simulated run with a measured one: decisions, step times, and the latency and
// throughput figures.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/engine_choices.h"
#include "core/engine/step_predictor.h"
#include "core/metrics/figures.h"
#include "core/metrics/step_regime.h"
#include "reports/compare/observed_run.h"

namespace metronome {

// One figure of both runs. `error` is simulated / measured - 1. `low` and `high` bound it in 95 of
// 100 resamples of the requests.
struct FigureError {
  const Figure* figure = nullptr;  // of the table
  double measured = 0;
  double simulated = 0;
  double error = 0;
  std::optional<double> low = std::nullopt;
  std::optional<double> high = std::nullopt;

  // "ttft", "tpot", "itl", "e2el"; "output_throughput", ...
  std::string_view metric() const {
    return figure->distribution.empty() ? std::string_view(figure->key) : figure->distribution;
  }
  // "mean", "p50", "p90", "p95", "p99"; empty: the metric has none.
  std::string_view statistic() const {
    return figure->distribution.empty() ? std::string_view() : figure->shown.name;
  }
};

// The distance between two distributions: the largest difference of their cumulative shares
// (Kolmogorov-Smirnov), 0 to 1.
struct MetricDistance {
  std::string metric;
  double distance = 0;
};

struct FigureComparison {
  // False: the measured run has figures alone. Then there are no bands and no distances.
  bool has_requests = true;
  bool is_paired = false;              // same requests in both, by their token counts in order
  std::vector<FigureError> latencies;  // metric by metric, each with all statistics
  std::vector<FigureError> others;     // FigureList::Validation, of those that both runs have
  std::vector<MetricDistance> distances;

  // Mean of |error| over the figures of TTFT, TPOT and E2EL, the measure that simulators of serving
  // engines publish. NaN if there are none.
  double mean_abs_error() const;
  // The latency figure with the largest error.
  const FigureError& worst() const;
};

// Makes `num_resamples` seeded resamples (0: chosen by the size). Metrics that one run did not
// record are left out. Throws ConfigError if these are all latencies.
FigureComparison compare_figures(const ObservedRun& measured, const ObservedRun& simulated,
                                 int num_resamples = 0);

// Compares requests whose first token came after `after_ns` in the measured run, by latencies
// alone. Throws ConfigError if the two runs have different requests or no first token came later.
FigureComparison compare_later_figures(const ObservedRun& measured, const ObservedRun& simulated,
                                       TimeNs after_ns);

// Whether two runs made the same decisions: the same chunks in every step.
struct DecisionComparison {
  std::int64_t num_steps_measured = 0;
  std::int64_t num_steps_simulated = 0;
  std::int64_t num_equal = 0;  // steps before the first difference
  struct Difference {
    std::int64_t step = 0;
    std::string measured;  // its chunks; empty: the run has no such step
    std::string simulated;
  };
  std::optional<Difference> first_difference;
};
DecisionComparison compare_decisions(const RunRecord& measured, StepShape measured_shape,
                                     const RunRecord& simulated, StepShape simulated_shape);

// Whether the simulated steps agree with a log's instants. Tokens with one instant came from one
// step, and tokens with later instants from later steps.
struct TimestampComparison {
  std::int64_t num_timestamps = 0;  // first and last tokens
  std::int64_t num_linked = 0;      // tokens that share their instant with another token
  std::int64_t num_violated = 0;
  std::vector<std::string> violations;  // the first few, as text
};
TimestampComparison compare_timestamps(const ObservedRun& log, const RunRecord& simulated);

// The cost model's predictions for the first `num_steps` measured steps, independent of the
// simulated run's decisions.
std::vector<RegimeError> compare_step_times(const RunRecord& measured, StepShape shape,
                                            StepTimePredictor& predictor,
                                            std::size_t num_steps = SIZE_MAX);

}  // namespace metronome
