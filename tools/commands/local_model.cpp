// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/local_model.h"

#include <filesystem>
#include <fmt/core.h>
#include <optional>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "core/engine/budget_terms.h"
#include "core/engine/policies/registry.h"
#include "core/model/generation_config.h"
#include "core/model/model_catalogue.h"
#include "core/model/model_file.h"
#include "core/run/prepared_variant.h"
#include "core/scenario/built_in_scenarios.h"
#include "core/scenario/unplaced_scenario.h"
#include "models/image/image_processor.h"
#include "models/text/folder_chat.h"
#include "models/text/tokenizer.h"
#include "models/text/utf8.h"
#include "reports/terminal/text.h"
#include "study/run/variant_run.h"
#include "tools/commands/run_choice.h"

namespace metronome {
namespace {

// The scenario of a model that nothing else is said of: prompts in chunks, and answers of earlier
// turns are found in the cache.
std::string plain_scenario(const std::string& model) {
  return "model: " + Json(model).dump() +
         "\n"
         "engine: {max_num_seqs: 4}\n"
         "kv_cache: {enable_prefix_caching: true}\n"
         "scheduler: {policy: vllm, max_num_batched_tokens: 256}\n"
         "workload: {num_requests: 1, arrivals: {process: burst}, prompt_tokens: {value: 16}, "
         "output_tokens: {value: 64}}\n";
}

// As the simulation does, and says how to name the hardware.
void require_step_times(const Scenario& scenario, const std::string& name,
                        const std::string& backend) {
  const bool is_simulated = backend == "sim";
  if (scenario.names_step_times()) return;
  if (!is_simulated && !find_policy(scenario.scheduler.policy)->predicts_steps) return;
  find_model(scenario.model, scenario.location_of("model"));  // a path that cannot be read says so
  throw ConfigError(fmt::format(
      "{}: hardware: required key is missing (`--set hardware=NAME`): {} predicts step times; "
      "allowed: a name of `metronome list hardware`, or the path of a YAML file with one entry",
      name, is_simulated ? "--backend sim" : "policy '" + scenario.scheduler.policy + "'"));
}

ScenarioFile scenario_file(const std::string& name, const std::vector<std::string>& assignments,
                           const std::string& backend) {
  if (is_scenario_name(name)) {
    const WorkloadUse use = backend == "sim" ? WorkloadUse::AnswerLengths : WorkloadUse::Nothing;
    return load_scenario(name, assignments, std::nullopt, backend, use);
  }
  if (!is_utf8(name)) {
    throw UsageError("'" + printable(name) +
                     "' is not UTF-8; allowed: a model or a scenario whose name is UTF-8");
  }
  ScenarioFile file = parse_unplaced_scenario(plain_scenario(name), name, assignments);
  if (!file.has_variants) file.variants.front().name = "plain";
  for (const Scenario& scenario : file.variants) require_step_times(scenario, name, backend);
  return file;
}

Scenario chosen_scenario(const ScenarioFile& file, const std::string& variant,
                         const std::string& name) {
  std::vector<std::string> names;
  if (!variant.empty()) names.push_back(variant);
  std::vector<Scenario> chosen = chosen_variants(file, names);
  if (chosen.size() > 1) {
    std::string allowed;
    for (const Scenario& scenario : chosen) {
      allowed += (allowed.empty() ? "" : ", ") + scenario.name;
    }
    throw UsageError("--variant: " + name + " has several variants; allowed: " + allowed);
  }
  return std::move(chosen.front());
}

std::shared_ptr<const Tokenizer> find_tokenizer(const LocalModelChoice& choice,
                                                const Scenario& scenario, std::string& text) {
  std::string path = choice.tokenizer;
  if (path.empty()) {
    const std::string folder = find_model_folder(scenario.model);
    path = folder.empty() ? find_gguf_file(scenario.model) : folder + "/tokenizer.json";
    if (!path_exists(path)) path.clear();
  }
  text = path.empty() ? "bytes: one token per byte, as the model has no tokenizer.json here; "
                        "--tokenizer FILE gives texts their real lengths"
                      : path;
  return path.empty() ? byte_tokenizer() : read_tokenizer(path);
}

// Where the texts of bos_token and others are for a template of its own: with the tokenizer that is
// given, else in the model.
std::string tokens_source(const LocalModelChoice& choice, const std::string& folder,
                          const std::string& gguf) {
  const std::string& tokenizer = choice.tokenizer;
  if (tokenizer.empty()) return gguf.empty() ? folder : gguf;
  if (is_gguf_file(tokenizer)) return tokenizer;
  const std::string parent = std::filesystem::path(tokenizer).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::shared_ptr<const FolderChat> find_chat(const LocalModelChoice& choice,
                                            const Scenario& scenario) {
  const std::string folder = find_model_folder(scenario.model);
  const std::string gguf = find_gguf_file(scenario.model);
  std::optional<FolderChat> chat;
  if (!choice.chat_template.empty()) {
    chat = FolderChat::read_file(choice.chat_template, tokens_source(choice, folder, gguf));
  } else if (!gguf.empty()) {
    chat = FolderChat::read_gguf(gguf);
  } else if (!folder.empty()) {
    chat = FolderChat::read(folder);
  }
  return chat ? std::make_shared<const FolderChat>(std::move(*chat)) : nullptr;
}

std::string chat_text(const ServedModel& model) {
  if (model.chat) return model.chat->name();
  constexpr const char* kReason = ", as the model has no chat template here";
  switch (model.tokenizer->chat_family()) {
    case ChatFamily::Llama3: return std::string("of Llama 3") + kReason;
    case ChatFamily::Qwen3: return std::string("of Qwen 3") + kReason;
    case ChatFamily::Gemma3: return std::string("of Gemma 3") + kReason;
    case ChatFamily::None: break;
  }
  return std::string("roles and contents in lines") + kReason;
}

// The folder whose generation_config.json has the defaults; empty: there are none.
std::string defaults_folder(const LocalModelChoice& choice, const Scenario& scenario) {
  const std::string& chosen = choice.generation_config;
  if (chosen == "auto") return find_model_folder(scenario.model);
  if (chosen == "vllm") return {};
  if (path_exists(chosen + "/generation_config.json")) return chosen;
  throw UsageError("--generation-config: " + printable(chosen) +
                   " has no generation_config.json; allowed: auto, vllm, a folder that has one");
}

ServedModel served_model(const LocalModelChoice& choice, const PreparedVariant& variant,
                         std::string& tokenizer_text) {
  const Scenario& scenario = variant.scenario;
  ServedModel model;
  model.root = scenario.model;
  model.name = choice.model_name.empty() ? scenario.model : choice.model_name;
  model.tokenizer = find_tokenizer(choice, scenario, tokenizer_text);
  model.chat = find_chat(choice, scenario);
  if (const VisionTower& tower = variant.run->model.vision; !tower.is_empty()) {
    model.images = std::make_shared<const ImageProcessor>(
        read_image_processor(find_model_folder(scenario.model), tower));
  }
  model.vocab_size = variant.run->model.vocab_size;
  model.hidden_dim = variant.run->model.hidden_dim;
  model.max_model_len = variant.run->setup.max_model_len;
  model.computes = choice.backend != "sim";
  model.takes_penalties = variant.run->takes_penalties;
  model.orders_by_priority = budget_terms(scenario.scheduler).orders_by_priority;
  model.seed = scenario.seed;
  for (const RequestSpec& request : variant.workload->requests) {
    model.answer_lengths.push_back(request.max_output_tokens);
  }
  return model;
}

void refuse_noise(const Scenario& scenario) {
  const bool has_files =
      !find_model_folder(scenario.model).empty() || !find_gguf_file(scenario.model).empty();
  if (has_files || scenario.weights == Weights::Random) return;
  const ModelConfig model = find_model(scenario.model, scenario.location_of("model"));
  if (repositories_of(model.name).empty()) return;  // of no use but for tests
  fail_config(scenario.location_of("model"), "model",
              "the weights of " + model.name + " are not on this machine, and random ones (" +
                  fixed_text(static_cast<double>(model.weight_bytes()) / 1e9, 1) +
                  " GB) would answer with noise; allowed: the folder or GGUF file of a model, "
                  "`tools/model smollm2` and the name smollm2, or --set weights=random");
}

}  // namespace

bool is_scenario_name(std::string_view name) {
  return name.ends_with(".yaml") || name.ends_with(".yml") ||
         find_built_in_scenario(name) != nullptr || find_given_scenario(name) != nullptr;
}

LocalModel::LocalModel(const std::string& name, const std::vector<std::string>& assignments,
                       const LocalModelChoice& choice)
    : name_(name), assignments_(assignments), choice_(choice) {
  check_backend(choice.backend);
  backend_ = make_backend(choice.backend);
  use({});
}

LocalModel::~LocalModel() = default;

const PreparedVariant& LocalModel::variant() const { return variants_.front(); }

PreparedRun& LocalModel::run() { return *variants_.front().run; }

void LocalModel::use(const std::vector<std::string>& settings) {
  std::vector<std::string> all = assignments_;
  all.insert(all.end(), settings.begin(), settings.end());
  std::vector<Scenario> scenarios;
  scenarios.push_back(
      chosen_scenario(scenario_file(name_, all, choice_.backend), choice_.variant, name_));
  if (backend_->is_measured()) refuse_noise(scenarios.front());
  variants_ = prepare_variants(*backend_, std::move(scenarios));
  served_ = served_model(choice_, variant(), tokenizer_text_);
  find_sampling_defaults();
}

void LocalModel::find_sampling_defaults() {
  sampling_text_.clear();
  sampling_warning_.clear();
  const std::string folder = defaults_folder(choice_, variant().scenario);
  if (folder.empty()) return;
  SamplingDefaults& defaults = served_.sampling;
  defaults = read_sampling_defaults(folder);
  const std::string path = folder + "/generation_config.json";
  const double penalty = defaults.repetition_penalty.value_or(1);
  if (penalty != 1 && !served_.takes_penalties) {
    sampling_warning_ = path + ": repetition_penalty " + Json(penalty).dump() +
                        " is not used; only --backend=cpu computes penalties";
    defaults.repetition_penalty.reset();
  }
  const std::string text = defaults.text();
  if (!text.empty()) sampling_text_ = text + ", of " + path;
}

std::vector<std::string> LocalModel::warnings() const {
  std::vector<std::string> warnings;
  if (served_.chat && !served_.chat->empty_tokens().empty()) {
    const std::vector<std::string>& names = served_.chat->empty_tokens();
    warnings.push_back("the chat template names " +
                       join_names(std::vector<std::string_view>(names.begin(), names.end())) +
                       ", whose text is empty here; a tokenizer_config.json beside the tokenizer, "
                       "or a GGUF file, defines it");
  }
  if (!sampling_warning_.empty()) warnings.push_back(sampling_warning_);
  if (served_.tokenizer->vocab_size() > served_.vocab_size) {
    warnings.push_back("the tokenizer has " + count_text(served_.tokenizer->vocab_size(), "token") +
                       " and the model " + grouped_text(served_.vocab_size) +
                       ": a text with a token beyond the model's is refused");
  }
  const std::string& of_weights = variants_.front().run->warning;
  if (!of_weights.empty()) warnings.push_back(of_weights);
  return warnings;
}

void LocalModel::print_header(double speed) const {
  const PreparedVariant& variant = variants_.front();
  const EngineSetup& setup = variant.run->setup;
  const std::string pace =
      speed == 1 ? std::string() : " " + fixed_text(speed, 3) + " times as fast";
  say("model",
      served_.name + " on " + variant.run->device + (served_.computes ? "" : ", simulated" + pace));
  say("engine",
      fmt::format("{}, {} sequences of up to {} tokens, {} of {} tokens",
                  variant.scenario.scheduler.policy, setup.max_num_seqs, setup.max_model_len,
                  count_text(setup.kv_cache.num_blocks, "KV block"), setup.kv_cache.block_size));
  say("tokenizer", tokenizer_text_);
  say("template", chat_text(served_));
  if (!sampling_text_.empty()) say("sampling", sampling_text_);
  if (!variant.run->weights_text.empty()) say("weights", variant.run->weights_text);
  for (const std::string& warning : warnings()) say("warning", warning);
}

}  // namespace metronome
