// SPDX-License-Identifier: Apache-2.0
#include "sim/measured_model.h"

#include <fmt/core.h>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "sim/corrected/corrected_file.h"
#include "sim/cost/device_share.h"
#include "sim/cost/eager_passes.h"
#include "sim/fitted/fitted_file.h"
#include "sim/operators/operator_file.h"
#include "sim/profile/profile_file.h"
#include "sim/replay/replay_file.h"

namespace metronome {
namespace {

using MakeFn = std::unique_ptr<CostModel> (*)(const CostModelFile& file, const ModelConfig& model,
                                              const HardwareSpec& hardware,
                                              const CostModelConfig& config);

MakeFn maker_of(std::string_view kind) {
  if (kind == "fitted") return make_fitted_cost_model;
  if (kind == "operators") return make_operator_model;
  if (kind == "profile") return make_profile_model;
  if (kind == "replay") return make_replay_cost_model;
  METRONOME_CHECK(kind == "corrected", "reading a file refuses unknown kinds");
  return [](const CostModelFile& file, const ModelConfig& model, const HardwareSpec& hardware,
            const CostModelConfig& config) {
    return make_corrected_cost_model(file, model, hardware, config, make_cost_model);
  };
}

// Tables of kernels have attention, MLPs and experts only; those of operators, one shape of each.
void check_parts(const CostModelFile& file, const ModelConfig& model) {
  const bool is_profile = file.kind == "profile";
  if (!is_profile && file.kind != "operators") return;
  const char* part = nullptr;
  if (is_profile && model.has_states()) part = "linear attention";
  if (is_profile && model.shared_expert_ffn_dim > 0) part = "shared experts";
  if (is_profile && model.has_latent_attention()) part = "latent attention";
  if (!model.given_kinds.empty()) part = "layers of several shapes";
  if (part == nullptr) return;
  throw UnplacedConfigError("cost_model.file",
                            file.name + " is of kind " + file.kind + ", which has no times of " +
                                part + ", a part of " + model.name +
                                "; allowed: kind fitted, or no file (the roofline of `hardware`)");
}

}  // namespace

bool replays_steps(const CostModelFile& file) {
  if (file.kind != "corrected") return file.kind == "replay";
  const std::optional<CostModelFile> base = read_corrected(file).base;
  return base && base->kind == "replay";
}

std::unique_ptr<CostModel> make_cost_model(const CostModelFile& file, const ModelConfig& model,
                                           const HardwareSpec& hardware,
                                           const CostModelConfig& config) {
  if (file.tensor_parallel_size != config.tensor_parallel_size) {
    throw UnplacedConfigError(
        "cost_model.tensor_parallel_size",
        fmt::format("{} is not the size that {} was measured with; allowed: {}",
                    config.tensor_parallel_size, file.name, file.tensor_parallel_size));
  }
  if (file.hardware != hardware.name) {
    throw UnplacedConfigError("hardware", hardware.name + " is not the hardware that " + file.name +
                                              " was measured on; allowed: " + file.hardware +
                                              ", or omit the key");
  }
  check_parts(file, model);
  check_tensor_parallel(model, file.tensor_parallel_size);
  std::unique_ptr<CostModel> made = maker_of(file.kind)(file, model, hardware, config);
  const bool is_composed = file.kind == "operators" || file.kind == "profile";  // of kernels
  if (!is_composed) return made;
  CostModelConfig launches = config;
  launches.step_factor = launches.prompt_factor = 1;  // of the roofline
  return with_eager_passes(std::move(made), model, launches);
}

}  // namespace metronome
