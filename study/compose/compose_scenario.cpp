// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fmt/core.h>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/names.h"
#include "core/base/number_chars.h"
#include "core/config/config_reader.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/engine_product.h"
#include "core/scenario/scenario.h"
#include "core/scenario/serving_recipe.h"
#include "core/scenario/simulated_model.h"
#include "engines/arguments/engine_settings.h"
#include "engines/command/pasted_command.h"
#include "sim/cost/device_share.h"
#include "sim/simulation.h"
#include "study/compose/compose_workload.h"
#include "study/compose/scaled_context.h"
#include "study/compose/scenario_request.h"
#include "study/compose/yaml_draft.h"

namespace metronome {
namespace {

constexpr const char* kOrigin = "--command";

bool is_price(std::string_view text) {
  double price = 0;
  const auto [end, error] = read_number(text.data(), text.data() + text.size(), price);
  return error == std::errc() && end == text.data() + text.size() && price >= 0;
}

// The server that the request asks about.
struct Server {
  const EngineProduct* product = nullptr;
  std::string version;  // empty: not said
  EngineArguments arguments;
  std::vector<std::pair<std::string, std::string>> keys;  // of environment variables
  std::int64_t num_ranks = 1;                             // equal engines that share the requests
  std::vector<std::string> notes;
};

// An engine by the name of its policy or of its server.
const EngineProduct* named_engine(const std::string& name) {
  if (name.empty()) return nullptr;
  const std::string wanted = lower_ascii(name);
  const auto is_same = [&wanted](std::string_view known) {
    std::string plain = lower_ascii(std::string(known));
    std::string other = wanted;
    for (std::string* const text : {&plain, &other}) {
      std::erase_if(*text, [](char c) { return c == '-' || c == '_' || c == '.'; });
    }
    return plain == other;
  };
  for (const EngineProduct& product : all_engines()) {
    if (product.arguments == nullptr) continue;
    const ServerArguments& server = *product.arguments;
    if (is_same(server.policy) || is_same(server.title)) return &product;
    for (const ServerStart& start : server.starts) {
      if (is_same(start.words)) return &product;
    }
  }
  const std::vector<std::string_view> names = engine_names();
  throw UsageError("--engine: '" + printable(name) + "' is no engine with a command line" +
                   did_you_mean(name, names) + "; allowed: " + join_names(names));
}

Server read_server(const ScenarioRequest& request) {
  Server server;
  server.product = named_engine(request.engine);
  server.version = request.engine_version;
  if (!server.version.empty() && !engine_version(server.version)) {
    server.notes.push_back("--engine-version " + printable(server.version) +
                           " names no release: the rules are those of the newest.");
  }
  if (request.command.empty()) {
    if (server.product == nullptr) server.product = named_engine(std::string(engine_names()[0]));
    return server;
  }
  const ServerArguments* expected = server.product == nullptr ? nullptr : server.product->arguments;
  const PastedCommand command = find_command(request.command, expected, kOrigin);
  if (expected != nullptr && command.server != expected) {
    throw UsageError("--engine: the command starts " + std::string(command.server->title) +
                     "; allowed: no --engine, or its own");
  }
  server.product = &product_of(command.server->policy);
  if (server.version.empty()) server.version = command.version;
  GivenFlags given = flags_of(command, kOrigin);
  server.num_ranks = given.num_ranks;
  if (server.num_ranks > 1) drop_ranks(*command.server, given);
  add_notes(given, server.notes);
  server.arguments = std::move(given.arguments);
  server.keys = std::move(given.keys);
  if (command.server->derive != nullptr) command.server->derive(server.arguments, server.notes);
  return server;
}

// "Qwen3-8B-Q4_K_M" of the file of a model in parts, "Qwen3-8B-Q4_K_M-00001-of-00003".
std::string without_part(const std::string& stem) {
  constexpr std::string_view kShape = "-00001-of-00003";
  if (stem.size() <= kShape.size()) return stem;
  const std::string_view end = std::string_view(stem).substr(stem.size() - kShape.size());
  const bool is_part = std::equal(end.begin(), end.end(), kShape.begin(), [](char c, char shape) {
    return shape >= '0' && shape <= '9' ? c >= '0' && c <= '9' : c == shape;
  });
  return is_part ? stem.substr(0, stem.size() - kShape.size()) : stem;
}

// Parts of a path or repository that may be a model's name, the likeliest first:
// "/models/Qwen3-32B", ".../models--Qwen--Qwen3-32B/snapshots/0123".
std::vector<std::string> likely_names(const std::string& model) {
  std::vector<std::string> names = {model};
  constexpr std::string_view kCache = "models--";
  if (const std::size_t found = model.find(kCache); found != std::string::npos) {
    std::string name = model.substr(found + kCache.size());
    name = name.substr(0, name.find('/'));
    if (const std::size_t dash = name.find("--"); dash != std::string::npos) {
      name.replace(dash, 2, "/");
    }
    names.push_back(std::move(name));
  }
  std::string path = model;
  std::replace(path.begin(), path.end(), '\\', '/');  // of Windows
  constexpr std::string_view kGguf = ".gguf";
  const bool is_gguf = path.ends_with(kGguf);
  if (is_gguf) {
    path = without_part(path.substr(0, path.size() - kGguf.size()));
    names.push_back(path);
  }
  while (path.ends_with('/')) path.pop_back();
  const std::size_t slash = path.rfind('/');
  if (slash != std::string::npos) {
    const std::size_t before = slash == 0 ? std::string::npos : path.rfind('/', slash - 1);
    names.push_back(path.substr(before == std::string::npos ? 0 : before + 1));
    names.push_back(path.substr(slash + 1));
  }
  // "Llama-3.1-70B/ggml-model-Q6_K.gguf", as llama.cpp's converter names it.
  constexpr std::string_view kConverted = "ggml-model-";
  const std::size_t file = slash == std::string::npos ? 0 : slash + 1;
  if (is_gguf && slash != std::string::npos && path.substr(file).starts_with(kConverted)) {
    const std::string folder = path.substr(0, slash);
    names.push_back(folder.substr(folder.rfind('/') + 1) + "-" +
                    path.substr(file + kConverted.size()));
  }
  return names;
}

// The name of a model that is known. A server's path that this machine does not have may end in it.
std::string known_model(const std::string& model, std::vector<std::string>& notes) {
  for (const std::string& name : likely_names(model)) {
    try {
      find_model(name, {});
      if (name != model) {
        notes.push_back("The model is that of the name " + printable(name) + ", as " +
                        printable(model) + " is not on this machine.");
      }
      return name;
    } catch (const ConfigError&) {
      continue;
    }
  }
  static const auto kWhere = std::make_shared<const std::string>("the model");
  find_model(model, {kWhere, 0});  // throws with what is allowed
  return model;
}

// A file of this machine is found from any folder.
std::string with_absolute_path(const std::string& name) {
  return path_exists(name) ? std::filesystem::absolute(name).string() : name;
}

struct PricedGpu {
  std::string name;
  std::string price;  // of an hour; empty: not given
};

// "h100-sxm", "h100-sxm=2.99,l40s=0.79".
std::vector<PricedGpu> gpus_of(std::string_view text) {
  if (text.empty()) {
    throw UsageError(
        "--gpu: is missing; allowed: a name of `metronome list hardware`, or a file of its figures "
        "(docs/guide/gpu_file.md)");
  }
  std::vector<PricedGpu> gpus;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(','));
    text.remove_prefix(std::min(one.size() + 1, text.size()));
    const std::size_t equals = std::min(one.find('='), one.size());
    PricedGpu gpu = {std::string(one.substr(0, equals)), {}};
    if (equals < one.size()) gpu.price = one.substr(equals + 1);
    const bool has_wrong_price = equals < one.size() && !is_price(gpu.price);
    if (gpu.name.empty() || has_wrong_price) {
      throw UsageError(
          "--gpu: '" + printable(one) +
          "' is not valid; allowed: NAME or NAME=PRICE of an hour, with commas between "
          "several");
    }
    static const auto kWhere = std::make_shared<const std::string>("--gpu");
    find_hardware(gpu.name, {kWhere, 0});  // throws for an unknown one
    const bool is_known = std::any_of(gpus.begin(), gpus.end(), [&gpu](const PricedGpu& other) {
      return other.name == gpu.name;
    });
    if (is_known) {
      throw UsageError("--gpu: names " + printable(gpu.name) + " twice; allowed: each GPU once");
    }
    gpu.name = with_absolute_path(gpu.name);
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

// A name for the GPU's variant.
std::string variant_name(const PricedGpu& gpu) {
  std::string name = gpu.name.substr(gpu.name.rfind('/') + 1);
  std::replace_if(
      name.begin(), name.end(),
      [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_';
      },
      '-');
  return name;
}

void set_server(const ScenarioRequest& request, const Server& server,
                const std::vector<PricedGpu>& gpus, YamlDraft& draft,
                std::vector<std::string>& notes, std::optional<std::int64_t>& pool_tokens) {
  const ServerArguments& names = *server.product->arguments;
  std::string model = request.model.empty() ? model_of(names, server.arguments) : request.model;
  if (model.empty()) {
    throw UsageError(
        "--model: is missing; allowed: a name of `metronome list models`, a repository of Hugging "
        "Face, or the path of a config.json");
  }
  const std::string known = known_model(model, notes);
  const std::string scaled = with_scaled_context(known, server.arguments, notes);
  draft.set_text("model", with_absolute_path(scaled),
                 scaled == known ? "" : "its positions are scaled");
  draft.set_text("hardware", gpus.front().name);
  draft.set("scheduler.policy", std::string(names.policy));
  EngineArguments arguments = server.arguments;
  if (!server.version.empty() && !names.versions.empty()) arguments["version"] = server.version;
  arguments.try_emplace(std::string(names.model), model);
  EngineSettings settings = scenario_settings(names, arguments);
  std::string left_out = leave_out_window_settings(settings.assignments);
  if (!left_out.empty()) notes.push_back(std::move(left_out));
  for (const std::string& assignment : settings.assignments) {
    const std::size_t equals = assignment.find('=');
    const std::string value = assignment.substr(equals + 1);
    const bool is_path = value.find('/') != std::string::npos;
    is_path ? draft.set_text(assignment.substr(0, equals), value)
            : draft.set(assignment.substr(0, equals), value);
  }
  for (std::string& note : settings.notes) notes.push_back(std::move(note));
  for (const auto& [key, value] : server.keys) draft.set(key, value);
  if (!request.quantization.empty()) draft.set_text("quantization", request.quantization);
  if (request.tensor_parallel_size) {
    draft.set("cost_model.tensor_parallel_size", std::to_string(*request.tensor_parallel_size));
  }
  pool_tokens = settings.pool_tokens;
}

void set_limits(const ScenarioRequest& request, const WorkloadPreset* preset, YamlDraft& draft) {
  const auto set = [&](const char* key, const std::optional<double>& given,
                       std::optional<double> usual) {
    if (given) {
      draft.set(key, format_double(*given));
    } else if (usual) {
      draft.set(key, format_double(*usual), "usual for " + std::string(preset->name));
    }
  };
  const bool has_limit = request.ttft_ms || request.itl_ms || request.tpot_ms;
  const bool takes_usual = preset != nullptr && !has_limit;
  set("slo.ttft_ms", request.ttft_ms, takes_usual ? std::optional(preset->ttft_ms) : std::nullopt);
  set("slo.itl_ms", request.itl_ms, takes_usual ? std::optional(preset->itl_ms) : std::nullopt);
  set("slo.tpot_ms", request.tpot_ms, std::nullopt);
}

// The longest request that the server takes, or else the model.
ModelConfig model_of(const YamlDraft& draft) {
  const std::string model = draft.value("model");
  return find_model(model.starts_with('"') ? Json::parse(model).get<std::string>() : model, {});
}

// Data-parallel ranks of a dense model are engines by themselves, behind a router of their server.
// Returns among how many engines the requests are divided beforehand: the ranks of a model with
// experts, which meet in its layers, are one of them with its share.
std::int64_t set_ranks(const ScenarioRequest& request, const Server& server, YamlDraft& draft,
                       std::vector<std::string>& notes) {
  const std::string_view router = server.product->arguments->rank_router;
  const bool are_replicas = server.num_ranks > 1 && !router.empty() && !request.has_one_engine &&
                            model_of(draft).n_experts == 0;
  if (!are_replicas) return server.num_ranks;
  draft.set("fleet.replicas", std::to_string(server.num_ranks), "the data-parallel ranks");
  draft.set("fleet.router", std::string(router), "as the server divides requests among them");
  notes.push_back(
      fmt::format("The {} data-parallel ranks are replicas behind the router {}, as the model is "
                  "dense: figures are those of all ranks together.",
                  server.num_ranks, router));
  return 1;
}

std::int64_t context_of(const YamlDraft& draft) {
  if (draft.has("engine.max_model_len")) {
    std::int64_t given = 0;
    const std::string text = draft.value("engine.max_model_len");
    if (read_number(text.data(), text.data() + text.size(), given).ec == std::errc()) return given;
  }
  return model_of(draft).default_max_model_len();
}

// "qwen3-32b_h100-sxm_vllm".
std::string file_name(const std::string& model, const std::string& gpu, std::string_view engine) {
  std::string name = model.substr(model.rfind('/') + 1) + "_" + gpu.substr(gpu.rfind('/') + 1) +
                     "_" + std::string(engine);
  for (char& c : name) {
    const bool is_word =
        std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
    if (!is_word) c = '-';
  }
  return lower_ascii(name);
}

// A benchmark sends requests of one length.
bool has_one_length(const WorkloadConfig& workload) {
  return workload.prompt_tokens.distribution == LengthDistribution::Fixed &&
         workload.output_tokens.distribution == LengthDistribution::Fixed &&
         workload.trace.file.empty();
}

// Clients in a closed loop that ask as a benchmark's do.
bool is_benchmark(const ScenarioRequest& request, const Scenario& scenario) {
  return request.clients.has_value() && has_one_length(scenario.workload);
}

// The settings with which people start this release on the scenario's GPU, where the user gave
// none.
std::vector<ServeDefault> recipe_of(const ScenarioRequest& request, const Server& server,
                                    const Scenario& scenario, const YamlDraft& draft) {
  RecipeContext context;
  context.is_given = [&draft](std::string_view key) { return draft.has(key); };
  context.model = request.model.empty() ? model_of(*server.product->arguments, server.arguments)
                                        : request.model;
  context.version = server.version;
  context.is_benchmark = is_benchmark(request, scenario);
  context.has_own_flags = !request.command.empty();
  return serving_recipe(scenario, context);
}

std::string listed(const std::vector<ServeDefault>& steps) {
  std::string text;
  for (const ServeDefault& step : steps) {
    text += (text.empty() ? "" : ", ") + step.key + "=" + step.value;
  }
  return text;
}

void note_recipe(const std::string& steps, const Server& server, const std::string& gpu,
                 std::vector<std::string>& notes) {
  if (steps.empty()) return;
  notes.push_back("Set as people start " + std::string(server.product->arguments->title) +
                  (gpu.empty() ? "" : " on " + gpu) + ", with the reasons in the YAML: " + steps +
                  ".");
}

// Throws UsageError for what a scenario refuses: the user sees no file yet.
ScenarioFile parsed_file(const YamlDraft& draft) {
  constexpr std::string_view kPlace = "the command line";
  try {
    return parse_scenario(draft.text({}), std::string(kPlace), {});
  } catch (const ConfigError& error) {
    std::string text = error.what();
    if (text.starts_with(kPlace)) {  // with a line that only the program has seen
      text = "the command and its options: " + text.substr(text.find(": ") + 2);
    }
    throw UsageError(text);
  }
}

Scenario parsed(const YamlDraft& draft) { return parsed_file(draft).variants.front(); }

// One GPU stays as it is. Several are variants, each with what its recipe says; one on which the
// model does not fit is left out, with the reason.
void set_gpus(const ScenarioRequest& request, const Server& server,
              const std::vector<PricedGpu>& gpus, YamlDraft& draft,
              std::vector<std::string>& notes) {
  if (gpus.size() == 1) {
    if (!gpus.front().price.empty()) draft.set("price_per_gpu_hour", gpus.front().price);
    const std::vector<ServeDefault> steps = recipe_of(request, server, parsed(draft), draft);
    for (const ServeDefault& step : steps) draft.set(step.key, step.value, step.reason);
    return note_recipe(listed(steps), server, "", notes);
  }
  std::string variants;
  std::string refusal;
  for (const PricedGpu& gpu : gpus) {
    YamlDraft own = draft;
    own.set_text("hardware", gpu.name);
    const std::vector<ServeDefault> steps = recipe_of(request, server, parsed(own), draft);
    for (const ServeDefault& step : steps) own.set(step.key, step.value);
    try {
      Scenario alone = parsed(own);
      alone.fleet = {};
      (void)prepare_simulation(alone);
    } catch (const ConfigError& error) {
      const std::string reason = std::string(error.what());
      if (refusal.empty()) refusal = reason;
      notes.push_back(gpu.name + " is left out: " + reason + ".");
      continue;
    }
    YamlDraft variant;
    variant.set("name", variant_name(gpu));
    variant.set_text("hardware", gpu.name);
    if (!gpu.price.empty()) variant.set("price_per_gpu_hour", gpu.price);
    for (const ServeDefault& step : steps) variant.set(step.key, step.value);
    note_recipe(listed(steps), server, gpu.name, notes);
    variants += (variants.empty() ? "" : ", ") + variant.flow();
  }
  if (variants.empty()) throw UsageError(refusal);
  draft.set("variants", "[" + variants + "]");
}

// A KV cache of so many bytes on each GPU: what it and the weights leave is for the rest.
void set_pool_bytes(const Server& server, const std::vector<PricedGpu>& gpus, YamlDraft& draft) {
  const std::string name(server.product->arguments->pool_bytes);
  const std::optional<std::int64_t> bytes = count_of(server.arguments, name);
  if (name.empty() || !bytes || draft.has("kv_cache.num_blocks")) return;
  const std::string flag = flag_word(name);
  if (gpus.size() > 1) {
    throw UsageError(std::string(kOrigin) + ": " + flag +
                     " has one size for all GPUs; allowed: with one --gpu");
  }
  const Scenario scenario = parsed(draft);
  const ModelConfig model = simulated_model(scenario);
  const double memory = static_cast<double>(find_hardware(scenario.hardware, {}).memory_bytes) -
                        device_weight_bytes(model, scenario.cost_model.tensor_parallel_size);
  const double rest = memory - static_cast<double>(*bytes);
  if (*bytes <= 0 || rest <= 0) {
    throw UsageError(fmt::format("{}: {} is {}; allowed: 1 to {}, which the weights leave", kOrigin,
                                 flag, *bytes, static_cast<std::int64_t>(std::max(memory, 0.0))));
  }
  constexpr double kGib = 1024.0 * 1024 * 1024;
  draft.set("cost_model.gpu_memory_utilization", "1", "as " + flag + " says the pool's size");
  draft.set("cost_model.reserved_memory_gib", format_double(rest / kGib),
            "what weights and " + flag + " leave");
}

// Whether the rules of the scenario's version are known for its settings and its model.
bool has_known_rules(const Scenario& scenario, const EngineProduct& product,
                     const std::string& version_key) {
  if (product.check_model == nullptr) return true;
  const ModelConfig model = simulated_model(scenario);
  try {
    product.check_model(scenario, model,
                        scenario.engine.max_model_len.value_or(model.default_max_model_len()));
  } catch (const UnplacedConfigError& error) {
    return error.key() != version_key;  // other errors are told when the scenario is complete
  }
  return true;
}

// Old versions lack rules for settings and models that newer ones have: the first version with
// which the scenario is valid.
void choose_rules(const EngineProduct& product, const std::string& version, YamlDraft& draft,
                  std::vector<std::string>& notes) {
  const ServerArguments& server = *product.arguments;
  constexpr const char* kKey = "scheduler.version";
  if (version.empty() || server.versions.empty()) return;
  const std::string nearest = draft.value(kKey);
  for (const std::string_view one : versions_from(server, version)) {
    draft.set(kKey, std::string(one));
    try {
      if (!has_known_rules(parsed(draft), product, kKey)) continue;
    } catch (const UsageError&) {
      continue;
    }
    if (one == nearest) return;
    notes.push_back("The rules are those of " + std::string(server.title) + " " + std::string(one) +
                    ", as older ones are not known for these settings or this model.");
    return;
  }
  draft.set(kKey, nearest);  // its error is the one to tell
}

}  // namespace

bool ScenarioRequest::describes_requests() const {
  for (const std::string* const text :
       {&command, &workload, &sharegpt, &tokenizer, &trace, &prompt, &output}) {
    if (!text->empty()) return true;
  }
  return rate || clients || num_requests || ttft_ms || itl_ms || tpot_ms;
}

bool ScenarioRequest::is_given() const {
  for (const std::string* const text :
       {&command, &model, &gpu, &engine, &engine_version, &workload, &sharegpt, &tokenizer, &trace,
        &prompt, &output, &quantization}) {
    if (!text->empty()) return true;
  }
  return tensor_parallel_size || rate || clients || num_requests || ttft_ms || itl_ms || tpot_ms;
}

std::vector<std::string_view> engine_names() {
  std::vector<std::string_view> names;
  for (const EngineProduct& product : all_engines()) {
    if (product.arguments != nullptr) names.push_back(product.arguments->policy);
  }
  return names;
}

ComposedScenario compose_scenario(const ScenarioRequest& request) {
  ComposedScenario composed;
  YamlDraft draft;
  Server server = read_server(request);
  composed.notes = std::move(server.notes);
  composed.engine_version = server.version;
  const std::vector<PricedGpu> gpus = gpus_of(request.gpu);
  std::optional<std::int64_t> pool_tokens;
  set_server(request, server, gpus, draft, composed.notes, pool_tokens);
  if (draft.has("speculative.method")) {
    composed.notes.emplace_back(
        "Drafts are accepted with a probability of 0.7 a token, which is an assumption: "
        "speculative.acceptance has your server's.");
  }
  const std::int64_t context = context_of(draft);
  const ComposedWorkload workload = set_workload(
      request, set_ranks(request, server, draft, composed.notes), context, draft, composed.notes);
  set_limits(request, workload.preset, draft);
  const ServerArguments& names = *server.product->arguments;
  choose_rules(*server.product, server.version, draft, composed.notes);
  const bool has_length = draft.has("engine.max_model_len") || workload.longest == 0;
  if (request.command.empty() && !has_length && !is_benchmark(request, parsed(draft))) {
    draft.set("engine.max_model_len", std::to_string(std::min(workload.longest, context)),
              "the longest request");
  }
  if (pool_tokens) {
    const std::int64_t block = parsed(draft).kv_cache.block_size;
    if (!draft.has("kv_cache.block_size")) {
      draft.set("kv_cache.block_size", std::to_string(block), "the server's default");
    }
    draft.set("kv_cache.num_blocks", std::to_string(*pool_tokens / block),
              fmt::format("{} in blocks of {}", count_text(*pool_tokens, "token"), block));
  }
  set_gpus(request, server, gpus, draft, composed.notes);
  set_pool_bytes(server, gpus, draft);
  const Scenario scenario = parsed(draft);
  composed.name = file_name(scenario.model, request.gpu, names.policy);
  composed.yaml =
      draft.text({std::string(kComposedHead) + " A comment behind a value says where it comes",
                  "from, where it is not from the command line."});
  return composed;
}

}  // namespace metronome
