// A scenario's model on a GPU: how much memory it may take, and the algorithms it was tuned with.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/run/computed_run.h"
#include "core/scenario/scenario.h"
#include "gpu/engine/device_engine.h"
#include "gpu/engine/device_model.h"
#include "gpu/engine/gpu_info.h"
#include "gpu/plan/gemm_store.h"

namespace metronome {

// The largest pass that the scenario's settings allow.
PassLimits pass_limits(const Scenario& scenario, const ModelConfig& model);

// Of the engine that runs the scenario, but for the number of its blocks.
DeviceEngineOptions engine_options(const Scenario& scenario, const ModelConfig& model,
                                   const PassLimits& limits);

// Everything but KV blocks.
MemoryPlan plan_run(const Scenario& scenario, const ModelConfig& model, const PassLimits& limits);

// Throws UnplacedConfigError where the GPU, or the cache, is not one for what the options ask of
// Hopper. `options` are engine_options() of the scenario.
void check_hopper_options(const GpuInfo& gpu, const Scenario& scenario,
                          const DeviceEngineOptions& options);

// What a run may take of the GPU: a share of all memory, less what others have taken of it.
std::int64_t usable_bytes(const GpuInfo& gpu, const Scenario& scenario);

// The algorithms of linear layers that were chosen on this machine, of the current device. They are
// kept from run to run in $XDG_CACHE_HOME/metronome/gemm.json (else ~/.cache/...), so that equal
// runs compute equal bits; where that cannot be written, the next run chooses anew. Throws
// ConfigError for a malformed file.
GemmStore load_gemm_store();
// Does nothing where it has not changed.
void keep_gemm_store(const GemmStore& store);

// A model with the algorithms its linear layers use, from load_gemm_store(); new ones are kept.
class LoadedDeviceModel {
 public:
  // Throws ConfigError (as load_gemm_store(), too) and CudaError.
  LoadedDeviceModel(const ModelSource& source, const PassLimits& limits,
                    const std::function<void()>& poll);

  // An engine that keeps options.invariance: this one has shown it, or one before it with the same
  // options. The model serves one engine at a time. Throws UnplacedConfigError, naming
  // cuda.invariance, where that does not hold on this GPU; CudaError. All faults, and which
  // algorithms gave the same bits, are then in $XDG_CACHE_HOME/metronome/invariance.txt (else
  // ~/.cache/...); on standard error where that cannot be written.
  std::unique_ptr<DeviceEngine> make_engine(const DeviceEngineOptions& options,
                                            const std::function<void()>& poll);

 private:
  GemmStore store_;
  std::unique_ptr<DeviceModel> model_;
  std::vector<DeviceEngineOptions> invariant_;  // that have shown it
};

}  // namespace metronome
