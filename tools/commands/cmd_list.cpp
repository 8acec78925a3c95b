// SPDX-License-Identifier: Apache-2.0
// `metronome list`: the names that scenarios can use, and their keys.
#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <iostream>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "core/config/config_reader.h"
#include "core/engine/policies/registry.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/metrics/figures.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/built_in_scenarios.h"
#include "core/scenario/engine_product.h"
#include "core/scenario/scenario.h"
#include "engines/flags/known_flags.h"
#include "engines/flags/server_flags.h"
#include "fleet/router_registry.h"
#include "reports/terminal/text.h"
#include "sim/cost/cost_model_file.h"
#include "sim/link/link.h"
#include "study/compose/scenario_request.h"
#include "tools/commands/cli.h"
#include "tools/commands/list_model.h"

namespace metronome {
namespace {

using Row = std::vector<std::string>;

// "3.21 G", "134.5 M": at least three digits.
std::string scaled_text(std::int64_t number, const char* giga, const char* mega) {
  const auto value = static_cast<double>(number);
  return value >= 1e9 ? fixed_text(value / 1e9, 2) + giga : fixed_text(value / 1e6, 1) + mega;
}

void list_models(const Arguments& arguments) {
  if (!arguments.empty()) return list_model(arguments.front());
  std::vector<Row> rows = {{"model", "parameters", "layers", "heads/kv", "weights", "KV kB/token",
                            "state MB", "context", "also found as"}};
  for (const ModelConfig& model : all_models()) {
    const std::vector<std::string> names = repositories_of(model.name);
    std::string also = names.empty() ? "" : names.front();
    if (names.size() > 1) also += fmt::format(" and {} more", names.size() - 1);
    rows.push_back({model.name, scaled_text(model.n_params(), " B", " M"),
                    std::to_string(model.n_layers),
                    fmt::format("{}/{}", model.n_heads, model.n_kv_heads),
                    scaled_text(model.weight_bytes(), " GB", " MB"),
                    fixed_text(static_cast<double>(model.kv_bytes_per_token()) / 1e3, 1),
                    fixed_text(static_cast<double>(model.state_bytes()) / 1e6, 1),
                    std::to_string(model.max_context()), also});
  }
  std::cout << aligned_rows(rows);
  std::cout
      << "\n`model:` may also be the path of a Hugging Face config.json or its folder. Without "
         "such a path, the\nname of a repository of the last column finds its model; so do "
         "those of models of the same shape,\nsuch as the instruction-tuned ones.\n";
}

void list_hardware(const Arguments&) {
  std::vector<Row> rows = {{"hardware", "bf16 TFLOP/s", "memory GB/s", "memory GiB", "link GB/s"}};
  for (const HardwareSpec& hardware : all_hardware()) {
    rows.push_back({hardware.name, fixed_text(hardware.peak_flops / 1e12, 0),
                    fixed_text(hardware.peak_bandwidth / 1e9, 0),
                    fixed_text(static_cast<double>(hardware.memory_bytes) / (1 << 30), 1),
                    fixed_text(hardware.link_bandwidth / 1e9, 0)});
  }
  std::cout << aligned_rows(rows);
}

void list_links(const Arguments&) {
  std::vector<Row> rows = {{"link", "GPUs", "all-reduce of 16 MiB", "what it is"}};
  for (const LinkName& known : all_links()) {
    const LinkSpec link = find_link(std::string(known.name), "");
    const Link two(link, nullptr, 2, 1);
    bool ignored = false;
    const double us = two.us(Collective::AllReduce, 16 << 20, true, ignored);
    rows.push_back({std::string(known.name), std::to_string(known.max_devices),
                    fixed_text(us, 0) + " us", std::string(known.description)});
  }
  std::cout << aligned_rows(rows);
  std::cout
      << "\nTimes are those of two GPUs. `cost_model.link:` may also be the path of a CSV file "
         "with columns\ncollective, devices, bytes, time_us.\n";
}

void list_routers(const Arguments&) {
  constexpr std::string_view kEvidence[] = {"own rule", "recorded", "read"};
  std::vector<Row> rows = {{"router", "evidence", "program", "where a request goes"}};
  for (const RouterInfo& router : all_routers()) {
    rows.push_back({std::string(router.name),
                    std::string(kEvidence[static_cast<std::size_t>(router.evidence)]),
                    std::string(router.source.empty() ? "-" : router.source),
                    std::string(router.summary)});
  }
  std::cout << aligned_rows(rows);
  std::cout << "\nRecorded: equal to recorded decisions of the running program; read: from its "
               "source.\n`metronome list keys fleet` has their settings.\n";
}

void list_cost_models(const Arguments&) {
  std::vector<Row> rows = {{"cost model", "kind", "hardware", "model", "TP", "engine", "source"}};
  for (const std::string& name : cost_model_names()) {
    const CostModelFile file = find_cost_model_file(name, {});
    rows.push_back({name, file.kind, file.hardware, file.model,
                    std::to_string(file.tensor_parallel_size), file.engine, file.source});
  }
  std::cout << aligned_rows(rows);
  std::cout
      << "\n`cost_model.file:` may also be the path of a file that `metronome calibrate` wrote: "
         "of kind\nprofile or operators (--import), fitted (--from), corrected (--from a request "
         "log), or\nreplay (--from RUN --kind replay).\n";
}

// The default of a key in a scenario with this policy.
std::string default_of(const DocumentedKey& key, const PolicyInfo& policy) {
  if (key.key == "scheduler.max_num_batched_tokens") {
    return policy.default_token_budget == kWholeModelLength
               ? "auto: max_model_len"
               : std::to_string(policy.default_token_budget);
  }
  std::string text = key.default_value;
  std::erase(text, '"');
  return text;
}

std::string prefix_caching_text(PrefixCaching caching) {
  switch (caching) {
    case PrefixCaching::Never: return "no";
    case PrefixCaching::OptionalOff: return "if kv_cache.enable_prefix_caching is true";
    case PrefixCaching::Optional: return "yes, unless kv_cache.enable_prefix_caching is false";
    case PrefixCaching::Always: return "always";
  }
  return {};
}

std::string host_gap_text(const HostGap& gap) {
  const std::string text = fixed_text(gap.us, 0) + " us";
  if (gap.us_per_request == 0) return text;
  return text + " and " + fixed_text(gap.us_per_request, 0) + " us a request";
}

void print_policy(const PolicyInfo& policy, const std::vector<DocumentedKey>& documented) {
  constexpr std::size_t kIndent = 4;
  const std::string indent(kIndent, ' ');
  std::cout << policy.name << '\n' << indent << wrapped(std::string(policy.summary), kIndent);
  std::cout << indent << wrapped("reproduces: " + std::string(policy.source), kIndent);
  std::cout << indent << "prefix caching: " << prefix_caching_text(policy.prefix_caching) << '\n';
  if (policy.host_gap) {
    std::cout << indent
              << wrapped("host gap between steps by default: " + host_gap_text(*policy.host_gap) +
                             " (" + std::string(policy.host_gap->source) + ")",
                         kIndent);
  }
  std::vector<Row> rows;
  for (const std::string_view key : policy.keys) {
    const auto found = std::find_if(
        documented.begin(), documented.end(),
        [&](const DocumentedKey& entry) { return entry.key == "scheduler." + std::string(key); });
    METRONOME_CHECK(found != documented.end(), "a policy reads keys that exist");
    rows.push_back({indent + "  " + std::string(key), default_of(*found, policy)});
  }
  if (!rows.empty()) std::cout << indent << "keys of scheduler, and their defaults:\n";
  std::cout << aligned_rows(rows);
}

void list_policies(const Arguments& arguments) {
  const std::vector<DocumentedKey> documented = documented_scenario_keys();
  std::vector<std::string_view> names;
  bool is_found = false;
  for (const PolicyInfo& policy : all_policies()) {
    names.push_back(policy.name);
    if (!arguments.empty() && arguments.front() != policy.name) continue;
    print_policy(policy, documented);
    is_found = true;
  }
  if (is_found) return;
  throw UsageError("list policies: unknown policy '" + arguments.front() + "'" +
                   did_you_mean(arguments.front(), names) + " (see `metronome list policies`)");
}

// An unreadable scenario does not hide the others.
std::string scenario_summary(const std::string& path) {
  try {
    return one_line(load_scenario(path, {}, std::nullopt).description);
  } catch (const ConfigError& error) {
    return std::string("(no scenario: ") + error.what() + ")";
  }
}

void list_built_in_scenarios() {
  std::vector<Row> rows;
  for (const BuiltInScenario& scenario : built_in_scenarios()) {
    const std::string name(scenario.name);
    rows.push_back({name, one_line(parse_scenario(scenario.yaml, name, {}).description)});
  }
  std::cout << aligned_rows(rows);
  std::cout << "\nThey are built in: `metronome run NAME` runs one from anywhere. `metronome list "
               "scenarios FOLDER`\nlists the scenario files of a folder.\n";
}

void list_scenarios(const Arguments& arguments) {
  if (arguments.empty()) return list_built_in_scenarios();
  namespace fs = std::filesystem;
  const fs::path folder = arguments.front();
  std::error_code error;
  std::vector<fs::path> paths;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".yaml") paths.push_back(it->path());
  }
  if (error) {
    throw UsageError("list scenarios: cannot read folder '" + folder.string() +
                     "': " + error.message());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Row> rows;
  for (const fs::path& path : paths) {
    rows.push_back({printable(path.string()), scenario_summary(path.string())});
  }
  std::cout << aligned_rows(rows);
}

void list_keys(const Arguments& arguments) {
  const std::string section = arguments.empty() ? "" : arguments.front();
  std::vector<DocumentedKey> keys = documented_scenario_keys();
  std::erase_if(keys, [&section](const DocumentedKey& key) {
    return !section.empty() && key.key != section && !key.key.starts_with(section + ".");
  });
  if (keys.empty()) {
    throw UsageError("list keys: no scenario key '" + section + "' (see `metronome list keys`)");
  }
  std::size_t width = 0;
  for (const DocumentedKey& key : keys) width = std::max(width, key.key.size());
  for (const DocumentedKey& key : keys) {
    std::cout << key.key << std::string(width - key.key.size() + 2, ' ')
              << wrapped(key.doc, width + 2) << std::string(width + 2, ' ')
              << wrapped(key.type + ": " + key.allowed + "; default " + key.default_value,
                         width + 2);
  }
}

void list_figures(const Arguments&) {
  constexpr const char* kBetter[] = {"", "less is better", "more is better"};
  std::size_t width = 0;
  for (const Figure& figure : all_figures()) width = std::max(width, figure.key.size());
  for (const Figure& figure : all_figures()) {
    if (!figure.is_written) continue;
    const std::string better = kBetter[static_cast<int>(figure.shown.better)];
    std::cout << figure.key << std::string(width - figure.key.size() + 2, ' ')
              << wrapped(std::string(figure.meaning) + (better.empty() ? "" : "; " + better),
                         width + 2);
  }
}

std::string fate_text(const KnownFlag& flag) {
  switch (flag.fate) {
    case FlagFate::Acts: return "acts";
    case FlagFate::Ignored: return "ignored";
    case FlagFate::Changes: break;
  }
  return "changes: " + flag.changes;
}

// "--max-num-seqs VALUE".
std::string flag_text(const KnownFlag& flag) {
  constexpr const char* kTakes[] = {"", " VALUE", " [VALUE]", " VALUE...", " JSON"};
  std::string text = flag.name;
  for (const std::string& alias : flag.aliases) text += ", " + alias;
  if (flag.has_negation) text += ", --no-" + flag.name.substr(2);
  for (const std::string& word : flag.negations) text += ", " + word;
  return text + kTakes[static_cast<std::size_t>(flag.takes)];
}

// "0.22.0 to 0.29.0", "from 0.22.0", "all".
std::string versions_text(const KnownFlag& flag) {
  if (flag.first_version.empty() && flag.last_version.empty()) return "all";
  if (flag.last_version.empty()) return "from " + flag.first_version;
  const std::string to = "to " + flag.last_version;
  return flag.first_version.empty() ? to : flag.first_version + " " + to;
}

void list_servers() {
  std::vector<Row> rows = {{"engine", "server", "flags", "act", "change times", "of versions"}};
  for (const EngineProduct& product : all_engines()) {
    const std::vector<KnownFlag>& flags = known_flags(product.name);
    if (flags.empty()) continue;
    const auto num_of = [&flags](FlagFate fate) {
      return std::to_string(std::count_if(
          flags.begin(), flags.end(), [fate](const KnownFlag& one) { return one.fate == fate; }));
    };
    const std::vector<std::string>& versions = flag_versions(product.name);
    const bool is_one = versions.size() == 1;
    rows.push_back({std::string(product.name), std::string(product.flags->server),
                    std::to_string(flags.size()), num_of(FlagFate::Acts), num_of(FlagFate::Changes),
                    versions.front() + (is_one ? "" : " to " + versions.back())});
  }
  std::cout << aligned_rows(rows) << "\n`metronome list flags ENGINE` lists all flags of one.\n";
}

void list_flags(const Arguments& arguments) {
  if (arguments.empty()) return list_servers();
  const std::vector<KnownFlag>& flags = known_flags(arguments.front());
  if (flags.empty()) {
    std::vector<std::string_view> names;
    for (const EngineProduct& product : all_engines()) {
      if (!known_flags(product.name).empty()) names.push_back(product.name);
    }
    throw UsageError("list flags: no list of '" + arguments.front() + "'" +
                     did_you_mean(arguments.front(), names) + "; allowed: " + join_names(names));
  }
  std::vector<Row> rows;
  for (const KnownFlag& flag : flags) {
    rows.push_back({flag_text(flag), versions_text(flag), fate_text(flag)});
  }
  std::cout << aligned_rows(rows);
}

void list_workloads(const Arguments&) {
  std::vector<Row> rows = {{"preset", "prompt", "output", "shared", "TTFT ms", "ITL ms"}};
  for (const WorkloadPreset& preset : workload_presets()) {
    rows.push_back({std::string(preset.name), std::string(preset.prompt),
                    std::string(preset.output), std::to_string(preset.shared_tokens),
                    fixed_text(preset.ttft_ms, 0), fixed_text(preset.itl_ms, 0)});
  }
  std::cout << aligned_rows(rows) << "\nLengths are median and p99 in tokens, of a lognormal.\n\n";
  for (const WorkloadPreset& preset : workload_presets()) {
    std::cout << wrapped(fmt::format("{}: {}; {}.", preset.name, preset.summary, preset.source), 2);
  }
}

struct Topic {
  std::string_view name;
  std::string_view summary;
  std::string_view argument;  // an optional argument after the name
  void (*print)(const Arguments& arguments);
};

constexpr Topic kTopics[] = {
    {"models", "models by name, or the shape of one, as it is read", "[MODEL]", list_models},
    {"hardware", "GPUs by name", "", list_hardware},
    {"links", "links between GPUs by name", "", list_links},
    {"costs", "measured cost models by name", "", list_cost_models},
    {"policies", "scheduling policies, with their sources, keys and defaults", "[POLICY]",
     list_policies},
    {"routers", "who gives requests to the replicas of a fleet", "", list_routers},
    {"scenarios", "built-in scenarios, or scenario files below a folder", "[FOLDER]",
     list_scenarios},
    {"keys", "scenario keys, all or those of a section", "[SECTION]", list_keys},
    {"workloads", "presets of requests for a command without a scenario file", "", list_workloads},
    {"figures", "figures of a run: the keys of result.json", "", list_figures},
    {"flags", "flags of an engine's server, and what becomes of each here", "[ENGINE]", list_flags},
};

void print_help(std::ostream& out) {
  out << "usage: metronome list TOPIC\n\ntopics:\n";
  for (const Topic& topic : kTopics) {
    const std::string name = std::string(topic.name) + " " + std::string(topic.argument);
    out << "  " << name << std::string(21 - name.size(), ' ') << topic.summary << '\n';
  }
  out << "\nexamples:\n"
         "  metronome list models\n"
         "  metronome list policies vllm\n"
         "  metronome list keys scheduler\n";
}

}  // namespace

int list_command(const Arguments& arguments) {
  std::vector<std::string_view> known;
  if (arguments.empty()) {
    for (const Topic& topic : kTopics) known.push_back(topic.name);
    throw UsageError("list: no topic; allowed: " + join_names(known) +
                     " (see `metronome list --help`)");
  }
  if (std::any_of(arguments.begin(), arguments.end(),
                  [](const std::string& word) { return word == "--help" || word == "-h"; })) {
    print_help(std::cout);
    return kExitDone;
  }
  for (const Topic& topic : kTopics) {
    if (topic.name != arguments.front()) {
      known.push_back(topic.name);
      continue;
    }
    const Arguments rest(arguments.begin() + 1, arguments.end());
    if (rest.size() > (topic.argument.empty() ? 0u : 1u)) {
      throw UsageError("list " + arguments.front() + ": unexpected argument '" + rest.back() + "'");
    }
    topic.print(rest);
    return kExitDone;
  }
  throw UsageError("list: unknown topic '" + arguments.front() + "'" +
                   did_you_mean(arguments.front(), known) + " (see `metronome list --help`)");
}

}  // namespace metronome
