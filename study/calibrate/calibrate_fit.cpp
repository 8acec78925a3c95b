// SPDX-License-Identifier: Apache-2.0
#include "study/calibrate/calibrate_fit.h"

#include <fmt/core.h>
#include <memory>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "sim/fitted/fitted_file.h"
#include "sim/replay/replay_file.h"
#include "study/calibrate/calibrate_text.h"

namespace metronome {
namespace {

double predicted_ns(const FittedForm& form, const MeasuredStep& step) {
  double ns = 0;
  for (const StepFeatures& pass : step.passes) ns += form.pass_ns(pass);
  return ns;
}

// A form that is faster than the hardware is wrong there. Or it was fitted to times in another
// unit, of another model or of other hardware.
void check_floor(const CalibrationSteps& measured, const FittedForm& form) {
  constexpr double kRounding = 1;  // floors are whole nanoseconds
  for (std::size_t i = 0; i < measured.floors_ns.size(); ++i) {
    const double ns = predicted_ns(form, measured.steps[i]);
    if (ns + kRounding >= measured.floors_ns[i]) continue;
    throw ConfigError(measured.names[i] + ": the fit predicts " + microseconds_text(ns) +
                      " (measured " + microseconds_text(measured.steps[i].ns) + "), but " +
                      measured.spec->name + " needs at least " +
                      microseconds_text(measured.floors_ns[i]) +
                      "; allowed: times, model and hardware that match");
  }
}

// Checks that contexts are known, which tell steps apart, and that all steps come from one run.
void check_replay(const CalibrationSteps& measured) {
  constexpr const char* kAllowedRun =
      "; allowed: the result folder of one run, or one log of iterations with --scenario FILE";
  if (measured.sources.size() > 1) {
    throw UsageError(fmt::format("--kind: replay stores the steps of one run, not of {} ({}){}",
                                 measured.sources.size(), joined_names(measured.sources),
                                 kAllowedRun));
  }
  if (measured.recorded.empty()) {
    throw UsageError("--kind: replay cannot distinguish the steps of " + measured.sources.front() +
                     ": it does not say at which position each chunk began" + kAllowedRun);
  }
}

}  // namespace

CostModelFile Calibration::file() const {
  CostModelFile file;
  file.kind = kind == FitKind::Replay ? "replay" : "fitted";
  file.hardware = measured.hardware;
  file.model = measured.model.name;
  file.tensor_parallel_size = measured.tensor_parallel_size;
  file.engine = measured.engine;
  file.source = "steps of " + joined_names(measured.sources);
  file.body = std::make_shared<const Json>(
      kind == FitKind::Replay ? replay_body(measured.recorded, fit.model, measured.model)
                              : fitted_body(fit.model, measured.model));
  return file;
}

Calibration calibrate_from_steps(const std::vector<std::string>& sources,
                                 const CalibrationSetup& setup, FitKind kind) {
  return calibrate_steps(read_calibration_steps(sources, setup), kind);
}

Calibration calibrate_steps(CalibrationSteps steps, FitKind kind) {
  Calibration calibration;
  calibration.measured = std::move(steps);
  calibration.kind = kind;
  const CalibrationSteps& measured = calibration.measured;
  if (kind == FitKind::Replay) check_replay(measured);
  calibration.fit = fit_steps(measured.steps);
  calibration.gap = fit_gaps(measured.gaps);
  FittedModel& fitted = calibration.fit.model;
  if (const std::optional<GapFit>& gap = calibration.gap) {
    fitted.host_gap_ns = gap->grows_with_chunks() ? gap->base_ns : gap->constant_ns;
    fitted.host_gap_chunk_ns = gap->grows_with_chunks() ? gap->chunk_ns : 0;
  }
  fitted.knows_contexts = measured.knows_contexts;
  check_floor(measured, fitted.form);
  return calibration;
}

}  // namespace metronome
