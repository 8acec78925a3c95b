// SPDX-License-Identifier: Apache-2.0
#include "gpu/engine/cuda_backend.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/run/computed_run.h"
#include "core/run/drafter.h"
#include "core/run/workload_input.h"
#include "core/scenario/engine_setup.h"
#include "core/scenario/scenario.h"
#include "gpu/engine/cuda_executor.h"
#include "gpu/engine/device_engine.h"
#include "gpu/engine/device_model.h"
#include "gpu/engine/gpu_info.h"
#include "gpu/engine/model_loading.h"
#include "gpu/plan/cuda_config.h"
#include "models/weights/model_source.h"

namespace metronome {
namespace {

// Keeps one model on the GPU, and reuses it if the next run needs the same model.
class LoadedModel {
 public:
  LoadedDeviceModel& get(std::int32_t device, const ModelSource& source, const PassLimits& limits,
                         const std::function<void()>& poll) {
    const std::string key = "GPU " + std::to_string(device) + ", " + source.key;
    if (model_ && key_ == key && limits_ == limits) return *model_;
    model_.reset();  // frees memory for the next model
    model_.emplace(source, limits, poll);
    key_ = key;
    limits_ = limits;
    return *model_;
  }

 private:
  std::string key_;
  PassLimits limits_;
  std::optional<LoadedDeviceModel> model_;
};

class CudaRun final : public PreparedRun {
 public:
  CudaRun(const Scenario& scenario, ModelSource source, const PassLimits& limits,
          std::shared_ptr<LoadedModel> loaded)
      : scenario_(scenario),
        source_(std::move(source)),
        limits_(limits),
        loaded_(std::move(loaded)),
        drafter_(NgramLookup(scenario.speculative.prompt_lookup_min,
                             scenario.speculative.prompt_lookup_max)) {
    model = source_.config;
    weights_text = source_.text;
    warning = source_.warning;
    sampling_ = sampling_params(scenario, model.vocab_size);
  }

  void check_workload(const Workload& workload) const override {
    check_token_ids(scenario_, workload, model.vocab_size);
  }

  void load(const std::function<void()>& poll) override try {
    engine_.reset();
    check_cuda(cudaSetDevice(scenario_.backends.get<CudaConfig>().device), "cudaSetDevice");
    LoadedDeviceModel& loaded =
        loaded_->get(scenario_.backends.get<CudaConfig>().device, source_, limits_, poll);
    DeviceEngineOptions options = engine_options(scenario_, model, limits_);
    options.kv.num_blocks = setup.kv_cache.num_blocks;
    engine_ = loaded.make_engine(options, poll);
  } catch (const UnplacedConfigError& error) {
    fail_config(scenario_.location_of(error.key()), error.key(), error.message());
  } catch (const CudaError& error) {
    fail_config(scenario_.location_of("model"), "model",
                model.name + " cannot be set up on the GPU (" + error.what() +
                    "); allowed: a smaller model, fewer KV blocks, less gpu_memory_utilization");
  }

  RunOutcome run(const Workload& workload, Clock& clock, std::span<EventSink* const> sinks,
                 const ProgressFn& progress) override {
    const std::unique_ptr<DeviceEngine> engine = release_engine();
    const WorkloadInput input(workload, scenario_.seed, model.vocab_size, sampling_);
    CudaExecutor executor(*engine, input, clock, draft_source());
    return run_workload(setup, executor, clock, workload, sinks, progress, 1);
  }

  void serve(RequestFeed& feed, Clock& clock, std::span<EventSink* const> sinks) override {
    const std::unique_ptr<DeviceEngine> engine = release_engine();
    CudaExecutor executor(*engine, feed, clock, draft_source());
    serve_requests(setup, executor, clock, feed, sinks);
  }

 private:
  std::unique_ptr<DeviceEngine> release_engine() {
    METRONOME_CHECK(engine_ != nullptr, "a run is loaded before it begins");
    check_cuda(cudaSetDevice(scenario_.backends.get<CudaConfig>().device), "cudaSetDevice");
    return std::move(engine_);
  }

  DraftSource draft_source() {
    if (setup.scheduler.drafts.num_tokens == 0) return {};
    return {.drafter = &drafter_, .max_model_len = setup.max_model_len};
  }

  Scenario scenario_;
  ModelSource source_;
  PassLimits limits_;
  std::shared_ptr<LoadedModel> loaded_;
  NgramDrafter drafter_;
  SamplingParams sampling_;
  std::unique_ptr<DeviceEngine> engine_;
};

class CudaBackend final : public Backend {
 public:
  std::string_view name() const override { return "cuda"; }
  bool is_measured() const override { return true; }
  std::unique_ptr<PreparedRun> prepare(const Scenario& scenario) override;

 private:
  const GpuInfo& gpu(std::int32_t device) {
    // Queried once, so that all variants of a scenario get caches of one size.
    if (!gpu_ || gpu_->device != device) gpu_ = open_gpu(device);
    return *gpu_;
  }

  std::optional<GpuInfo> gpu_;
  std::shared_ptr<LoadedModel> loaded_ = std::make_shared<LoadedModel>();
};

// Kernels for decodes take one token of each request. Drafts are verified by those for prompts.
void check_drafts(const Scenario& scenario) {
  if (!scenario.speculative.has_drafts()) return;
  if (scenario.speculative.method != SpeculativeMethod::Ngram) {
    fail_config(scenario.location_of("speculative.method"), "speculative.method",
                "only drafts of a lookup are verified on the GPU; allowed: none, ngram, or "
                "--backend=cpu or sim");
  }
  if (scenario.backends.get<CudaConfig>().invariance != Invariance::Full) {
    fail_config(scenario.location_of("cuda.invariance"), "cuda.invariance",
                "drafts are verified by the kernels of prompts, which give a decode's bits only "
                "with full; allowed: full, or speculative.method none");
  }
}

std::unique_ptr<PreparedRun> CudaBackend::prepare(const Scenario& scenario) try {
  check_drafts(scenario);
  const GpuInfo& gpu = this->gpu(scenario.backends.get<CudaConfig>().device);
  ModelSource source = find_model_source(scenario);
  const ModelConfig model = source.config;
  const std::string unsupported = unsupported_on_gpu(model);
  if (!unsupported.empty()) {
    fail_config(scenario.location_of("model"), "model", "cannot be computed here: " + unsupported);
  }
  check_cache_window(scenario, model);
  const PassLimits limits = pass_limits(scenario, model);
  check_hopper_options(gpu, scenario, engine_options(scenario, model, limits));
  const MemoryPlan plan = plan_memory(scenario, model, limits);
  const std::int64_t usable = usable_bytes(gpu, scenario);
  check_memory(scenario, "model", "weights and activations of " + model.name + " take", gpu.name,
               plan.total(), usable);

  auto run = std::make_unique<CudaRun>(scenario, std::move(source), limits, loaded_);
  run->device = gpu.text();
  run->weights_text += ", " + bytes_text(plan.weights);
  // The device samples a step before the host knows the tokens of the one before.
  run->takes_penalties = false;
  const auto capacity = [&](std::int64_t block_size) {
    const std::int64_t budget =
        scenario.backends.get<CudaConfig>().kv_cache_gib
            ? std::min(usable, plan.total() +
                                   bytes_of_gib(*scenario.backends.get<CudaConfig>().kv_cache_gib))
            : usable;
    return useful_kv_blocks(scenario, model, block_size,
                            kv_blocks_that_fit(model, plan, budget, block_size));
  };
  run->setup = make_engine_setup(scenario, model, capacity);
  // A failed step leaves its blocks without contents. They must not be found as a prefix.
  run->setup.kv_cache.forgets_unfilled_blocks = true;
  const KvCacheLayout& cache = run->setup.kv_cache;
  check_memory(scenario, "kv_cache.num_blocks", "the KV cache takes", gpu.name,
               cache.num_blocks * cache.block_size * model.kv_bytes_per_token(),
               usable - plan.total());
  return run;
} catch (const UnplacedConfigError& error) {
  fail_config(scenario.location_of(error.key()), error.key(), error.message());
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend() { return std::make_unique<CudaBackend>(); }

}  // namespace metronome
