// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_backend.h"

#include <algorithm>
#include <fmt/core.h>
#include <functional>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/model/model_catalogue.h"
#include "core/run/computed_run.h"
#include "core/run/workload_input.h"
#include "core/scenario/engine_setup.h"
#include "core/scenario/scenario.h"
#include "cpu/cpu_config.h"
#include "cpu/cpu_executor.h"
#include "cpu/image_store.h"
#include "cpu/kv_store.h"
#include "cpu/machine.h"
#include "cpu/model_drafter.h"
#include "cpu/packed_matrix.h"
#include "cpu/thread_pool.h"
#include "cpu/transformer.h"
#include "cpu/vision_encoder.h"
#include "models/image/image_file.h"
#include "models/image/image_processor.h"
#include "models/weights/model_source.h"
#include "models/weights/model_weights.h"
#include "models/weights/quantised_blocks.h"

namespace metronome {

// The models of a run.
struct RunModels {
  ModelSource model;
  std::optional<ModelSource> drafter;  // of method draft_model
};

// The models in memory, with their threads.
struct LoadedModel {
  LoadedModel(const RunModels& models, int num_threads, const std::function<void()>& poll)
      : pool(num_threads), transformer(models.model.config, *models.model.weights, pool, poll) {
    const ModelConfig& config = models.model.config;
    if (!config.vision.is_empty()) encoder.emplace(config, *models.model.weights, pool, poll);
    if (models.drafter)
      drafter.emplace(models.drafter->config, *models.drafter->weights, pool, poll);
  }

  ThreadPool pool;
  Transformer transformer;
  std::optional<VisionEncoder> encoder;
  std::optional<Transformer> drafter;
};

class LoadedModels {
 public:
  // The reference is valid until the next call.
  LoadedModel& get(const RunModels& models, int num_threads,
                   const std::function<void()>& poll = {}) {
    std::string key = fmt::format("{}, {} threads", models.model.key, num_threads);
    if (models.drafter) key += ", drafts by " + models.drafter->key;
    if (loaded_ != nullptr && key_ == key) return *loaded_;
    loaded_.reset();  // frees its memory for the next model
    loaded_ = std::make_unique<LoadedModel>(models, num_threads, poll);
    key_ = key;
    return *loaded_;
  }

 private:
  std::string key_;
  std::unique_ptr<LoadedModel> loaded_;
};

namespace {

std::int64_t kv_budget_bytes(const Scenario& scenario, std::int64_t spare_bytes) {
  if (scenario.backends.get<CpuConfig>().kv_cache_gib)
    return bytes_of_gib(*scenario.backends.get<CpuConfig>().kv_cache_gib);
  return spare_bytes / 2;  // leaves the rest to other processes
}

// The key by which a user makes the KV cache smaller.
const char* kv_size_key(const Scenario& scenario) {
  return scenario.kv_cache.num_blocks ? "kv_cache.num_blocks" : "cpu.kv_cache_gib";
}

// The KV bytes of all models: a draft model has as many blocks as the model.
std::int64_t kv_bytes(const RunModels& models, const KvCacheLayout& layout,
                      std::int64_t num_state_slots) {
  std::size_t bytes = KvStore::num_bytes(kv_shape(models.model.config, layout, num_state_slots));
  if (models.drafter) bytes += KvStore::num_bytes(kv_shape(models.drafter->config, layout, 0));
  return static_cast<std::int64_t>(bytes);
}

// As many blocks as fit beside the weights, and as all sequences need. Where prefixes are cached,
// that is the null block and one that a sequence shares more: the machine's memory is not the
// engine's alone, so none is taken for prefixes that nobody may ask for.
std::int64_t kv_capacity_blocks(const Scenario& scenario, const RunModels& models,
                                std::int64_t block_size, std::int64_t spare_bytes) {
  // A block has nothing but states where no layer attends.
  const std::int32_t num_groups = models.model.config.n_attention_layers() == 0 ? 1 : 0;
  const std::int64_t capacity =
      kv_budget_bytes(scenario, spare_bytes) /
      std::max<std::int64_t>(1, kv_bytes(models,
                                         {.num_blocks = 1,
                                          .block_size = static_cast<std::int32_t>(block_size),
                                          .states = {.num_groups = num_groups}},
                                         0));
  const ModelConfig& model = models.model.config;
  const std::int64_t useful = useful_kv_blocks(scenario, model, block_size, capacity);
  return std::min(useful,
                  full_kv_blocks(scenario, model, block_size) + scenario.engine.max_num_seqs + 1);
}

// The memory of the packed weights.
std::int64_t weight_bytes(const ModelSource& source) {
  std::int64_t bytes = 0;
  for (const WeightSpec& spec : weight_specs(source.config)) {
    const TensorType stored = source.weights->type(spec);
    const bool is_packed = spec.role == WeightRole::Linear || spec.role == WeightRole::Embedding;
    bytes += is_packed ? packed_bytes(packed_type(stored, spec.cols), spec.rows, spec.cols)
                       : stored_bytes(TensorType::Float32, spec.rows * spec.cols);
  }
  return bytes;
}

// " (Q4_K, Q6_K)": the block formats in which weights are kept; empty if there is none.
std::string formats_text(const ModelSource& source) {
  std::set<TensorType> types;
  for (const WeightSpec& spec : weight_specs(source.config)) {
    if (spec.role != WeightRole::Norm) {
      types.insert(packed_type(source.weights->type(spec), spec.cols));
    }
  }
  std::string names;
  for (const TensorType type : types) {
    if (block_format(type) == nullptr) continue;
    names.append(names.empty() ? "" : ", ").append(to_string(type));
  }
  return names.empty() ? names : " (" + names + ")";
}

std::string warning_of(const RunModels& models, int num_threads) {
  if (!models.model.warning.empty()) return models.model.warning;
  if (models.drafter && !models.drafter->warning.empty()) {
    return "speculative.model: " + models.drafter->warning;
  }
  const int num_processors = num_usable_processors();
  if (num_threads <= num_processors) return {};
  return fmt::format(
      "cpu.threads: {} threads on {} processors are slower than one thread per processor",
      num_threads, num_processors);
}

// Requires a scenario whose policy may plan drafts.
void check_draft_method(const Scenario& scenario, const ModelConfig& model) {
  const SpeculativeMethod method = scenario.speculative.method;
  if (method == SpeculativeMethod::DraftModel && !model.vision.is_empty()) {
    fail_config(
        scenario.location_of("speculative.method"), "speculative.method",
        "draft_model sees no images, and " + model.name + " takes them; allowed: none, ngram");
  }
  if (method != SpeculativeMethod::Eagle && method != SpeculativeMethod::Mtp) return;
  fail_config(scenario.location_of("speculative.method"), "speculative.method",
              std::string(method == SpeculativeMethod::Eagle ? "eagle" : "mtp") +
                  " drafts with layers that are not computed here; allowed: none, ngram, "
                  "draft_model, or --backend=sim");
}

// Requires that the models are found.
void check_drafts_of_states(const Scenario& scenario, const RunModels& models) {
  if (!scenario.speculative.is_on()) return;
  const ModelConfig* with_states = nullptr;
  if (models.drafter && models.drafter->config.n_linear_layers() > 0) {
    with_states = &models.drafter->config;
  }
  if (models.model.config.n_linear_layers() > 0) with_states = &models.model.config;
  if (with_states == nullptr) return;
  fail_config(scenario.location_of("speculative.method"), "speculative.method",
              "drafts are not computed with the states of " + with_states->name +
                  "; allowed: none, or --backend=sim");
}

RunModels find_models(const Scenario& scenario) {
  RunModels models = {.model = find_model_source(scenario), .drafter = {}};
  check_draft_method(scenario, models.model.config);
  if (scenario.speculative.method == SpeculativeMethod::DraftModel) {
    models.drafter = find_draft_source(scenario, models.model.config);
  }
  check_drafts_of_states(scenario, models);
  return models;
}

// The drafter of a run, perhaps with its KV; or nothing.
struct Drafting {
  std::unique_ptr<KvStore> kv;
  std::unique_ptr<Drafter> drafter;
};

class CpuRun final : public PreparedRun {
 public:
  CpuRun(const Scenario& scenario, RunModels sources, std::shared_ptr<LoadedModels> models)
      : scenario_(scenario),
        sources_(std::move(sources)),
        num_threads_(static_cast<int>(
            scenario.backends.get<CpuConfig>().threads.value_or(num_usable_processors()))),
        models_(std::move(models)) {
    model = sources_.model.config;
    weights_text = sources_.model.text;
    warning = warning_of(sources_, num_threads_);
    sampling_ = sampling_params(scenario, model.vocab_size);
  }

  const RunModels& sources() const { return sources_; }
  int num_threads() const { return num_threads_; }

  void check_workload(const Workload& workload) const override {
    check_token_ids(scenario_, workload, model.vocab_size);
    for (const auto& [content, picture] : workload.pictures) {
      if (picture.file) read_image(picture.file->bytes, picture.file->name);
    }
  }

  void load(const std::function<void()>& poll) override try {
    models_->get(sources_, num_threads_, poll);
  } catch (const std::system_error& error) {
    fail_config(
        scenario_.location_of("cpu.threads"), "cpu.threads",
        fmt::format("{} cannot be started ({}); allowed: fewer", num_threads_, error.what()));
  } catch (const std::bad_alloc&) {
    fail_config(scenario_.location_of("model"), "model",
                "the weights of " + model.name +
                    " do not fit into the memory; allowed: a smaller model, or more memory");
  }

  RunOutcome run(const Workload& workload, Clock& clock, std::span<EventSink* const> sinks,
                 const ProgressFn& progress) override try {
    KvStore kv(kv_shape(model, setup.kv_cache, setup.max_num_seqs));
    const WorkloadInput input(workload, scenario_.seed, model.vocab_size, sampling_, model.vision);
    LoadedModel& loaded = models_->get(sources_, num_threads_);
    const Drafting drafting = make_drafting(loaded);
    std::optional<ImageStore> images = make_images(loaded);
    CpuExecutor executor(loaded.transformer, kv, input, clock, source_of(drafting),
                         images ? &*images : nullptr);
    // A step can take seconds, so Ctrl-C is polled within it.
    RunProgress latest{.num_total = workload.requests.size()};
    if (progress) executor.set_poll([&] { progress(latest); });
    const ProgressFn remember = [&](const RunProgress& now) {
      latest = now;
      return !progress || progress(now);
    };
    return run_workload(setup, executor, clock, workload, sinks, remember, 1);
  } catch (const std::bad_alloc&) {
    fail_memory();
  }

  void serve(RequestFeed& feed, Clock& clock, std::span<EventSink* const> sinks) override try {
    KvStore kv(kv_shape(model, setup.kv_cache, setup.max_num_seqs));
    LoadedModel& loaded = models_->get(sources_, num_threads_);
    const Drafting drafting = make_drafting(loaded);
    std::optional<ImageStore> images = make_images(loaded);
    CpuExecutor executor(loaded.transformer, kv, feed, clock, source_of(drafting),
                         images ? &*images : nullptr);
    serve_requests(setup, executor, clock, feed, sinks);
  } catch (const std::bad_alloc&) {
    fail_memory();
  }

 private:
  [[noreturn]] void fail_memory() const {
    const char* const key = kv_size_key(scenario_);
    fail_config(scenario_.location_of(key), key,
                "the memory is used up beside a KV cache of " +
                    bytes_text(kv_bytes(sources_, setup.kv_cache, setup.max_num_seqs)) +
                    "; allowed: a smaller " + key);
  }
  std::optional<ImageStore> make_images(LoadedModel& loaded) const {
    if (!loaded.encoder) return std::nullopt;
    return ImageStore(*loaded.encoder,
                      read_image_processor(find_model_folder(scenario_.model), model.vision));
  }
  Drafting make_drafting(LoadedModel& loaded) const {
    Drafting drafting;
    const SpeculativeConfig& config = scenario_.speculative;
    if (setup.scheduler.drafts.num_tokens == 0) return drafting;
    if (!loaded.drafter) {
      drafting.drafter = std::make_unique<NgramDrafter>(
          NgramLookup(config.prompt_lookup_min, config.prompt_lookup_max));
      return drafting;
    }
    drafting.kv = std::make_unique<KvStore>(kv_shape(loaded.drafter->model(), setup.kv_cache, 0));
    drafting.drafter = std::make_unique<ModelDrafter>(*loaded.drafter, *drafting.kv,
                                                      config.num_speculative_tokens);
    return drafting;
  }
  DraftSource source_of(const Drafting& drafting) const {
    return {.drafter = drafting.drafter.get(), .max_model_len = setup.max_model_len};
  }

  Scenario scenario_;
  RunModels sources_;
  int num_threads_;
  std::shared_ptr<LoadedModels> models_;
  SamplingParams sampling_;
};

}  // namespace

CpuBackend::CpuBackend()
    : models_(std::make_shared<LoadedModels>()),
      available_memory_bytes_(metronome::available_memory_bytes()) {}

std::unique_ptr<PreparedRun> CpuBackend::prepare(const Scenario& scenario) try {
  auto run = std::make_unique<CpuRun>(scenario, find_models(scenario), models_);
  const RunModels& models = run->sources();
  const ModelConfig& model = run->model;
  check_cache_window(scenario, model);
  std::int64_t spare_bytes = available_memory_bytes_;
  const auto reserve_weights = [&](const ModelSource& source, const char* key) {
    const std::int64_t bytes = weight_bytes(source);
    check_memory(scenario, key,
                 "the weights of " + source.config.name + formats_text(source) + " take",
                 "the machine", bytes, spare_bytes);
    spare_bytes -= bytes;
    return bytes_text(bytes) + formats_text(source);
  };
  run->weights_text += ", " + reserve_weights(models.model, "model");
  if (models.drafter) {
    run->weights_text += "; drafts by " + models.drafter->config.name + ", " +
                         models.drafter->text + ", " +
                         reserve_weights(*models.drafter, "speculative.model");
  }
  run->device =
      fmt::format("{}, {} threads, {}", processor_name(), run->num_threads(), kernels().name);
  run->setup = make_engine_setup(scenario, model, [&](std::int64_t block_tokens) {
    return kv_capacity_blocks(scenario, models, block_tokens, spare_bytes);
  });
  // Tokens that a failed step did not compute must not be found as a prefix.
  run->setup.kv_cache.forgets_unfilled_blocks = true;
  const KvCacheLayout& cache = run->setup.kv_cache;
  check_memory(scenario, kv_size_key(scenario), "the KV cache takes", "the machine",
               kv_bytes(models, cache, run->setup.max_num_seqs), spare_bytes);
  return run;
} catch (const UnplacedConfigError& error) {
  fail_config(scenario.location_of(error.key()), error.key(), error.message());
}

}  // namespace metronome
