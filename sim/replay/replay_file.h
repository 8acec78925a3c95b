// The body of a cost model file of kind `replay`, and how a record becomes one.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/base/json.h"
#include "core/metrics/run_record.h"
#include "core/scenario/scenario.h"
#include "sim/cost/cost_model_file.h"
#include "sim/fitted/fitted_model.h"
#include "sim/replay/replay_model.h"

namespace metronome {

// What else a replay must know of a run.
struct RecordedSetup {
  StepShape step_shape = StepShape::Mixed;
  std::int32_t async_depth = 1;
  TimeNs cold_start_ns = 0;  // that a simulation of it adds to the first launch
  // The host's own work took time: it planned later than tokens and requests came.
  bool is_measured = false;
};

// The steps of a record, such that a simulation with the same requests and settings begins and ends
// each at the recorded instant. Of failed steps, and of those with decodes that nobody recorded,
// the composition is not known. In a measured run a request may come while the host works between
// two steps; a simulation, whose host works afterwards, sees it a step later.
std::vector<RecordedStep> replay_steps(const RunRecord& record, const RecordedSetup& setup);

// `fitted` says what steps take that are not among the recorded.
Json replay_body(const std::vector<RecordedStep>& steps, const FittedModel& fitted,
                 const ModelConfig& model);

// Throws ConfigError that names file and key where the body is not what replay_body() writes.
std::vector<RecordedStep> read_replay(const CostModelFile& file);

// See make_cost_model() and make_fitted_cost_model().
std::unique_ptr<CostModel> make_replay_cost_model(const CostModelFile& file,
                                                  const ModelConfig& model,
                                                  const HardwareSpec& hardware,
                                                  const CostModelConfig& config);

}  // namespace metronome
