// How far a simulated run is from a measured one: decisions, step times, and the figures that users
// see.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/step_predictor.h"
#include "core/metrics/step_regime.h"
#include "core/scenario/scenario.h"
#include "reports/compare/observed_run.h"

namespace metronome {

// One figure of both runs. `error` is simulated / measured - 1; low and high are where it lies in
// 95 of 100 resamples of the requests.
struct FigureError {
  std::string metric;     // "ttft", "tpot", "itl", "e2el"; "output_throughput", ...
  std::string statistic;  // "mean", "p50", "p90", "p95", "p99"; empty for throughput
  double measured = 0;    // milliseconds, or per second
  double simulated = 0;
  double error = 0;
  std::optional<double> low;
  std::optional<double> high;
};

// How far two distributions are apart: the largest difference of their cumulative shares
// (Kolmogorov-Smirnov), 0 to 1.
struct MetricDistance {
  std::string metric;
  double distance = 0;
};

struct FigureComparison {
  bool is_paired = false;              // the same requests in both, by their token counts in order
  std::vector<FigureError> latencies;  // metric by metric, each with all statistics
  std::vector<FigureError> throughputs;  // request, output, total
  std::vector<MetricDistance> distances;

  // Mean of |error| over the figures of TTFT, TPOT and E2EL: the measure that simulators of
  // serving engines publish. NaN when there are none.
  double mean_abs_error() const;
  // The figure of latencies that is furthest off.
  const FigureError& worst() const;
};

// Resamples `num_resamples` times (0: chosen by the size), seeded; metrics that one run did not
// record are left out.
FigureComparison compare_figures(const ObservedRun& measured, const ObservedRun& simulated,
                                 int num_resamples = 0);

// The same for the requests whose first token came later than `after_ns` in the measured run, and
// without throughputs. Throws ConfigError where the requests of the two runs are not the same, or
// none came later.
FigureComparison compare_later_figures(const ObservedRun& measured, const ObservedRun& simulated,
                                       TimeNs after_ns);

// Whether two runs made the same decisions: the same chunks in every step.
struct DecisionComparison {
  std::int64_t num_steps_measured = 0;
  std::int64_t num_steps_simulated = 0;
  std::int64_t num_equal = 0;  // steps before the first difference
  struct Difference {
    std::int64_t step = 0;
    std::string measured;  // its chunks; empty: there is no such step
    std::string simulated;
  };
  std::optional<Difference> first_difference;
};
DecisionComparison compare_decisions(const RunRecord& measured, StepShape measured_shape,
                                     const RunRecord& simulated, StepShape simulated_shape);

// Tokens that a log saw at one instant came from one step, and later ones from later steps: whether
// the simulated steps agree.
struct TimestampComparison {
  std::int64_t num_timestamps = 0;  // first and last tokens
  std::int64_t num_linked = 0;      // that share their instant with another
  std::int64_t num_violated = 0;
  std::vector<std::string> violations;  // the first few, in words
};
TimestampComparison compare_timestamps(const ObservedRun& log, const RunRecord& simulated);

// Step times as a cost model predicts them for the steps that were measured, whatever the simulated
// run decided; of the first `num_steps`.
std::vector<RegimeError> compare_step_times(const RunRecord& measured, StepShape shape,
                                            StepTimePredictor& predictor,
                                            std::size_t num_steps = SIZE_MAX);

}  // namespace metronome
