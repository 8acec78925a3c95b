#include "cpu/cpu_backend.h"

#include <algorithm>
#include <functional>
#include <iomanip>
#include <sstream>
#include <system_error>
#include <utility>

#include "core/engine_setup.h"
#include "core/error.h"
#include "core/model/model_catalogue.h"
#include "core/model/model_weights.h"
#include "core/request_input.h"
#include "cpu/cpu_executor.h"
#include "cpu/kv_store.h"
#include "cpu/machine.h"
#include "cpu/thread_pool.h"
#include "cpu/transformer.h"

namespace metronome {

// A model in memory, with the threads it runs on.
struct LoadedModel {
  LoadedModel(const ModelConfig& model, const WeightSource& weights, int num_threads,
              const std::function<void()>& poll)
      : pool(num_threads), transformer(model, weights, pool, poll) {}

  ThreadPool pool;
  Transformer transformer;
};

// Where a model comes from. Equal keys mean equal models.
struct ModelSource {
  std::string key;
  ModelConfig config;
  std::shared_ptr<const WeightSource> weights;
  int num_threads = 1;
  std::string text;  // where the weights are from
};

class LoadedModels {
 public:
  // The reference holds until the next call.
  LoadedModel& get(const ModelSource& source, const std::function<void()>& poll = {}) {
    if (loaded_ != nullptr && key_ == source.key) return *loaded_;
    loaded_.reset();  // before the next one needs its memory
    loaded_ =
        std::make_unique<LoadedModel>(source.config, *source.weights, source.num_threads, poll);
    key_ = source.key;
    return *loaded_;
  }

 private:
  std::string key_;
  std::unique_ptr<LoadedModel> loaded_;
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

KvShape kv_shape(const ModelConfig& model, std::int64_t num_blocks, std::int64_t block_size) {
  return {.n_layers = model.n_layers,
          .n_kv_heads = model.n_kv_heads,
          .head_dim = model.head_dim,
          .num_blocks = num_blocks,
          .block_size = static_cast<std::int32_t>(block_size)};
}

std::int64_t kv_budget_bytes(const Scenario& scenario, std::int64_t spare_bytes) {
  if (scenario.cpu.kv_cache_gib) {
    return static_cast<std::int64_t>(*scenario.cpu.kv_cache_gib *
                                     static_cast<double>(std::int64_t{1} << 30));
  }
  return spare_bytes / 2;  // the rest of the machine goes on living
}

// As many blocks as there is room for beside the weights, and not more than every sequence at full
// length needs: without prefix caching no block beyond those is of any use.
std::int64_t kv_capacity_blocks(const Scenario& scenario, const ModelConfig& model,
                                std::int64_t block_size, std::int64_t spare_bytes) {
  const auto bytes = static_cast<std::int64_t>(KvStore::num_bytes(kv_shape(model, 1, block_size)));
  const std::int64_t capacity = kv_budget_bytes(scenario, spare_bytes) / bytes;
  if (scenario.kv_cache.enable_prefix_caching.value_or(true)) return capacity;
  const std::int64_t longest =
      scenario.engine.max_model_len.value_or(model.max_position_embeddings);
  return std::min(capacity, scenario.engine.max_num_seqs * ceil_div(longest, block_size));
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
                  std::int64_t bytes, std::int64_t available) {
  if (bytes <= available) return;
  fail_config(scenario.location_of(key), key,
              what + " " + bytes_text(bytes) + ", the machine has " + bytes_text(available) +
                  " for it; allowed: less");
}

SamplingParams sampling_params(const Scenario& scenario, std::int64_t vocab_size) {
  const SamplingConfig& config = scenario.sampling;
  SamplingParams params;
  params.temperature = config.temperature;
  params.top_k = config.top_k;
  params.top_p = config.top_p;
  params.min_p = config.min_p;
  params.seed = config.seed ? static_cast<std::uint64_t>(*config.seed) : scenario.seed;
  for (const std::int64_t id : config.stop_token_ids) {
    if (id >= vocab_size) {
      fail_config(scenario.location_of("sampling.stop_token_ids"), "sampling.stop_token_ids",
                  std::to_string(id) + " is no token of the model; allowed: 0 to " +
                      std::to_string(vocab_size - 1));
    }
    params.stop_token_ids.push_back(static_cast<TokenId>(id));
  }
  params.ignore_eos = config.ignore_eos;
  params.num_logprobs = static_cast<std::int32_t>(config.logprobs.value_or(-1));
  return params;
}

// Bytes that packed weights take.
std::int64_t weight_bytes(const ModelConfig& model, const WeightSource& weights) {
  std::int64_t bytes = 0;
  for (const WeightSpec& spec : weight_specs(model)) {
    const bool is_half = weights.type(spec) == TensorType::BFloat16;
    bytes += spec.rows * spec.cols * (is_half ? 2 : 4);
  }
  return bytes;
}

ModelSource find_source(const Scenario& scenario) {
  const SourceLocation where = scenario.location_of("model");
  ModelSource source;
  source.config = find_model(scenario.model, where);
  if (!source.config.unsupported.empty()) {
    fail_config(where, "model", "cannot be computed here: " + source.config.unsupported);
  }
  const std::string folder = find_model_folder(scenario.model);
  const bool is_drawn = scenario.weights == Weights::Random || folder.empty();
  source.weights = is_drawn ? random_weights(source.config, scenario.seed)
                            : open_model_folder(folder, source.config);
  source.num_threads = static_cast<int>(scenario.cpu.threads.value_or(num_usable_processors()));
  source.text =
      is_drawn ? "random, from seed " + std::to_string(scenario.seed) : "files in " + folder;
  source.key = (is_drawn ? "seed " + std::to_string(scenario.seed) : "files") + ", " +
               std::to_string(source.num_threads) + " threads, " + scenario.model;
  return source;
}

// What is allowed, and hardly meant.
std::string warning_of(const ModelSource& source) {
  const std::vector<std::string> unused = source.weights->unused_layer_tensors();
  if (!unused.empty()) {
    return std::to_string(unused.size()) + " tensors of layers are of no use to config.json, " +
           printable(unused.front()) + " the first: is it of another model?";
  }
  const int num_processors = num_usable_processors();
  if (source.num_threads <= num_processors) return {};
  return "cpu.threads: " + std::to_string(source.num_threads) + " are more than the " +
         std::to_string(num_processors) + " processors, and slower than as many";
}

class CpuRun final : public PreparedRun {
 public:
  CpuRun(const Scenario& scenario, ModelSource source, std::shared_ptr<LoadedModels> models)
      : scenario_(scenario), source_(std::move(source)), models_(std::move(models)) {
    model = source_.config;
    weights_text = source_.text;
    warning = warning_of(source_);
    sampling_ = sampling_params(scenario, model.vocab_size);
  }

  const WeightSource& weights() const { return *source_.weights; }
  int num_threads() const { return source_.num_threads; }

  void check_workload(const Workload& workload) const override {
    const std::string error = workload.token_id_error(model.vocab_size);
    if (!error.empty()) {
      fail_config(scenario_.location_of("workload.trace"), "workload.trace", error);
    }
  }

  void load(const std::function<void()>& poll) override try {
    models_->get(source_, poll);
  } catch (const std::system_error& error) {
    fail_config(scenario_.location_of("cpu.threads"), "cpu.threads",
                std::to_string(source_.num_threads) + " cannot be started (" + error.what() +
                    "); allowed: fewer");
  }

  RunOutcome run(const Workload& workload, Clock& clock, std::span<EventSink* const> sinks,
                 const ProgressFn& progress) override {
    KvStore kv(kv_shape(model, setup.kv_cache.num_blocks, setup.kv_cache.block_size));
    const WorkloadInput input(workload, scenario_.seed, model.vocab_size, sampling_);
    CpuExecutor executor(models_->get(source_).transformer, kv, input, clock);
    // A step can take seconds, and Ctrl-C is not to wait for it.
    RunProgress latest{.num_total = workload.requests.size()};
    if (progress) executor.set_poll([&] { progress(latest); });
    const ProgressFn remember = [&](const RunProgress& now) {
      latest = now;
      return !progress || progress(now);
    };
    return run_workload(setup, executor, clock, workload, sinks, remember, 1);
  }

 private:
  Scenario scenario_;
  ModelSource source_;
  std::shared_ptr<LoadedModels> models_;
  SamplingParams sampling_;
};

}  // namespace

CpuBackend::CpuBackend()
    : models_(std::make_shared<LoadedModels>()),
      available_memory_bytes_(metronome::available_memory_bytes()) {}

std::unique_ptr<PreparedRun> CpuBackend::prepare(const Scenario& scenario) try {
  auto run = std::make_unique<CpuRun>(scenario, find_source(scenario), models_);
  const ModelConfig& model = run->model;
  check_window(scenario, model);
  const std::int64_t bytes = weight_bytes(model, run->weights());
  check_memory(scenario, "model", "the weights of " + model.name + " take", bytes,
               available_memory_bytes_);
  const std::int64_t spare_bytes = available_memory_bytes_ - bytes;
  run->device =
      processor_name() + ", " + std::to_string(run->num_threads()) + " threads, " + kernels().name;
  run->weights_text += ", " + bytes_text(bytes);
  run->setup = make_engine_setup(scenario, model, [&](std::int64_t block_tokens) {
    return kv_capacity_blocks(scenario, model, block_tokens, spare_bytes);
  });
  // What a step was to compute and did not must not be found as a prefix.
  run->setup.kv_cache.forgets_unfilled_blocks = true;
  const KvCacheLayout& cache = run->setup.kv_cache;
  const std::size_t cache_bytes =
      KvStore::num_bytes(kv_shape(model, cache.num_blocks, cache.block_size));
  check_memory(scenario, "kv_cache.num_blocks", "the KV cache takes",
               static_cast<std::int64_t>(cache_bytes), spare_bytes);
  return run;
} catch (const UnplacedConfigError& error) {
  fail_config(scenario.location_of(error.key()), error.key(), error.message());
}

}  // namespace metronome
