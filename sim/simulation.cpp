// SPDX-License-Identifier: Apache-2.0
#include "sim/simulation.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fmt/core.h>
#include <optional>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/engine/memory_facts.h"
#include "core/engine/policies/registry.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/scenario/engine_product.h"
#include "core/scenario/engine_setup.h"
#include "core/scenario/scenario.h"
#include "core/scenario/simulated_model.h"
#include "sim/cold_start.h"
#include "sim/cost/checked.h"
#include "sim/cost/cost_model_file.h"
#include "sim/cost/device_share.h"
#include "sim/cost/eager_passes.h"
#include "sim/cost_model_predictor.h"
#include "sim/drafts/drafted_model.h"
#include "sim/fitted/fitted_file.h"
#include "sim/measured_model.h"
#include "sim/micro_batches.h"
#include "sim/roofline/roofline.h"
#include "sim/scenario_drafter.h"
#include "sim/sim_executor.h"
#include "sim/token_executor.h"

namespace metronome {

namespace {

// vLLM's default limit of captured graph sizes.
constexpr std::int64_t kMaxDefaultGraphTokens = 512;

// The source of step times.
struct StepTimeSource {
  HardwareSpec hardware;
  std::optional<CostModelFile> file;  // absent: only the hardware's figures
};

StepTimeSource find_step_times(const Scenario& scenario) {
  StepTimeSource times;
  const std::string& name = scenario.cost_model.file;
  if (!name.empty()) {
    times.file = find_cost_model_file(name, scenario.location_of("cost_model.file"));
    if (scenario.speculative.has_drafts() && replays_steps(*times.file)) {
      throw UnplacedConfigError("cost_model.file",
                                times.file->name +
                                    " replays the steps of a run, which had no drafts; allowed: "
                                    "another kind of cost model, or speculative.method none");
    }
  }
  if (!scenario.hardware.empty()) {
    times.hardware = find_hardware(scenario.hardware, scenario.location_of("hardware"));
  } else if (times.file) {
    times.hardware = measured_hardware(*times.file);
  } else {
    const std::string why = find_policy(scenario.scheduler.policy)->predicts_steps
                                ? "required key is missing: policy '" + scenario.scheduler.policy +
                                      "' predicts step times"
                                : "required key is missing";
    throw UnplacedConfigError(
        "hardware", fmt::format("{}; allowed: a name of the catalogue, or the path of a YAML file "
                                "with one entry; or cost_model.file in its place",
                                why));
  }
  return times;
}

HostGap engine_host_gap(const Scenario& scenario) {
  return find_policy(scenario.scheduler.policy)
      ->host_gap.value_or(HostGap{.us = kDefaultHostGapUs});
}

double eager_us_per_layer(const EagerLaunches& launches, const ModelConfig& model,
                          std::int64_t tensor_parallel_size) {
  const double dense_us = tensor_parallel_size > 1 ? launches.dense_us : launches.dense_alone_us;
  const bool is_plain = !model.has_latent_attention() && !model.has_states();
  return (model.n_experts > 0 ? launches.experts_us : dense_us) +
         (is_plain ? 0 : launches.attention_us);
}

std::int64_t default_prompt_graph_tokens(const PolicyInfo& policy, const ModelConfig& model,
                                         const HardwareSpec& hardware,
                                         std::int64_t max_graph_tokens) {
  switch (policy.prompt_graphs) {
    case PromptGraphs::AsDecodes: return max_graph_tokens;
    case PromptGraphs::All: break;
    case PromptGraphs::None: return 0;
  }
  const bool lacks = policy.lacks_prompt_graphs != nullptr &&
                     policy.lacks_prompt_graphs(model, is_data_centre_blackwell(hardware));
  return max_graph_tokens > 0 && !lacks ? kAllPromptsInGraphs : 0;  // 0: no graphs at all
}

double reserved_memory_gib(const PolicyInfo& policy, const Scenario& scenario,
                           const ModelConfig& model, std::int64_t max_graph_tokens) {
  if (policy.reserved_gib == nullptr) return kPlainReservedGib;
  const SpeculativeMethod drafts = scenario.speculative.method;
  const std::int64_t tp = scenario.cost_model.tensor_parallel_size;
  std::int64_t num_tokens = token_budget(scenario.scheduler);
  if (num_tokens == kWholeModelLength) {
    num_tokens = scenario.engine.max_model_len.value_or(model.default_max_model_len());
  }
  const MemoryFacts facts = {
      .scheduler = scenario.scheduler,
      .looks_up_drafts =
          drafts == SpeculativeMethod::Ngram || drafts == SpeculativeMethod::DraftModel,
      .tensor_parallel_size = tp,
      .num_tokens = num_tokens,
      // A step has a token for each sequence.
      .num_seqs = std::min<std::int64_t>(scenario.engine.max_num_seqs, num_tokens),
      .max_graph_tokens = max_graph_tokens,
      .image_tokens = max_image_tokens(scenario, model),
      .gpu_memory_utilization = scenario.cost_model.gpu_memory_utilization,
      .weight_bytes = device_weight_bytes(model, tp)};
  return policy.reserved_gib(facts, model);
}

std::int64_t default_graph_tokens(const PolicyInfo& policy, const Scenario& scenario) {
  const std::int64_t num_requests = scenario.engine.max_num_seqs;
  if (policy.default_graph_requests > 0) {
    return std::min<std::int64_t>(num_requests, policy.default_graph_requests);
  }
  const std::int64_t tokens_each = 1 + scenario.speculative.num_drafts();
  return std::min(2 * num_requests * tokens_each, kMaxDefaultGraphTokens);
}

// The scenario's keys, and what its policy's engine has where they are open.
CostModelConfig resolved_config(const Scenario& scenario, const ModelConfig& model,
                                const HardwareSpec& hardware) {
  CostModelConfig config = scenario.cost_model;
  const PolicyInfo& policy = *find_policy(scenario.scheduler.policy);
  if (!config.max_graph_tokens) {
    config.max_graph_tokens = default_graph_tokens(policy, scenario);
  }
  if (!config.max_prompt_graph_tokens) {
    config.max_prompt_graph_tokens =
        default_prompt_graph_tokens(policy, model, hardware, *config.max_graph_tokens);
  }
  if (!config.eager_us_per_layer) {
    config.eager_us_per_layer =
        eager_us_per_layer(policy.eager, model, config.tensor_parallel_size);
  }
  if (!config.fuses_conversions) config.fuses_conversions = policy.fuses_conversions;
  if (!config.reserved_memory_gib) {
    config.reserved_memory_gib =
        reserved_memory_gib(policy, scenario, model, *config.max_graph_tokens);
  }
  return config;
}

// A drafter runs on the target's hardware.
std::unique_ptr<CostModel> make_drafter_model(const DrafterModel& drafter, const Scenario& scenario,
                                              const HardwareSpec& hardware,
                                              CostModelConfig config) {
  const std::string key = "speculative.cost_file";
  const std::string& name = scenario.speculative.cost_file;
  config.tensor_parallel_size = drafter.tensor_parallel_size;
  config.eager_us_per_layer = 0;  // speculative.pass_overhead_us is the host's part
  try {
    if (name.empty()) {
      if (hardware.peak_flops == 0) {
        throw UnplacedConfigError(key, "required key is missing: the peaks of " + hardware.name +
                                           " are not known; allowed: step times of " +
                                           drafter.model.name);
      }
      return std::make_unique<RooflineCostModel>(drafter.model, hardware, config,
                                                 drafter.input_params);
    }
    const CostModelFile file = find_cost_model_file(name, scenario.location_of(key), key);
    if (replays_steps(file)) {
      throw UnplacedConfigError(key, file.name +
                                         " replays the steps of a run, which a drafter does not "
                                         "repeat; allowed: another kind of cost model");
    }
    return make_cost_model(file, drafter.model, hardware, config);
  } catch (const UnplacedConfigError& error) {
    const bool is_size = error.key() == "cost_model.tensor_parallel_size";
    throw UnplacedConfigError(is_size ? "speculative.draft_tensor_parallel_size" : key,
                              error.message());
  }
}

std::unique_ptr<CostModel> with_drafts(std::unique_ptr<CostModel> target, const Scenario& scenario,
                                       const ModelConfig& model, const HardwareSpec& hardware,
                                       const CostModelConfig& config) {
  DraftedCostModel::Proposer proposer;
  if (const std::optional<DrafterModel> drafter = find_drafter(scenario, model)) {
    proposer = {.cost_model = make_drafter_model(*drafter, scenario, hardware, config),
                .num_more_tokens = drafter->num_more_tokens,
                .memory = drafter->memory(),
                .pass_overhead_ns = round_ns(scenario.speculative.pass_overhead_us * kNsPerMicro)};
  }
  if (scenario.speculative.method == SpeculativeMethod::Ngram) {
    proposer.lookup_us_per_kilotoken = scenario.speculative.ngram_us_per_kilotoken;
  }
  return std::make_unique<DraftedCostModel>(std::move(target), std::move(proposer), model, hardware,
                                            config);
}

std::unique_ptr<CostModel> cost_model_of(const StepTimeSource& times, const Scenario& scenario,
                                         const ModelConfig& model) {
  CostModelConfig config = resolved_config(scenario, model, times.hardware);
  HardwareSpec hardware = times.hardware;
  hardware.expert_overhead_us = config.expert_overhead_us.value_or(hardware.expert_overhead_us);
  hardware.tp_overhead_us = config.tp_overhead_us.value_or(hardware.tp_overhead_us);
  if (!config.host_gap_us && !hardware.host_gap_us) {
    const HostGap gap = engine_host_gap(scenario);
    hardware.host_gap_us = gap.us;
    config.host_gap_us_per_request = gap.us_per_request;
  }
  std::unique_ptr<CostModel> target =
      times.file ? make_cost_model(*times.file, model, hardware, config)
                 : with_eager_passes(std::make_unique<RooflineCostModel>(model, hardware, config),
                                     model, config);
  const PolicyInfo& policy = *find_policy(scenario.scheduler.policy);
  if (policy.pass_tokens != nullptr) {
    target =
        std::make_unique<MicroBatches>(std::move(target), policy.pass_tokens(scenario.scheduler));
  }
  if (scenario.speculative.num_drafts() == 0) return target;
  return with_drafts(std::move(target), scenario, model, hardware, config);
}

// Sets up the simulated device. Only the device has noise; policies and comparisons predict
// without.
void make_device(const StepTimeSource& times, const Scenario& scenario, Simulation& simulation) {
  simulation.cost_model = cost_model_of(times, scenario, simulation.model);
  if (scenario.cost_model.noise == StepNoise::None) return;
  if (!times.file || times.file->kind != "fitted") {
    throw UnplacedConfigError("cost_model.noise",
                              "calibrated needs fitted step times; "
                              "allowed: none, or a cost_model.file of kind fitted");
  }
  std::vector<StepScatter> scatter = read_fitted(*times.file).scatter;
  if (scatter.empty()) return;
  auto noisy = std::make_unique<NoisyCostModel>(std::move(simulation.cost_model),
                                                std::move(scatter), scenario.seed);
  simulation.noise = noisy.get();
  simulation.cost_model = std::move(noisy);
}

// The multiples of tokens at which vLLM's kernels export a state from inside a chunk: those of
// FlashInfer, which it takes for gated delta rules on Hopper and, with keys of 128, on Blackwell
// (_resolve_gdn_prefill_backend in vllm/model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py,
// FLASHINFER_GDN_CHECKPOINT_ALIGNMENT). 0: they do not.
std::int64_t state_export_unit(const ModelConfig& model, const HardwareSpec& hardware) {
  constexpr std::int64_t kFlashInferUnit = 64;
  if (model.linear_attention.is_empty()) return 0;
  const double generation = std::floor(hardware.compute_capability);
  const bool is_hopper = hardware.compute_capability == 9.0;
  const bool is_blackwell = (generation == 10 || generation == 12) &&
                            model.linear_attention.key_head_dim == 128;  // from CUDA 13 on
  return is_hopper || is_blackwell ? kFlashInferUnit : 0;
}

StateRules state_rules(const ModelConfig& model, const HardwareSpec& hardware) {
  return {.export_unit = state_export_unit(model, hardware), .divides_memory = true};
}

// A pool that the user counted in blocks may take more than the engine's share of memory, but not
// more than there is beside the weights.
void check_pool(const Scenario& scenario, const Simulation& simulation) {
  const KvCacheConfig& cache = scenario.kv_cache;
  if (!cache.num_blocks || cache.backend != KvBackend::Paged) return;
  DraftMemory drafter;
  if (scenario.speculative.has_drafts()) {
    if (const auto found = find_drafter(scenario, simulation.model)) drafter = found->memory();
  }
  const KvCapacityFn most_blocks = [&](std::int64_t block_tokens) {
    return most_kv_blocks(simulation.model, simulation.hardware,
                          scenario.cost_model.tensor_parallel_size, block_tokens, drafter);
  };
  const std::int64_t most = blocks_of_memory(scenario, simulation.model, most_blocks,
                                             state_rules(simulation.model, simulation.hardware));
  if (*cache.num_blocks <= most) return;
  const std::string allowed =
      most == 0 ? "a smaller model, or more memory" : fmt::format("auto, or 1 to {}", most);
  throw UnplacedConfigError(
      "kv_cache.num_blocks",
      fmt::format("{} blocks do not fit beside the weights into the memory of {}; allowed: {}",
                  *cache.num_blocks, simulation.hardware.name, allowed));
}

// States beside the blocks that limit requests, and prefix hits that need none here.
std::string state_warning(const Scenario& scenario, const Simulation& simulation) {
  const PolicyInfo& policy = *find_policy(scenario.scheduler.policy);
  if (simulation.model.n_linear_layers() == 0 || policy.groups_states) return "";
  std::string warning;
  const EngineSetup& setup = simulation.setup;
  if (setup.max_num_seqs < scenario.engine.max_num_seqs) {
    warning = fmt::format(
        "engine.max_num_seqs is lowered from {} to {}: there is memory for their states",
        scenario.engine.max_num_seqs, setup.max_num_seqs);
  }
  if (setup.kv_cache.enable_prefix_caching) {
    warning += std::string(warning.empty() ? "" : "; ") +
               "prefix hits count as if the states of all cached prefixes were kept";
  }
  return warning;
}

void check_memory(const Scenario& scenario, const Simulation& simulation) {
  if (simulation.hardware.memory_bytes == 0) return;
  check_pool(scenario, simulation);
  const EngineProduct& product = product_of(scenario.scheduler.policy);
  if (product.check_pool == nullptr) return;
  product.check_pool(scenario, simulation.model, simulation.setup, simulation.hardware.name);
}

// Of the vision tower. Only the roofline knows it, whatever the other step times come from.
// nullopt: its peaks are not known.
std::optional<EncoderCost> make_encoder_cost(const Scenario& scenario, const ModelConfig& model,
                                             const HardwareSpec& hardware) {
  if (hardware.peak_flops == 0) return std::nullopt;
  return EncoderCost(model.vision, hardware, scenario.cost_model.tensor_parallel_size,
                     model.bytes_per_weight);
}

}  // namespace

std::unique_ptr<StepTimePredictor> make_step_predictor(const Scenario& scenario,
                                                       const ModelConfig& model) try {
  return std::make_unique<CostModelPredictor>(
      cost_model_of(find_step_times(scenario), scenario, model));
} catch (const UnplacedConfigError& error) {
  fail_config(scenario.location_of(error.key()), error.key(), error.message());
}

TimeNs image_encode_ns(const Scenario& scenario, const ModelConfig& model,
                       std::int32_t num_embeddings) try {
  if (model.vision.is_empty() || num_embeddings == 0) return 0;
  const auto cost = make_encoder_cost(scenario, model, find_step_times(scenario).hardware);
  const PlannedEncoding image = {RequestId{0}, 0, num_embeddings};
  return cost ? cost->time_ns({&image, 1}) : 0;
} catch (const UnplacedConfigError& error) {
  fail_config(scenario.location_of(error.key()), error.key(), error.message());
}

namespace {

// Rounded, as people read it.
Setting in_micros(std::string key, double us) {
  return setting_of(std::move(key), fixed_text(us, 3));
}

}  // namespace

HostSettings host_settings(const Scenario& scenario) try {
  const StepTimeSource times = find_step_times(scenario);
  const CostModelConfig& config = scenario.cost_model;
  HostSettings settings;
  // Both kinds are made from steps with measured gaps.
  const bool has_measured_gap =
      times.file && (times.file->kind == "fitted" || times.file->kind == "replay");
  if (!config.host_gap_us && !times.hardware.host_gap_us && !has_measured_gap) {
    const HostGap gap = engine_host_gap(scenario);
    settings.times.push_back(in_micros("cost_model.host_gap_us", gap.us));
    settings.times.push_back(in_micros("cost_model.host_gap_us_per_request", gap.us_per_request));
  }
  const CostModelConfig resolved =
      resolved_config(scenario, simulated_model(scenario), times.hardware);
  settings.times.push_back(
      in_micros("cost_model.eager_us_per_layer", *resolved.eager_us_per_layer));
  settings.times.push_back({"cost_model.fuses_conversions", *resolved.fuses_conversions});
  settings.graphs = {{"cost_model.max_graph_tokens", *resolved.max_graph_tokens},
                     {"cost_model.max_prompt_graph_tokens", *resolved.max_prompt_graph_tokens}};
  return settings;
} catch (const UnplacedConfigError& error) {
  fail_config(scenario.location_of(error.key()), error.key(), error.message());
}

namespace {

// Sets the errors of the step times, as far as they are known.
void set_accuracy(const StepTimeSource& times, const Scenario& scenario, Simulation& simulation) {
  simulation.step_times =
      times.file ? times.file->kind + (times.file->source.empty() ? "" : ": " + times.file->source)
                 : "roofline of " + simulation.hardware.name;
  simulation.checked =
      checked_run(times.file ? times.file->kind : "roofline", simulation.hardware, simulation.model,
                  scenario.scheduler.policy, scenario.cost_model.tensor_parallel_size);
  if (!times.file || times.file->kind != "fitted") return;
  for (const RegimeError& error : read_fitted(*times.file).errors) {
    if (error.regime != "all") continue;
    // Of errors with a normal distribution, nine in ten are within twice their mean.
    const ErrorBand band = {-2 * error.mean_abs_error, 2 * error.mean_abs_error};
    simulation.own_accuracy = {.num_values = error.num_steps,
                               .tpot = band,
                               .ttft = band,
                               .mean_tpot_error = error.mean_abs_error};
  }
}

}  // namespace

Scenario on_own_engine(Scenario scenario) {
  if (!scenario.cost_model.eager_us_per_layer) scenario.cost_model.eager_us_per_layer = 0;
  return scenario;
}

Simulation prepare_simulation(const Scenario& scenario) try {
  if (scenario.fleet.is_on()) {
    throw UnplacedConfigError("fleet.replicas",
                              "several engines are not for this command, which looks at one; "
                              "allowed: 0, or metronome run, sweep or tune");
  }
  Simulation simulation;
  simulation.model = simulated_model(scenario);
  const StepTimeSource times = find_step_times(scenario);
  simulation.hardware = times.hardware;
  simulation.device = simulation.hardware.name;
  make_device(times, scenario, simulation);
  const KvCapacityFn kv_capacity = [&simulation](std::int64_t block_tokens) {
    return simulation.cost_model->kv_capacity_blocks(block_tokens);
  };
  simulation.setup = make_engine_setup(scenario, simulation.model, kv_capacity,
                                       state_rules(simulation.model, simulation.hardware));
  check_memory(scenario, simulation);
  const PolicyInfo& policy = *find_policy(scenario.scheduler.policy);
  if (policy.predicts_steps) {
    // A separate cost model, as predictions also ask about steps that never run. A model that
    // counts its calls would count them.
    simulation.predict_with(
        std::make_unique<CostModelPredictor>(cost_model_of(times, scenario, simulation.model)));
  }
  if (scenario.speculative.has_drafts()) {
    simulation.acceptance.emplace(scenario.speculative, scenario.seed);
  }
  if (!simulation.model.vision.is_empty()) {
    simulation.encoder_cost = make_encoder_cost(scenario, simulation.model, simulation.hardware);
  }
  simulation.cold_start_ns = std::llround(scenario.cost_model.cold_start_ms * 1e6);
  simulation.front_end = front_end_of(scenario);
  if (policy.warning != nullptr) {
    simulation.warning = policy.warning(scenario.scheduler, scenario.speculative.num_drafts());
  }
  const auto warn = [&simulation](const std::string& warning) {
    if (!simulation.warning.empty() && !warning.empty()) simulation.warning += "; ";
    simulation.warning += warning;
  };
  warn(state_warning(scenario, simulation));
  warn(simulation.model.approximation);
  set_accuracy(times, scenario, simulation);
  warn(unchecked_warning(simulation.checked));
  return simulation;
} catch (const UnplacedConfigError& error) {
  fail_config(scenario.location_of(error.key()), error.key(), error.message());
}

void Simulation::check_workload(const Workload& workload) const {
  if (workload.images.empty() || encoder_cost) return;
  throw UnplacedConfigError("hardware", "required key is missing: the peaks of " + hardware.name +
                                            " are not known, which price the encoding of "
                                            "images; allowed: a name of the catalogue");
}

std::optional<TimeAccuracy> Simulation::accuracy(double num_in_system) const {
  CheckedRun run = checked;
  run.num_in_system = num_in_system;
  std::optional<TimeAccuracy> accuracy = own_accuracy ? own_accuracy : accuracy_near(run);
  if (!accuracy) return std::nullopt;
  accuracy->step_times = step_times;
  accuracy->kv_bits = 8 * model.bytes_per_kv_element;
  return accuracy;
}

void Simulation::draw_noise(std::int32_t n) {
  if (noise != nullptr) noise->redraw(n);
}

RunOutcome Simulation::run(const Workload& workload, Clock& clock,
                           std::span<EventSink* const> sinks, const ProgressFn& progress) {
  // Steps are far cheaper than a progress check.
  constexpr std::int64_t kStepsPerProgress = 1024;
  SimExecutor simulated(*cost_model, acceptance ? &*acceptance : nullptr,
                        encoder_cost ? &*encoder_cost : nullptr, step_scale);
  ColdStart executor(simulated, cold_start_ns);
  return run_workload(setup, executor, clock, workload, sinks, progress, kStepsPerProgress,
                      front_end);
}

void Simulation::serve(RequestFeed& feed, Clock& clock, std::span<EventSink* const> sinks) {
  SimExecutor simulated(*cost_model, acceptance ? &*acceptance : nullptr,
                        encoder_cost ? &*encoder_cost : nullptr, step_scale);
  TokenExecutor with_tokens(simulated, feed);
  ColdStart executor(with_tokens, cold_start_ns);
  serve_requests(setup, executor, clock, feed, sinks);
}

std::unique_ptr<PreparedRun> SimulatedBackend::prepare(const Scenario& scenario) {
  return std::make_unique<Simulation>(prepare_simulation(scenario));
}

}  // namespace metronome
