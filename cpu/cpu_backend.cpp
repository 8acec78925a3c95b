#include "cpu/cpu_backend.h"

#include <functional>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/model/model_weights.h"
#include "core/run/computed_run.h"
#include "core/run/workload_input.h"
#include "core/scenario/engine_setup.h"
#include "cpu/cpu_config.h"
#include "cpu/cpu_executor.h"
#include "cpu/kv_store.h"
#include "cpu/machine.h"
#include "cpu/thread_pool.h"
#include "cpu/transformer.h"

namespace metronome {

// A model in memory, with its threads.
struct LoadedModel {
  LoadedModel(const ModelConfig& model, const WeightSource& weights, int num_threads,
              const std::function<void()>& poll)
      : pool(num_threads), transformer(model, weights, pool, poll) {}

  ThreadPool pool;
  Transformer transformer;
};

class LoadedModels {
 public:
  // The reference is valid until the next call.
  LoadedModel& get(const ModelSource& source, int num_threads,
                   const std::function<void()>& poll = {}) {
    const std::string key = source.key + ", " + std::to_string(num_threads) + " threads";
    if (loaded_ != nullptr && key_ == key) return *loaded_;
    loaded_.reset();  // frees its memory for the next model
    loaded_ = std::make_unique<LoadedModel>(source.config, *source.weights, num_threads, poll);
    key_ = key;
    return *loaded_;
  }

 private:
  std::string key_;
  std::unique_ptr<LoadedModel> loaded_;
};

namespace {

KvShape kv_shape(const ModelConfig& model, std::int64_t num_blocks, std::int64_t block_size) {
  return {.n_layers = model.n_layers,
          .n_kv_heads = model.n_kv_heads,
          .head_dim = model.head_dim,
          .num_blocks = num_blocks,
          .block_size = static_cast<std::int32_t>(block_size)};
}

std::int64_t kv_budget_bytes(const Scenario& scenario, std::int64_t spare_bytes) {
  if (scenario.backends.get<CpuConfig>().kv_cache_gib)
    return bytes_of_gib(*scenario.backends.get<CpuConfig>().kv_cache_gib);
  return spare_bytes / 2;  // leaves the rest to other processes
}

// As many blocks as fit beside the weights.
std::int64_t kv_capacity_blocks(const Scenario& scenario, const ModelConfig& model,
                                std::int64_t block_size, std::int64_t spare_bytes) {
  const auto bytes = static_cast<std::int64_t>(KvStore::num_bytes(kv_shape(model, 1, block_size)));
  const std::int64_t capacity = kv_budget_bytes(scenario, spare_bytes) / bytes;
  return useful_kv_blocks(scenario, model, block_size, capacity);
}

// Size of the packed weights.
std::int64_t weight_bytes(const ModelConfig& model, const WeightSource& weights) {
  std::int64_t bytes = 0;
  for (const WeightSpec& spec : weight_specs(model)) {
    const bool is_half = weights.type(spec) == TensorType::BFloat16;
    bytes += spec.rows * spec.cols * (is_half ? 2 : 4);
  }
  return bytes;
}

std::string warning_of(const ModelSource& source, int num_threads) {
  if (!source.warning.empty()) return source.warning;
  const int num_processors = num_usable_processors();
  if (num_threads <= num_processors) return {};
  return "cpu.threads: " + std::to_string(num_threads) + " threads on " +
         std::to_string(num_processors) + " processors are slower than one thread per processor";
}

class CpuRun final : public PreparedRun {
 public:
  CpuRun(const Scenario& scenario, ModelSource source, std::shared_ptr<LoadedModels> models)
      : scenario_(scenario),
        source_(std::move(source)),
        num_threads_(static_cast<int>(
            scenario.backends.get<CpuConfig>().threads.value_or(num_usable_processors()))),
        models_(std::move(models)) {
    model = source_.config;
    weights_text = source_.text;
    warning = warning_of(source_, num_threads_);
    sampling_ = sampling_params(scenario, model.vocab_size);
  }

  const WeightSource& weights() const { return *source_.weights; }
  int num_threads() const { return num_threads_; }

  void check_workload(const Workload& workload) const override {
    check_token_ids(scenario_, workload, model.vocab_size);
  }

  void load(const std::function<void()>& poll) override try {
    models_->get(source_, num_threads_, poll);
  } catch (const std::system_error& error) {
    fail_config(
        scenario_.location_of("cpu.threads"), "cpu.threads",
        std::to_string(num_threads_) + " cannot be started (" + error.what() + "); allowed: fewer");
  }

  RunOutcome run(const Workload& workload, Clock& clock, std::span<EventSink* const> sinks,
                 const ProgressFn& progress) override {
    KvStore kv(kv_shape(model, setup.kv_cache.num_blocks, setup.kv_cache.block_size));
    const WorkloadInput input(workload, scenario_.seed, model.vocab_size, sampling_);
    CpuExecutor executor(models_->get(source_, num_threads_).transformer, kv, input, clock);
    // A step can take seconds, so Ctrl-C is polled within it.
    RunProgress latest{.num_total = workload.requests.size()};
    if (progress) executor.set_poll([&] { progress(latest); });
    const ProgressFn remember = [&](const RunProgress& now) {
      latest = now;
      return !progress || progress(now);
    };
    return run_workload(setup, executor, clock, workload, sinks, remember, 1);
  }

  void serve(RequestFeed& feed, Clock& clock, std::span<EventSink* const> sinks) override {
    KvStore kv(kv_shape(model, setup.kv_cache.num_blocks, setup.kv_cache.block_size));
    CpuExecutor executor(models_->get(source_, num_threads_).transformer, kv, feed, clock);
    serve_requests(setup, executor, clock, feed, sinks);
  }

 private:
  Scenario scenario_;
  ModelSource source_;
  int num_threads_;
  std::shared_ptr<LoadedModels> models_;
  SamplingParams sampling_;
};

}  // namespace

CpuBackend::CpuBackend()
    : models_(std::make_shared<LoadedModels>()),
      available_memory_bytes_(metronome::available_memory_bytes()) {}

std::unique_ptr<PreparedRun> CpuBackend::prepare(const Scenario& scenario) try {
  auto run = std::make_unique<CpuRun>(scenario, find_model_source(scenario), models_);
  const ModelConfig& model = run->model;
  check_cache_window(scenario, model);
  const std::int64_t bytes = weight_bytes(model, run->weights());
  check_memory(scenario, "model", "the weights of " + model.name + " take", "the machine", bytes,
               available_memory_bytes_);
  const std::int64_t spare_bytes = available_memory_bytes_ - bytes;
  run->device =
      processor_name() + ", " + std::to_string(run->num_threads()) + " threads, " + kernels().name;
  run->weights_text += ", " + bytes_text(bytes);
  run->setup = make_engine_setup(scenario, model, [&](std::int64_t block_tokens) {
    return kv_capacity_blocks(scenario, model, block_tokens, spare_bytes);
  });
  // Tokens that a failed step did not compute must not be found as a prefix.
  run->setup.kv_cache.forgets_unfilled_blocks = true;
  const KvCacheLayout& cache = run->setup.kv_cache;
  const std::size_t cache_bytes =
      KvStore::num_bytes(kv_shape(model, cache.num_blocks, cache.block_size));
  check_memory(scenario, "kv_cache.num_blocks", "the KV cache takes", "the machine",
               static_cast<std::int64_t>(cache_bytes), spare_bytes);
  return run;
} catch (const UnplacedConfigError& error) {
  fail_config(scenario.location_of(error.key()), error.key(), error.message());
}

}  // namespace metronome
