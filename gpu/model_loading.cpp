#include "gpu/model_loading.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "core/error.h"
#include "gpu/gemm.h"
#include "gpu/plan/graph_buckets.h"
#include "gpu/self_test.h"

namespace metronome {
namespace {

// Where chosen algorithms are kept; empty where the system names no place.
std::string gemm_store_path() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache != nullptr && *cache != '\0') return std::string(cache) + "/metronome/gemm.json";
  if (home != nullptr && *home != '\0') return std::string(home) + "/.cache/metronome/gemm.json";
  return {};
}

// Nothing runs that would not keep what it promises.
void refuse_invariance(const std::string& fault) {
  if (fault.empty()) return;
  throw UnplacedConfigError(
      "cuda.invariance",
      "does not hold on this GPU with this version of cuBLASLt: " + fault + "; allowed: none");
}

}  // namespace

PassLimits pass_limits(const Scenario& scenario, const ModelConfig& model) {
  const std::int64_t max_model_len =
      scenario.engine.max_model_len.value_or(model.max_position_embeddings);
  const std::int32_t max_num_seqs = scenario.engine.max_num_seqs;
  constexpr std::int32_t kItems = 8192;
  const std::int64_t most =
      std::min<std::int64_t>(scenario.cuda.max_pass_tokens, max_num_seqs * max_model_len);
  const std::int64_t bucket = graph_buckets(max_num_seqs).back();
  const std::int64_t max_tokens = std::max(most, bucket);
  const std::int64_t max_rows = std::max<std::int64_t>(max_num_seqs, bucket);
  // In each sequence the last tile may lack all rows but one.
  const std::int64_t max_tiles =
      (max_tokens * (model.n_heads / model.n_kv_heads) + max_rows * (kWgmmaTileRows - 1)) /
      kWgmmaTileRows;
  return {.max_tokens = static_cast<std::int32_t>(max_tokens),
          .max_rows = static_cast<std::int32_t>(max_rows),
          .max_items = std::max(kItems, max_num_seqs),
          .max_model_len = static_cast<std::int32_t>(max_model_len),
          .max_parts = scenario.cuda.wgmma_attention ? static_cast<std::int32_t>(max_tiles) : 0};
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
  options.invariance = scenario.cuda.invariance;
  options.uses_graphs = scenario.cuda.graphs;
  options.launches_early = scenario.cuda.early_launches;
  options.attends_by_wgmma = scenario.cuda.wgmma_attention;
  options.kernels = {.fuses_decodes = scenario.cuda.fused_decodes,
                     .multiplies_by_wgmma = scenario.cuda.wgmma_products};
  return options;
}

MemoryPlan plan_run(const Scenario& scenario, const ModelConfig& model, const PassLimits& limits) {
  MemoryDemand demand = memory_demand(model, limits);
  demand.max_sequences = limits.max_rows;
  demand.step_bytes = step_block_bytes(model, limits, engine_options(scenario, model, limits));
  return plan_memory(model, demand);
}

void check_hopper_options(const GpuInfo& gpu, const Scenario& scenario,
                          const DeviceEngineOptions& options) {
  const auto refuse = [&](const char* key) {
    throw UnplacedConfigError(key, "needs a GPU of compute capability 9.0, " + gpu.name + " has " +
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
  const auto share = static_cast<std::int64_t>(scenario.cuda.gpu_memory_utilization *
                                               static_cast<double>(gpu.memory_bytes));
  return std::max<std::int64_t>(share - (gpu.memory_bytes - gpu.free_bytes), 0);
}

GemmStore load_gemm_store() {
  GemmStore store(gemm_machine_key(kGemmWorkspaceBytes));
  const std::string path = gemm_store_path();
  if (!path.empty()) store.read(path);
  return store;
}

// It only saves time: where it cannot be kept, the next run chooses again.
void keep_gemm_store(const GemmStore& store) {
  const std::string path = gemm_store_path();
  if (path.empty() || !store.has_changed()) return;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error) return;
  try {
    store.write(path);
  } catch (const ConfigError&) {
    return;
  }
}

LoadedDeviceModel::LoadedDeviceModel(const ModelSource& source, const PassLimits& limits,
                                     const std::function<void()>& poll)
    : store_(load_gemm_store()) {
  model_ = std::make_unique<DeviceModel>(source, limits, store_, poll);
  keep_gemm_store(store_);
  model_->warm_up(poll);
}

std::unique_ptr<DeviceEngine> make_engine(DeviceModel& model, const DeviceEngineOptions& options,
                                          const std::function<void()>& poll) {
  const bool is_invariant = options.invariance != Invariance::None;
  if (is_invariant) refuse_invariance(model.invariant_fault());
  auto engine = std::make_unique<DeviceEngine>(model, options, poll);
  if (is_invariant) refuse_invariance(chunking_fault(*engine, poll));
  return engine;
}

}  // namespace metronome
