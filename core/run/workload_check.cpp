// SPDX-License-Identifier: Apache-2.0
// Whether a run can take a workload.
#include <fmt/core.h>
#include <string>

#include "core/base/error.h"
#include "core/run/run.h"
#include "core/scenario/engine_product.h"
#include "core/scenario/scenario.h"

namespace metronome {
namespace {

// The longest image that can ever be computed, in tokens.
std::int64_t longest_image(const Scenario& scenario, const EngineSetup& setup) {
  const EngineProduct& product = product_of(scenario.scheduler.policy);
  const std::int64_t cache_size = setup.encoder.cache_size;
  if (product.longest_image == nullptr) return cache_size;
  return product.longest_image(scenario, cache_size);
}

// Drawn images were checked with the scenario; those of a trace come with the workload.
void check_images(const Scenario& scenario, const PreparedRun& run, const Workload& workload) {
  if (!run.setup.encoder.takes_images()) {
    throw UnplacedConfigError("workload.trace", "has images, and " + run.model.name +
                                                    " takes text only; allowed: a model with a "
                                                    "vision tower, or a trace without images");
  }
  const std::int64_t longest = longest_image(scenario, run.setup);
  for (const EncoderItem& image : workload.images) {
    if (image.num_tokens <= longest) continue;
    throw UnplacedConfigError(
        scenario.workload.trace.file.empty() ? "workload.images" : "workload.trace",
        fmt::format("an image has {} tokens; allowed: at most {}, which the encoder's cache and a "
                    "step can hold",
                    image.num_tokens, longest));
  }
}

}  // namespace

void check_workload(const Scenario& scenario, const PreparedRun& run,
                    const Workload& workload) try {
  if (!workload.images.empty()) check_images(scenario, run, workload);
  run.check_workload(workload);
} catch (const UnplacedConfigError& error) {
  fail_config(scenario.location_of(error.key()), error.key(), error.message());
}

}  // namespace metronome
