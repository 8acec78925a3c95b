// SPDX-License-Identifier: Apache-2.0
#include "study/verify/advice.h"

#include <algorithm>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/json_place.h"
#include "core/base/names.h"
#include "engines/log/log_text.h"

namespace metronome {
namespace {

constexpr std::string_view kFigures[] = {"p50_itl_ms",        "p99_itl_ms",  "max_itl_ms",
                                         "p50_ttft_ms",       "p99_ttft_ms", "output_throughput",
                                         "request_throughput"};
constexpr const char* kAllowed = "the output of `metronome diagnose --json`";

std::map<std::string, double> figures_of(const JsonPlace& trial) {
  std::map<std::string, double> figures;
  for (const std::string_view key : kFigures) {
    const JsonPlace figure = trial.at(std::string(key));
    if (!figure.is_null()) figures[std::string(key)] = figure.number();
  }
  return figures;
}

void append_texts(const JsonPlace& list, std::vector<std::string>& texts) {
  list.for_each([&texts](const JsonPlace& text) { texts.push_back(text.text()); });
}

// The limit of every gap, of a goal that has one.
std::optional<double> gap_limit_of(const JsonPlace& goal) {
  std::optional<double> limit_ms;
  goal.for_each([&limit_ms](const JsonPlace& side) {
    if (side.at("figure").text() != "max_itl_ms" || !side.at("class").is_null()) return;
    limit_ms = side.at("at_most").number();
  });
  return limit_ms;
}

// The flags of the engine that is advised; those of others are for comparison.
void read_flags(const JsonPlace& list, Advice& advice) {
  list.for_each([&advice](const JsonPlace& flags) {
    if (flags.at("is_comparison").truth() || !advice.engine.empty()) return;
    advice.engine = flags.at("engine").text();
    append_texts(flags.at("add"), advice.flags);
    flags.at("change").for_each(
        [&advice](const JsonPlace& change) { advice.flags.push_back(change.at("to").text()); });
  });
}

}  // namespace

std::span<const std::string_view> promised_figures() { return kFigures; }

Advice read_advice(const std::string& path) {
  const Json json = read_json_file(path, kAllowed);
  const JsonPlace file(path, json);
  if (!json.is_array() || json.size() != 1 || !json[0].is_object() ||
      json[0].find("what_if") == nullptr) {
    file.fail("is not the diagnosis of one run; allowed: " + std::string(kAllowed) +
              " for one log or one run");
  }
  const JsonPlace diagnosis(path, json[0]);
  const JsonPlace what_if = diagnosis.at("what_if");
  if (what_if.is_null() || !what_if.at("obstacle").is_null() || what_if.at("change").is_null()) {
    file.fail("advises no change; allowed: a diagnosis with one");
  }
  const JsonPlace change = what_if.at("change");
  Advice advice;
  append_texts(change.at("set"), advice.changes);
  if (change.at("keeps_goal").truth()) advice.limit_ms = gap_limit_of(what_if.at("goal"));
  advice.simulated_before = figures_of(what_if.at("baseline"));
  advice.promised = figures_of(change);
  if (!what_if.at("flags").is_null()) read_flags(what_if.at("flags"), advice);
  return advice;
}

void add_promise(const std::string& text, Advice& advice) {
  const std::size_t equals = text.find('=');
  const std::string key = text.substr(0, equals);
  const auto known = std::find(std::begin(kFigures), std::end(kFigures), key);
  std::optional<double> value;
  if (equals != std::string::npos) {
    value = number_in<double>(std::string_view(text).substr(equals + 1));
  }
  if (known == std::end(kFigures) || !(value && *value > 0)) {
    throw UsageError("--promise: '" + printable(text) +
                     "' is not valid; allowed: FIGURE=VALUE with a value above 0 and one of " +
                     join_names(kFigures));
  }
  advice.promised[key] = *value;
}

}  // namespace metronome
