// SPDX-License-Identifier: Apache-2.0
// Did a change of settings do what was promised? Compares a server's runs before and after it, and
// takes the drift of the machine out.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/metrics/figures.h"
#include "engines/log/engine_log.h"
#include "reports/compare/observed_run.h"
#include "study/verify/advice.h"
#include "study/verify/drift.h"

namespace metronome {

// Records of runs under one setting. With logs and results there are as many of both, and the
// n-th of them belong together.
struct VerifiedSide {
  std::vector<EngineLog> logs;
  std::vector<ObservedRun> results;

  std::size_t num_turns() const { return std::max(logs.size(), results.size()); }
};

// Reads logs of a server and results of clients (read_observed_run), which their content tells
// apart. `iterations` are those of the logs to take. Throws ConfigError for a file that is none of
// these, and UsageError where logs and results do not belong together.
VerifiedSide read_side(const std::string& option, const std::vector<std::string>& paths,
                       const std::optional<IterationRange>& iterations);

// A value of each turn, as their mean.
struct TurnMean {
  double mean = 0;
  double low = 0;  // of the turns
  double high = 0;
};

struct VerifiedFigure {
  const Figure* figure = nullptr;
  TurnMean before;
  std::optional<double> simulated_before;
  TurnMean after;
  TurnMean without_drift;  // `after`, where a duration is divided by its turn's drift
  std::optional<double> promised;
  double error = 0;     // promised / without_drift - 1, if there is a promise
  bool is_kept = true;  // no worse than promised by more than the tolerance
};

struct Verification {
  std::vector<std::string> before, after;  // what was read, a line each
  std::vector<std::string> settings;       // what differs between them: "--max-num-seqs 64 -> 32"
  std::vector<std::string> remarks;        // on what weakens the comparison
  std::vector<StepDrift> drifts;           // of each turn; empty: there are no logs of iterations
  std::vector<VerifiedFigure> figures;     // that both sides have
  std::vector<std::string> not_measured;   // keys of promised figures that both sides lack
  std::optional<double> limit_ms;          // of every gap
  std::optional<TurnMean> longest_ms;      // the longest gap after, without drift
  double tolerance = 0;

  bool has_promises() const;
  bool keeps_limit() const { return !limit_ms || !longest_ms || longest_ms->mean <= *limit_ms; }
  // Every promise that was measured is kept, and at least one was.
  bool came_true() const;
  std::string text(std::size_t columns) const;
  std::string json() const;
};

struct VerifyOptions {
  Advice advice;
  double tolerance = 0.2;
  bool allows_differences = false;  // from the advised settings
};

// Requires as many turns on both sides. Throws ConfigError if the server did not have the advised
// settings, unless that is allowed, and if nothing can be compared.
Verification verify(const VerifiedSide& before, const VerifiedSide& after,
                    const VerifyOptions& options);

}  // namespace metronome
