// SPDX-License-Identifier: Apache-2.0
// Runs scenarios on this machine's CPU.
#pragma once

#include <cstdint>
#include <memory>

#include "core/run/run.h"

namespace metronome {

// A model is loaded when a run that needs it begins. It stays for the next run with the same
// weights, seed of drawn weights and threads. Only one model is in memory at a time.
class CpuBackend final : public Backend {
 public:
  CpuBackend();
  std::string_view name() const override { return "cpu"; }
  bool is_measured() const override { return true; }
  // Throws ConfigError for errors of the scenario, an unsupported model, missing or malformed
  // weights, and sizes that do not fit into memory.
  std::unique_ptr<PreparedRun> prepare(const Scenario& scenario) override;

 private:
  std::shared_ptr<class LoadedModels> models_;
  // Measured once, so that all variants of a scenario get the same cache size.
  std::int64_t available_memory_bytes_;
};

}  // namespace metronome
