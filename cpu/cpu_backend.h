// Scenarios on this machine's processors.
#pragma once

#include <cstdint>
#include <memory>

#include "core/run/run.h"

namespace metronome {

// A model is loaded when a run that needs it begins, and stays for the next one that needs the
// same: weights, seed of drawn weights, threads. One is in memory at a time.
class CpuBackend final : public Backend {
 public:
  CpuBackend();
  std::string_view name() const override { return "cpu"; }
  bool is_measured() const override { return true; }
  // Throws ConfigError: beside what the scenario itself gets wrong, a model that cannot be
  // computed, weights that are missing or malformed, and sizes the memory has no room for.
  std::unique_ptr<PreparedRun> prepare(const Scenario& scenario) override;

 private:
  std::shared_ptr<class LoadedModels> models_;
  // Looked up once, so that the variants of a scenario get caches of one size.
  std::int64_t available_memory_bytes_;
};

}  // namespace metronome
