// SPDX-License-Identifier: Apache-2.0
#include "gpu/engine/model_loading.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <vector>

#include "core/base/error.h"
#include "core/scenario/scenario.h"
#include "gpu/engine/gemm.h"
#include "gpu/engine/self_test.h"
#include "gpu/plan/cuda_config.h"
#include "gpu/plan/graph_buckets.h"
#include "gpu/plan/whole_file.h"

namespace metronome {
namespace {

// Path of a file in the program's own cache; empty if the environment names no directory.
std::string cache_path(const char* name) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache != nullptr && *cache != '\0') return std::string(cache) + "/metronome/" + name;
  if (home != nullptr && *home != '\0') return std::string(home) + "/.cache/metronome/" + name;
  return {};
}

std::string gemm_store_path() { return cache_path("gemm.json"); }

// Writes a whole file of the cache; false if that fails.
template <class Write>
bool try_write(const std::string& path, const Write& write) {
  if (path.empty()) return false;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error) return false;
  try {
    write();
  } catch (const ConfigError&) {
    return false;
  }
  return true;
}

// Everything that a fault may depend on beside the algorithms.
std::string circumstances(const DeviceModel& model, const DeviceEngineOptions& options) {
  const auto text_of = [](bool value) { return value ? "true" : "false"; };
  return gemm_machine_key(kGemmWorkspaceBytes) + "\n" + model.config().name + ", block_size " +
         std::to_string(options.kv.block_size) + ", max_pass_tokens " +
         std::to_string(model.limits().max_tokens) + ", early_launches " +
         text_of(options.launches_early) + ", wgmma_attention " +
         text_of(options.attends_by_wgmma) + ", wgmma_products " +
         text_of(options.kernels.multiplies_by_wgmma) + "\n";
}

// Refuses to run without the promised invariance. Writes the evidence down at once, because the GPU
// may be out of reach later.
[[noreturn]] void refuse_invariance(const DeviceModel& model, const DeviceEngineOptions& options,
                                    const std::vector<std::string>& faults,
                                    const std::function<void()>& poll) {
  std::string sentence;
  std::string findings = circumstances(model, options) + "\n";
  for (const std::string& fault : faults) {
    sentence += (sentence.empty() ? "" : ", ") + fault;
    findings += fault + "\n";
  }
  findings += "\n" + model.describe_invariant_gemms(poll);
  const std::string path = cache_path("invariance.txt");
  const bool is_written = try_write(path, [&] { write_whole_file(path, findings); });
  if (!is_written) std::cerr << findings;
  const std::string place = is_written ? "in " + path : "on standard error";
  throw UnplacedConfigError("cuda.invariance",
                            "does not hold on this GPU with this version of cuBLASLt: " + sentence +
                                "; the findings are " + place + "; allowed: none");
}

}  // namespace

PassLimits pass_limits(const Scenario& scenario, const ModelConfig& model) {
  const std::int64_t max_model_len =
      scenario.engine.max_model_len.value_or(model.default_max_model_len());
  const std::int32_t max_num_seqs = scenario.engine.max_num_seqs;
  constexpr std::int32_t kItems = 8192;
  const std::int64_t most = std::min<std::int64_t>(
      scenario.backends.get<CudaConfig>().max_pass_tokens, max_num_seqs * max_model_len);
  const std::int64_t bucket = graph_buckets(max_num_seqs).back();
  const std::int64_t decode_tokens = 1 + scenario.speculative.num_drafts();
  const std::int64_t max_tokens = std::max({most, bucket, decode_tokens});
  const std::int64_t max_sequences = std::max<std::int64_t>(max_num_seqs, bucket);
  const std::int64_t max_rows =
      std::max(max_sequences, std::min(max_tokens, max_num_seqs * decode_tokens));
  // The last tile of each sequence may have one row only.
  const std::int64_t max_tiles =
      (max_tokens * (model.n_heads / model.n_kv_heads) + max_sequences * (kWgmmaTileRows - 1)) /
      kWgmmaTileRows;
  return {.max_tokens = static_cast<std::int32_t>(max_tokens),
          .max_rows = static_cast<std::int32_t>(max_rows),
          .max_items = std::max(kItems, max_num_seqs),
          .max_model_len = static_cast<std::int32_t>(max_model_len),
          .max_parts = scenario.backends.get<CudaConfig>().wgmma_attention
                           ? static_cast<std::int32_t>(max_tiles)
                           : 0};
}

DeviceEngineOptions engine_options(const Scenario& scenario, const ModelConfig& model,
                                   const PassLimits& limits) {
  DeviceEngineOptions options;
  const bool is_slotted = scenario.kv_cache.backend == KvBackend::Slotted;
  options.kv.n_layers = model.n_layers;
  options.kv.n_kv_heads = model.n_kv_heads;
  options.kv.head_dim = model.head_dim;
  options.kv.block_size = is_slotted ? limits.max_model_len : scenario.kv_cache.block_size;
  options.has_window_tables = scenario.kv_cache.sliding_window > 0;
  options.max_num_seqs = scenario.engine.max_num_seqs;
  options.max_drafts = scenario.speculative.num_drafts();
  options.invariance = scenario.backends.get<CudaConfig>().invariance;
  options.uses_graphs = scenario.backends.get<CudaConfig>().graphs;
  options.launches_early = scenario.backends.get<CudaConfig>().early_launches;
  options.attends_by_wgmma = scenario.backends.get<CudaConfig>().wgmma_attention;
  options.kernels = {.fuses_decodes = scenario.backends.get<CudaConfig>().fused_decodes,
                     .multiplies_by_wgmma = scenario.backends.get<CudaConfig>().wgmma_products};
  return options;
}

MemoryPlan plan_memory(const Scenario& scenario, const ModelConfig& model,
                       const PassLimits& limits) {
  MemoryDemand demand = memory_demand(model, limits);
  demand.max_sequences = limits.max_rows;
  demand.step_bytes = step_block_bytes(model, limits, engine_options(scenario, model, limits));
  return plan_memory(model, demand);
}

void check_hopper_options(const GpuInfo& gpu, const Scenario& scenario,
                          const DeviceEngineOptions& options) {
  const auto refuse = [&](const char* key) {
    throw UnplacedConfigError(key, "needs a GPU of compute capability 9.0; " + gpu.name + " has " +
                                       std::to_string(gpu.compute_capability / 10) + "." +
                                       std::to_string(gpu.compute_capability % 10) +
                                       "; allowed: false");
  };
  if (options.launches_early && gpu.compute_capability < 90) refuse("cuda.early_launches");
  if (options.kernels.multiplies_by_wgmma && gpu.compute_capability != 90) {
    refuse("cuda.wgmma_products");
  }
  if (!options.attends_by_wgmma) return;
  if (gpu.compute_capability != 90) refuse("cuda.wgmma_attention");
  const DeviceKvShape& kv = options.kv;
  if (can_attend_by_wgmma(static_cast<std::int32_t>(kv.head_dim),
                          static_cast<std::int32_t>(kv.block_size))) {
    return;
  }
  const bool is_slotted = scenario.kv_cache.backend == KvBackend::Slotted;
  throw UnplacedConfigError(is_slotted ? "engine.max_model_len" : "kv_cache.block_size",
                            "is " + std::to_string(kv.block_size) +
                                "; allowed with cuda.wgmma_attention: multiples of 8");
}

std::int64_t usable_bytes(const GpuInfo& gpu, const Scenario& scenario) {
  const auto share =
      static_cast<std::int64_t>(scenario.backends.get<CudaConfig>().gpu_memory_utilization *
                                static_cast<double>(gpu.memory_bytes));
  return std::max<std::int64_t>(share - (gpu.memory_bytes - gpu.free_bytes), 0);
}

GemmStore load_gemm_store() {
  GemmStore store(gemm_machine_key(kGemmWorkspaceBytes));
  const std::string path = gemm_store_path();
  if (!path.empty()) store.read(path);
  return store;
}

// The store only saves time. If it cannot be written, the next run chooses again.
void keep_gemm_store(const GemmStore& store) {
  if (!store.has_changed()) return;
  const std::string path = gemm_store_path();
  try_write(path, [&] { store.write(path); });
}

LoadedDeviceModel::LoadedDeviceModel(const ModelSource& source, const PassLimits& limits,
                                     const std::function<void()>& poll)
    : store_(load_gemm_store()) {
  model_ = std::make_unique<DeviceModel>(source, limits, store_, poll);
  keep_gemm_store(store_);
  model_->warm_up(poll);
}

std::unique_ptr<DeviceEngine> LoadedDeviceModel::make_engine(const DeviceEngineOptions& options,
                                                             const std::function<void()>& poll) {
  const bool is_shown =
      options.invariance == Invariance::None ||
      std::find(invariant_.begin(), invariant_.end(), options) != invariant_.end();
  if (is_shown) return std::make_unique<DeviceEngine>(*model_, options, poll);
  if (const std::string fault = model_->invariant_fault(); !fault.empty()) {
    refuse_invariance(*model_, options, {fault}, poll);
  }
  auto engine = std::make_unique<DeviceEngine>(*model_, options, poll);
  const std::vector<std::string> faults = chunking_faults(*engine, poll);
  if (!faults.empty()) {
    engine.reset();  // comparing algorithms needs its memory
    refuse_invariance(*model_, options, faults, poll);
  }
  invariant_.push_back(options);
  return engine;
}

}  // namespace metronome
