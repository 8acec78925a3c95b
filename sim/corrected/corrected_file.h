// The body of a cost model file of kind `corrected`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/base/json.h"
#include "core/model/model_config.h"
#include "core/scenario/scenario.h"
#include "sim/corrected/corrected_fit.h"
#include "sim/cost/cost_model.h"
#include "sim/cost/cost_model_file.h"
#include "sim/cost/hardware.h"

namespace metronome {

struct CorrectedModel {
  std::optional<CostModelFile> base;  // absent: the roofline of the hardware
  CorrectionFit fit;
  std::int64_t num_intervals = 0;  // that it was fitted to
  std::optional<double> until_s;   // of the run; absent: all of it
};

Json corrected_body(const CorrectedModel& corrected);

// Throws ConfigError that names file and key where the body is not what corrected_body() writes.
CorrectedModel read_corrected(const CostModelFile& file);

// As make_cost_model(), which makes the model that is corrected.
using MakeBaseFn = std::unique_ptr<CostModel> (*)(const CostModelFile& file,
                                                  const ModelConfig& model,
                                                  const HardwareSpec& hardware,
                                                  const CostModelConfig& config);

// See make_cost_model().
std::unique_ptr<CostModel> make_corrected_cost_model(const CostModelFile& file,
                                                     const ModelConfig& model,
                                                     const HardwareSpec& hardware,
                                                     const CostModelConfig& config,
                                                     MakeBaseFn make_base);

}  // namespace metronome
