// SPDX-License-Identifier: Apache-2.0
#include "study/recorded/validate_log.h"

#include <iostream>
#include <memory>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "core/scenario/engine_setup.h"
#include "core/scenario/scenario.h"
#include "core/scenario/simulated_model.h"
#include "reports/compare/comparable.h"
#include "reports/terminal/text.h"
#include "sim/simulation.h"

namespace metronome {
namespace {

constexpr std::size_t kTextColumn = 12;

}  // namespace

LogValidation validate_log(const std::string& path, const Scenario& scenario,
                           const LogValidationOptions& options) {
  IterationLog log = read_iteration_log(path);
  if (options.iterations) keep_iterations(*options.iterations, log);
  LogValidation validation;
  validation.path = path;
  validation.num_iterations = static_cast<std::int64_t>(log.iterations.size());
  const ModelComparison models = compare_models(served_model(log.model), scenario_model(scenario));
  if (models.differs && !options.allows_differences) {
    throw ConfigError(printable(path) + ": " + printable(models.text) +
                      " as in SIMULATED; allowed: the same model, or --allow-differences");
  }
  if (models.differs) validation.difference = models.text;
  const LogStart start = options.iterations ? LogStart::First : LogStart::Found;
  validation.run = run_logged(scenario, log, start);
  validation.left_out = left_out_text(validation.run, log);
  if (!scenario.names_step_times()) return validation;
  const ModelConfig model = simulated_model(scenario);
  const std::unique_ptr<StepTimePredictor> predictor = make_step_predictor(scenario, model);
  validation.step_times =
      compare_step_times(validation.run.record, resolved_step_shape(scenario), *predictor,
                         static_cast<std::size_t>(validation.run.num_equal));
  return validation;
}

void LogValidation::print() const {
  std::cout << "measured    " << printable(path) << ", " << count_text(num_iterations, "iteration")
            << "\n";
  if (!difference.empty()) std::cout << "differs     " << printable(difference) << '\n';
  if (!left_out.empty()) {
    std::cout << "iterations  " << wrapped(left_out, kTextColumn, output_columns());
  }
  if (!run.first_difference) {
    std::cout << "decisions   the same in all"
              << (left_out.empty() ? " iterations\n"
                                   : " " + count_text(run.num_equal, "iteration") + " of them\n");
  } else {
    const LoggedRun::Difference& first = *run.first_difference;
    std::cout << "decisions   the same in " << grouped_text(run.num_equal)
              << " of them; then, in iteration " << first.logged.number << " (line "
              << first.logged.line << "):\n"
              << "  measured    " << composition_text(first.logged) << '\n'
              << "  simulated   " << simulated_text(first) << '\n';
  }
  if (step_times.empty()) return;
  std::cout << '\n'
            << step_error_table("step times", step_times) << "all of them took "
            << fixed_text(1 / (1 + step_times.back().total_error), 3)
            << " times as long as predicted; the logged time of an iteration includes the host's "
               "part\n";
}

std::string LogValidation::json() const {
  JsonText json(JsonText::Style::Indented);
  json.begin_object();
  json.field("measured", path);
  json.key("differences").begin_array();
  if (!difference.empty()) json.value(difference);
  json.end_array();
  json.key("decisions").begin_object();
  json.field("equal_steps", run.num_equal);
  json.field("measured_steps", num_iterations);
  json.field("left_out_before", static_cast<std::int64_t>(run.first));
  json.field("left_out_after", run.num_after);
  if (run.first_difference) {
    json.key("first_difference").begin_object();
    json.field("step", run.num_equal);
    json.field("iteration", run.first_difference->logged.number);
    json.field("line", run.first_difference->logged.line);
    json.field("measured", composition_text(run.first_difference->logged));
    json.field("simulated", simulated_text(*run.first_difference));
    json.end_object();
  }
  json.end_object();
  append_step_errors("step_times", step_times, json);
  json.end_object();
  json.end_line();
  return std::string(json.view());
}

}  // namespace metronome
