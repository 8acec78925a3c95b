// SPDX-License-Identifier: Apache-2.0
// How `metronome validate` evaluates a log of iterations.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/compare/validation.h"
#include "study/recorded/logged_run.h"

namespace metronome {

struct Scenario;

// The scenario's requests scheduled along the log, and the cost model's predictions for the steps
// on which they agree.
struct LogValidation {
  std::string path;
  std::int64_t num_iterations = 0;
  LoggedRun run;
  std::string left_out;                 // left_out_text()
  std::string difference;               // of the models; empty: none
  std::vector<RegimeError> step_times;  // of the iterations before the first difference

  bool has_same_decisions() const { return !run.first_difference; }
  void print() const;
  std::string json() const;
};

struct LogValidationOptions {
  std::optional<IterationRange> iterations;  // nullopt: those that the requests fit
  bool allows_differences = false;           // of the model
};

// Throws ConfigError, also for a log of another model.
LogValidation validate_log(const std::string& path, const Scenario& scenario,
                           const LogValidationOptions& options = {});

}  // namespace metronome
