// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/tune_winner.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/base/wrapped_text.h"
#include "core/config/config_reader.h"
#include "core/scenario/scenario.h"
#include "engines/flags/server_flags.h"
#include "fleet/router_registry.h"
#include "reports/terminal/text.h"

namespace metronome {
namespace {

// Whether YAML needs no quotes around it.
bool is_plain_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
           c == '-' || c == '.';
  });
}

}  // namespace

std::string router_command(const Scenario& scenario) {
  if (!scenario.fleet.is_on()) return {};
  const RouterInfo& router = *find_router(scenario.fleet.router);
  return router.command == nullptr ? std::string() : router.command(scenario.fleet.settings);
}

std::vector<EngineFlags> winner_flags(const Scenario& scenario, const std::string& length_note,
                                      const std::string& release) {
  std::vector<EngineFlags> engines = engine_flags(scenario);
  for (EngineFlags& flags : engines) {
    if (!flags.is_comparison) flags = flags_of_release(std::move(flags), release);
    if (!length_note.empty()) flags.notes.insert(flags.notes.begin(), length_note);
  }
  return engines;
}

void print_flags(std::ostream& out, const std::vector<EngineFlags>& engines) {
  for (const EngineFlags& flags : engines) {
    out << '\n'
        << (flags.is_comparison ? "for comparison, " : "") << flags.engine << ' ' << flags.version
        << ":\n";
    if (!flags.refusal.empty()) {
      out << "  " << wrapped("no flags, as " + flags.refusal, 2, output_columns());
      continue;
    }
    for (const std::string& line : flag_lines(flags)) {
      // Lines of YAML keep their indentation.
      out << "  " << (flags.is_yaml ? line + "\n" : wrapped(line, 2, output_columns()));
    }
    for (const std::string& note : flags.notes) out << "  - " << wrapped(note, 4, output_columns());
  }
}

void print_yaml(std::ostream& out, const Scenario& winner) {
  Json config = winner.resolved();
  const Json defaults = Scenario().resolved();
  out << "\nas YAML:\n";
  if (winner.quantization != Quantization::Auto) {
    out << "  quantization: " << config.at("quantization").get<std::string>() << '\n';
  }
  std::vector<const char*> sections = {"engine", "kv_cache", "scheduler"};
  if (winner.speculative.is_on()) sections.push_back("speculative");
  if (winner.fleet.is_on()) sections.push_back("fleet");
  Json cost_model = Json::object();
  for (const auto& [key, value] : config.at("cost_model").items()) {
    if (is_default_of(winner.serve_defaults, "cost_model." + key)) continue;
    if (value != defaults.at("cost_model").value(key, Json())) cost_model[key] = value;
  }
  config["cost_model"] = cost_model;
  if (!cost_model.empty()) sections.push_back("cost_model");
  for (const char* section : sections) {
    std::string text = std::string(section) + ": {";
    bool is_first = true;
    for (const auto& [key, value] : config.at(section).items()) {
      text += (is_first ? "" : ", ") + key + ": ";
      const bool is_word = value.is_string() && is_plain_word(value.get<std::string>());
      text += is_word ? value.get<std::string>() : value.dump();
      is_first = false;
    }
    out << "  " << wrapped(printable(text + "}"), 4, output_columns());
  }
  if (const std::string router = router_command(winner); !router.empty()) {
    out << "\nrouter:\n  " << wrapped(router, 2, output_columns());
  }
}

}  // namespace metronome
