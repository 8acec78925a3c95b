#include "cpu/cpu_backend.h"

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <sstream>
#include <utility>

#include "core/catalogue.h"
#include "core/engine_setup.h"
#include "core/error.h"
#include "core/model/model_catalogue.h"
#include "core/model/model_weights.h"
#include "core/request_input.h"
#include "cpu/cpu_executor.h"
#include "cpu/kv_store.h"
#include "cpu/machine.h"

namespace metronome {

struct CpuBackend::LoadedModel {
  LoadedModel(const ModelConfig& model, const WeightSource& weights, int num_threads)
      : pool(num_threads), transformer(model, weights, pool) {}

  // What it was loaded from: another run with the same takes this one.
  std::string source;
  std::string weights_text;
  ThreadPool pool;
  Transformer transformer;
};

namespace {

std::string bytes_text(std::int64_t bytes) {
  constexpr double kMiB = 1 << 20;
  const double mib = static_cast<double>(bytes) / kMiB;
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << (mib < 1024 ? mib : mib / 1024)
       << (mib < 1024 ? " MiB" : " GiB");
  return text.str();
}

int num_threads_of(const Scenario& scenario) {
  return static_cast<int>(scenario.cpu.threads.value_or(num_usable_processors()));
}

KvShape kv_shape(const ModelConfig& model, std::int64_t num_blocks, std::int64_t block_size) {
  return {.n_layers = model.n_layers,
          .n_kv_heads = model.n_kv_heads,
          .head_dim = model.head_dim,
          .num_blocks = num_blocks,
          .block_size = static_cast<std::int32_t>(block_size)};
}

std::int64_t kv_budget_bytes(const Scenario& scenario) {
  if (scenario.cpu.kv_cache_gib) {
    return static_cast<std::int64_t>(*scenario.cpu.kv_cache_gib *
                                     static_cast<double>(std::int64_t{1} << 30));
  }
  return available_memory_bytes() / 2;  // the rest of the machine goes on living
}

// As many blocks as the budget has room for, and not more than every sequence at full length needs:
// without prefix caching no block beyond those is of any use.
std::int64_t kv_capacity_blocks(const Scenario& scenario, const ModelConfig& model,
                                std::int64_t block_size) {
  const auto bytes = static_cast<std::int64_t>(KvStore::num_bytes(kv_shape(model, 1, block_size)));
  const std::int64_t capacity = kv_budget_bytes(scenario) / bytes;
  if (scenario.kv_cache.enable_prefix_caching.value_or(true)) return capacity;
  const std::int64_t longest =
      scenario.engine.max_model_len.value_or(model.max_position_embeddings);
  return std::min(capacity, scenario.engine.max_num_seqs * ceil_div(longest, block_size));
}

// The folder that holds a model's files; empty where the scenario names an entry of the catalogue.
std::string model_folder(const Scenario& scenario) {
  for (const ModelConfig& known : all_models()) {
    if (known.name == scenario.model) return {};
  }
  if (is_folder(scenario.model)) return scenario.model;
  return std::filesystem::path(scenario.model).parent_path().string();
}

void check_window(const Scenario& scenario, const ModelConfig& model) {
  const std::int64_t window = scenario.kv_cache.sliding_window;
  if (window == 0 || window == model.sliding_window) return;
  const std::string own = std::to_string(model.sliding_window);
  fail_config(scenario.location_of("kv_cache.sliding_window"), "kv_cache.sliding_window",
              std::to_string(window) + " is not the window of " + model.name +
                  (model.sliding_window == 0 ? ", which has none; allowed: 0"
                                             : ", " + own + "; allowed: 0 or " + own));
}

void check_memory(const Scenario& scenario, const char* key, const std::string& what,
                  std::int64_t bytes) {
  const std::int64_t available = available_memory_bytes();
  if (bytes <= available) return;
  fail_config(scenario.location_of(key), key,
              what + " " + bytes_text(bytes) + ", the machine has " + bytes_text(available) +
                  " available; allowed: less");
}

SamplingParams sampling_params(const Scenario& scenario) {
  const SamplingConfig& config = scenario.sampling;
  SamplingParams params;
  params.temperature = config.temperature;
  params.top_k = config.top_k;
  params.top_p = config.top_p;
  params.min_p = config.min_p;
  params.seed = config.seed ? static_cast<std::uint64_t>(*config.seed) : scenario.seed;
  for (const std::int64_t id : config.stop_token_ids) {
    params.stop_token_ids.push_back(static_cast<TokenId>(id));
  }
  params.ignore_eos = config.ignore_eos;
  params.num_logprobs = static_cast<std::int32_t>(config.logprobs.value_or(-1));
  return params;
}

class CpuRun final : public PreparedRun {
 public:
  explicit CpuRun(std::shared_ptr<CpuBackend::LoadedModel> loaded) : loaded_(std::move(loaded)) {}

  SamplingParams sampling;
  std::uint64_t seed = 0;

  RunOutcome run(const Workload& workload, Clock& clock, std::span<EventSink* const> sinks,
                 const ProgressFn& progress) override {
    KvStore kv(kv_shape(model, setup.kv_cache.num_blocks, setup.kv_cache.block_size));
    const WorkloadInput input(workload, seed, model.vocab_size, sampling);
    CpuExecutor executor(loaded_->transformer, kv, input, clock);
    return run_workload(setup, executor, clock, workload, sinks, progress, 1);
  }

 private:
  std::shared_ptr<CpuBackend::LoadedModel> loaded_;
};

}  // namespace

std::shared_ptr<CpuBackend::LoadedModel> CpuBackend::load(const Scenario& scenario) {
  const SourceLocation where = scenario.location_of("model");
  const ModelConfig model = find_model(scenario.model, where);
  if (!model.unsupported.empty()) {
    fail_config(where, "model", "cannot be computed here: " + model.unsupported);
  }
  const std::string folder = model_folder(scenario);
  const bool is_drawn = scenario.weights == Weights::Random || folder.empty();
  const int num_threads = num_threads_of(scenario);
  const std::string source = (is_drawn ? "seed " + std::to_string(scenario.seed) : "files") + ", " +
                             std::to_string(num_threads) + " threads, " + scenario.model;
  if (last_ != nullptr && last_->source == source) return last_;
  last_.reset();  // before the next one needs its memory

  const std::int64_t bytes_per_weight = model.bytes_per_weight == 2 ? 2 : 4;
  check_memory(scenario, "model", "the weights of " + model.name + " take",
               model.n_params() * bytes_per_weight);
  const std::unique_ptr<WeightSource> weights =
      is_drawn ? random_weights(model, scenario.seed) : open_model_folder(folder, model);
  last_ = std::make_shared<LoadedModel>(model, *weights, num_threads);
  last_->source = source;
  last_->weights_text =
      is_drawn ? "random, from seed " + std::to_string(scenario.seed) : "files in " + folder;
  last_->weights_text += ", " + bytes_text(last_->transformer.weight_bytes());
  return last_;
}

std::unique_ptr<PreparedRun> CpuBackend::prepare(const Scenario& scenario) try {
  const std::shared_ptr<LoadedModel> loaded = load(scenario);
  const ModelConfig& model = loaded->transformer.model();
  check_window(scenario, model);
  auto run = std::make_unique<CpuRun>(loaded);
  run->model = model;
  run->device = processor_name() + ", " + std::to_string(num_threads_of(scenario)) + " threads, " +
                kernels().name;
  run->weights_text = loaded->weights_text;
  run->seed = scenario.seed;
  run->sampling = sampling_params(scenario);
  run->setup = make_engine_setup(scenario, model, [&](std::int64_t block_tokens) {
    return kv_capacity_blocks(scenario, model, block_tokens);
  });
  // What a step was to compute and did not must not be found as a prefix.
  run->setup.kv_cache.forgets_unfilled_blocks = true;
  const KvCacheLayout& cache = run->setup.kv_cache;
  check_memory(scenario, "kv_cache.num_blocks", "the KV cache takes",
               static_cast<std::int64_t>(
                   KvStore::num_bytes(kv_shape(model, cache.num_blocks, cache.block_size))));
  return run;
} catch (const UnplacedConfigError& error) {
  fail_config(scenario.location_of(error.key()), error.key(), error.message());
}

}  // namespace metronome
