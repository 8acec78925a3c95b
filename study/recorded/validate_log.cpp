#include "study/recorded/validate_log.h"

#include <iostream>
#include <memory>

#include "core/base/json_text.h"
#include "core/base/number_text.h"
#include "core/scenario/engine_setup.h"
#include "core/scenario/simulated_model.h"
#include "reports/terminal/text.h"
#include "sim/simulation.h"

namespace metronome {
namespace {

std::string logged_text(const LoggedIteration& logged) {
  return composition_text(logged.num_context_requests, logged.num_context_tokens,
                          logged.num_generation_requests, logged.num_generation_tokens);
}

std::string simulated_text(const LoggedRun::Difference& difference) {
  return difference.simulated.empty() ? "nothing to compute" : difference.simulated;
}

}  // namespace

LogValidation validate_log(const std::string& path, const Scenario& scenario) {
  const IterationLog log = read_iteration_log(path);
  LogValidation validation;
  validation.path = path;
  validation.num_iterations = static_cast<std::int64_t>(log.iterations.size());
  validation.run = run_logged(scenario, log);
  if (!scenario.names_step_times()) return validation;
  const ModelConfig model = simulated_model(scenario);
  const std::unique_ptr<StepTimePredictor> predictor = make_step_predictor(scenario, model);
  validation.step_times =
      compare_step_times(validation.run.record, resolved_step_shape(scenario), *predictor,
                         static_cast<std::size_t>(validation.run.num_equal));
  return validation;
}

void LogValidation::print() const {
  std::cout << "measured    " << printable(path) << ", " << grouped_text(num_iterations)
            << " iterations\n";
  if (!run.first_difference) {
    std::cout << "decisions   the same in all iterations\n";
  } else {
    const LoggedRun::Difference& difference = *run.first_difference;
    std::cout << "decisions   the same in " << grouped_text(run.num_equal)
              << " of them; then, in iteration " << difference.logged.number << " (line "
              << difference.logged.line << "):\n"
              << "  measured    " << logged_text(difference.logged) << '\n'
              << "  simulated   " << simulated_text(difference) << '\n';
  }
  if (step_times.empty()) return;
  std::cout << '\n'
            << step_error_table("step times", step_times)
            << "the logged time of an iteration includes the host's part\n";
}

std::string LogValidation::json() const {
  JsonText json(JsonText::Style::Indented);
  json.begin_object();
  json.field("measured", path);
  json.key("decisions").begin_object();
  json.field("equal_steps", run.num_equal);
  json.field("measured_steps", num_iterations);
  if (run.first_difference) {
    json.key("first_difference").begin_object();
    json.field("step", run.num_equal);
    json.field("iteration", run.first_difference->logged.number);
    json.field("line", run.first_difference->logged.line);
    json.field("measured", logged_text(run.first_difference->logged));
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
