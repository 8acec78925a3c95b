// Scenarios on this machine's processors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/run.h"
#include "cpu/thread_pool.h"
#include "cpu/transformer.h"

namespace metronome {

// Runs that agree on model, weights, seed of drawn weights and threads share the loaded model.
class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }
  bool is_measured() const override { return true; }
  // Loads the weights. Throws ConfigError: beside what the scenario itself gets wrong, a model that
  // cannot be computed, weights that are missing or malformed, and sizes the memory has no room
  // for.
  std::unique_ptr<PreparedRun> prepare(const Scenario& scenario) override;

  // A model in memory, with the threads it runs on.
  struct LoadedModel;

 private:
  std::shared_ptr<LoadedModel> load(const Scenario& scenario);

  std::shared_ptr<LoadedModel> last_;
};

}  // namespace metronome
