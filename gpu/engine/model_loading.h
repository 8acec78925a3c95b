// SPDX-License-Identifier: Apache-2.0
// Loads a scenario's model onto a GPU: plans its memory and keeps its tuned algorithms.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gpu/engine/device_engine.h"
#include "gpu/engine/device_model.h"
#include "gpu/engine/gpu_info.h"
#include "gpu/plan/gemm_store.h"
#include "models/weights/model_source.h"

namespace metronome {

struct Scenario;

// The largest pass that the scenario's settings allow.
PassLimits pass_limits(const Scenario& scenario, const ModelConfig& model);

// Options of the scenario's engine, except the number of blocks.
DeviceEngineOptions engine_options(const Scenario& scenario, const ModelConfig& model,
                                   const PassLimits& limits);

// Bytes of everything except KV blocks.
MemoryPlan plan_memory(const Scenario& scenario, const ModelConfig& model,
                       const PassLimits& limits);

// `options` are engine_options() of the scenario. Throws UnplacedConfigError if the GPU or the
// cache does not support the Hopper options.
void check_hopper_options(const GpuInfo& gpu, const Scenario& scenario,
                          const DeviceEngineOptions& options);

// Bytes that a run may use: a share of the whole memory, minus what other processes have taken.
std::int64_t usable_bytes(const GpuInfo& gpu, const Scenario& scenario);

// The algorithms of linear layers that were chosen on this machine, for the current device. They
// are kept in $XDG_CACHE_HOME/metronome/gemm.json (else ~/.cache/...), so equal runs compute equal
// bits. If the file cannot be written, the next run chooses again. Throws ConfigError for a
// malformed file.
GemmStore load_gemm_store();
// Does nothing if the store has not changed.
void keep_gemm_store(const GemmStore& store);

// A model with the algorithms from load_gemm_store(). New choices are kept.
class LoadedDeviceModel {
 public:
  // Throws ConfigError (also as load_gemm_store()) and CudaError.
  LoadedDeviceModel(const ModelSource& source, const PassLimits& limits,
                    const std::function<void()>& poll);

  // Makes an engine and checks options.invariance, unless an earlier engine with the same options
  // passed. The model serves one engine at a time. Throws CudaError, and UnplacedConfigError,
  // naming cuda.invariance, if the check fails on this GPU. All faults, and which algorithms gave
  // the same bits, are then in $XDG_CACHE_HOME/metronome/invariance.txt (else ~/.cache/...). If
  // that cannot be written, they go to standard error.
  std::unique_ptr<DeviceEngine> make_engine(const DeviceEngineOptions& options,
                                            const std::function<void()>& poll);

 private:
  GemmStore store_;
  std::unique_ptr<DeviceModel> model_;
  std::vector<DeviceEngineOptions> invariant_;  // options that passed the check
};

}  // namespace metronome
