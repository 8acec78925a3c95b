// SPDX-License-Identifier: Apache-2.0
// The body of a cost model file of kind `corrected`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/base/json.h"
#include "core/hardware/hardware.h"
#include "core/model/model_config.h"
#include "sim/corrected/corrected_fit.h"
#include "sim/cost/cost_model.h"
#include "sim/cost/cost_model_file.h"

namespace metronome {

struct CostModelConfig;

struct CorrectedModel {
  std::optional<CostModelFile> base;  // absent: the roofline of the hardware
  CorrectionFit fit;
  std::int64_t num_intervals = 0;  // that the factors were fitted to
  std::optional<double> until_s;   // the fit used the run up to here; absent: all of it
  // Of the scenario that was fitted: its factor of collectives holds for them alone.
  std::string link;
  std::string network;
  double link_factor = 1;
};

Json corrected_body(const CorrectedModel& corrected);

// Throws ConfigError with file and key if corrected_body() did not write the body.
CorrectedModel read_corrected(const CostModelFile& file);

// Like make_cost_model(). Makes the model that the correction applies to.
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
