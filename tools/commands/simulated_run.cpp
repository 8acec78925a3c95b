// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/simulated_run.h"

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/command_errors.h"
#include "core/base/names.h"
#include "core/run/prepared_variant.h"
#include "core/scenario/scenario.h"
#include "study/run/fleet_records.h"
#include "study/run/variant_run.h"
#include "system/progress.h"
#include "tools/commands/run_choice.h"

namespace metronome {

StoredRun simulated_run(const std::string& path) {
  const ScenarioFile file = load_scenario(path, {}, std::nullopt);
  std::vector<Scenario> variants = chosen_variants(file, {});
  if (variants.size() != 1) {
    std::vector<std::string_view> names;
    for (const Scenario& variant : variants) names.push_back(variant.name);
    throw UsageError(path + ": has several variants (" + join_names(names) +
                     "); allowed: one, or the result folder of one as SIMULATED");
  }
  const std::unique_ptr<Backend> backend = make_backend(std::string(kBackendNames[0]));
  std::vector<PreparedVariant> prepared = prepare_variants(*backend, std::move(variants));
  require_steps(prepared.front());
  ProgressBar bar(true);
  bar.start(path);
  VariantOutcome outcome =
      run_variant(*backend, prepared.front(), nullptr, [&bar](const RunProgress& now) {
        bar.update(now.num_ended, now.num_total);
        return true;
      });
  bar.clear();
  return {path, std::move(outcome.result), std::move(outcome.record)};
}

}  // namespace metronome
