// Running one variant of a scenario, and writing its files.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/event.h"
#include "core/output_log.h"
#include "core/run.h"
#include "core/run_record.h"
#include "core/scenario.h"
#include "core/workload.h"
#include "reports/result_files.h"
#include "reports/result_folder.h"

namespace metronome {

// Everything a run needs, looked up and drawn: what is wrong with it has been said by now.
struct PreparedVariant {
  Scenario scenario;
  std::unique_ptr<PreparedRun> run;
  std::shared_ptr<const Workload> workload;  // one for all variants that agree on it
};

// Throws ConfigError.
std::vector<PreparedVariant> prepare_variants(Backend& backend, std::vector<Scenario> scenarios);

// What a result says of a run that is not measured; its date is that of the call.
RunInfo run_info(const Backend& backend, const PreparedVariant& variant);
Summary summary_of(const PreparedVariant& variant, const RunRecord& record);

// What a result says of the scenario itself, whoever runs it: label, seed, workload, SLO and the
// resolved configuration.
RunInfo scenario_info(const Scenario& scenario, const Workload& workload);

struct VariantOutcome {
  RunResult result;
  RunRecord record;
  OutputLog outputs;
  // "5 of 5 requests can never fit; first: request 0: needs ...", one a reason.
  std::vector<std::string> warnings;
  double elapsed_ms = 0;  // wall time of the engine's loop, without writing
};

// `extra_sink` may be nullptr. Throws Interrupted when `progress` ends the run.
VariantOutcome run_variant(const Backend& backend, PreparedVariant& variant, EventSink* extra_sink,
                           const ProgressFn& progress);

// Simulates a variant whose step times are noisy as often as its `cost_model.noise_seeds` asks, of
// which run_variant() gave the first, and adds the bands of its figures to the outcome. Nothing
// where times are measured, or have no noise. Throws Interrupted when `progress` ends a run.
void add_noise_bands(const Backend& backend, PreparedVariant& variant, const ProgressFn& progress,
                     VariantOutcome& outcome);

// Writes the files of a run into `subfolder` of `folder` (empty: into the folder itself).
void write_variant(const VariantOutcome& outcome, const ResultsConfig& wanted, ResultFolder& folder,
                   const std::string& subfolder);

}  // namespace metronome
