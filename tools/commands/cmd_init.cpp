// SPDX-License-Identifier: Apache-2.0
// `metronome init`: writes a commented scenario to start from.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/base/clip.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/config/config_reader.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/built_in_scenarios.h"
#include "core/scenario/scenario.h"
#include "sim/simulation.h"
#include "system/file_writer.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"

namespace metronome {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStarter = "starter";
constexpr const char* kDefaultFile = "scenario.yaml";

constexpr CommandText kInitText = {
    .name = "init",
    .arguments = "[FILE] [OPTION...]",
    .summary =
        "Writes a scenario with comments, to be edited and run. FILE must not exist yet (default:\n"
        "scenario.yaml).\n",
    .examples =
        "examples:\n"
        "  metronome init\n"
        "  metronome init mine.yaml --model Qwen/Qwen3-8B --hardware h200\n"
        "  metronome init agents.yaml --from agents\n",
    .file_name = "FILE",
    .file_kind = "file",
    .files = FileCount::AtMostOne};

const BuiltInScenario& known_scenario(const std::string& name) {
  if (const BuiltInScenario* const known = find_built_in_scenario(name)) return *known;
  std::vector<std::string_view> names;
  for (const BuiltInScenario& each : built_in_scenarios()) names.push_back(each.name);
  throw UsageError("--from: unknown scenario '" + name + "'" + did_you_mean(name, names) +
                   "; allowed: a name that `metronome list scenarios` prints");
}

// As YAML, and so that a path leads to its file from any folder.
std::string yaml_value(const std::string& value) {
  const std::string text = path_exists(value) ? fs::absolute(value).string() : value;
  const bool is_plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("._/+-").find(static_cast<char>(c)) != std::string_view::npos;
  });
  return is_plain ? text : Json(text).dump();
}

// Sets a key that stands at the beginning of a line; the line's comment stays.
void set_key(std::string& yaml, const BuiltInScenario& scenario, const std::string& key,
             const std::string& value) {
  const std::size_t line = ("\n" + yaml).find("\n" + key + ":");
  if (line == std::string::npos) {
    throw UsageError("--" + key + ": the scenario '" + std::string(scenario.name) +
                     "' has no key '" + key + "' outside of its sections; allowed: another --from");
  }
  const std::size_t begin = line + key.size() + 1;
  const std::size_t end = yaml.find('\n', begin);
  const std::size_t comment = std::min(yaml.find(" #", begin), end);
  yaml.replace(begin, comment - begin, " " + yaml_value(value));
}

// A wrong name writes nothing.
void check_names(const ScenarioFile& scenario) {
  for (const Scenario& variant : scenario.variants) {
    find_model(variant.model, variant.location_of("model"));
    if (!variant.hardware.empty()) {
      find_hardware(variant.hardware, variant.location_of("hardware"));
    }
  }
}

// A model may need more than the GPUs of the scenario, which is the user's to change.
std::string refusal_by_run(const ScenarioFile& scenario) {
  try {
    for (const Scenario& variant : scenario.variants) prepare_simulation(variant);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

int init_command(const Arguments& arguments) {
  std::string from = kStarter;
  std::string model;
  std::string hardware;
  const OptionList option_list = {
      {"from NAME", &from, "copy this built-in scenario (default: starter)"},
      {"model NAME", &model, "set `model:`, a name or the path of a config.json"},
      {"hardware NAME", &hardware, "set `hardware:`, a name of `metronome list hardware`"},
  };
  const auto line = parse_command(kInitText, option_list, arguments);
  if (!line) return kExitDone;
  const std::string file = line->files.empty() ? kDefaultFile : line->file();
  std::error_code ignored;
  if (fs::symlink_status(file, ignored).type() != fs::file_type::not_found) {
    throw UsageError(file + " exists; allowed: a new file");
  }
  const fs::path folder = fs::path(file).parent_path();
  if (!folder.empty() && !path_exists(folder.string())) {
    throw UsageError(printable(file) +
                     ": its folder does not exist; allowed: a file in a folder "
                     "that exists");
  }
  const BuiltInScenario& scenario = known_scenario(from);
  std::string yaml(scenario.yaml);
  if (!model.empty()) set_key(yaml, scenario, "model", model);
  if (!hardware.empty()) set_key(yaml, scenario, "hardware", hardware);
  const ScenarioFile parsed = parse_scenario(yaml, file, {});
  check_names(parsed);
  replace_file(file, yaml);
  const std::string shown = printable(file);
  std::cout << "scenario: " << shown << "\n\nnext: edit it, then\n  metronome workload " << shown
            << "\n  metronome run " << shown << '\n';
  const std::string refusal = refusal_by_run(parsed);
  if (!refusal.empty()) {
    std::cerr << "metronome: warning: until you edit it, `metronome run` refuses it: " << refusal
              << '\n';
  }
  return kExitDone;
}

}  // namespace metronome
