// SPDX-License-Identifier: Apache-2.0
#include "study/decisions/decisions.h"

#include <algorithm>
#include <fmt/core.h>
#include <optional>
#include <ostream>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/scenario/engine_product.h"
#include "engines/decisions/decision_format.h"
#include "engines/decisions/decision_replay.h"

namespace metronome {
namespace {

const EngineProduct& engine_named(std::string_view name) {
  const auto all = all_engines();
  const auto found = std::find_if(all.begin(), all.end(), [name](const EngineProduct& product) {
    return product.decisions != nullptr && product.name == name;
  });
  if (found != all.end()) return *found;
  fail_config(
      {}, "engine",
      "unknown engine '" + std::string(name) + "'; allowed: " + join_names(decision_engines()));
}

DecisionSource source_of(std::string_view engine, const std::string& path,
                         std::string_view version) {
  DecisionSource source{.format = engine_named(engine).decisions, .path = path};
  if (version.empty()) return source;
  const Names versions = source.format->versions;
  if (versions.empty()) {
    fail_config({}, "version", std::string(engine) + " has one version; allowed: none");
  }
  const auto found = std::find(versions.begin(), versions.end(), version);
  if (found == versions.end()) {
    fail_config({}, "version",
                "unknown version '" + std::string(version) + "'; allowed: " + join_names(versions));
  }
  source.version = static_cast<int>(found - versions.begin());
  return source;
}

// Whether the values are equal and their members have the same order, which identifies an engine's
// order.
bool is_same(const Json& a, const Json& b) {
  if (!a.is_structured() || a != b) return a == b;
  for (std::size_t i = 0; i < a.items().size(); ++i) {
    const auto& [key, value] = a.items()[i];
    if (b.items()[i].key != key || !is_same(value, b.items()[i].value)) return false;
  }
  return std::equal(a.begin(), a.end(), b.begin(), is_same);
}

// The first field that differs, without its position. If the run ended as stuck in this step, the
// record may lack fields.
std::optional<DecisionDifference> first_difference(const Json& recorded, const Json& got) {
  for (const auto& [field, expected] : recorded.items()) {
    const Json* found = got.find(field);
    if (found == nullptr) return {{.field = field, .expected = expected.dump(), .got = ""}};
    if (!is_same(*found, expected)) {
      return {{.field = field, .expected = expected.dump(), .got = found->dump()}};
    }
  }
  if (recorded.contains("stuck")) return std::nullopt;
  for (const auto& [field, value] : got.items()) {
    if (!recorded.contains(field)) {
      return {{.field = field, .expected = "", .got = value.dump()}};
    }
  }
  return std::nullopt;
}

std::optional<DecisionDifference> check_case(const DecisionCase& c) {
  std::optional<DecisionDifference> difference;
  DecisionReplay replay(c);
  std::size_t step = 0;
  for (; !replay.has_ended(); ++step) {
    const Json got = replay.step();
    // If one log is longer, only the length differs. That is reported at the end.
    if (step >= c.steps_json.size() || got.dump() == c.steps_json[step]) continue;
    difference = first_difference(Json::parse(c.steps_json[step]), got);
    if (difference) break;
  }
  replay.check_integrity();
  if (!difference && step != c.steps_json.size()) {
    difference = {.field = "number of steps",
                  .expected = std::to_string(c.steps_json.size()),
                  .got = std::to_string(step)};
    step = std::min(step, c.steps_json.size());
  }
  if (difference) {
    difference->line = static_cast<std::size_t>(c.where.line);
    difference->seed = c.seed;
    difference->step = step;
  }
  return difference;
}

std::string with_own_steps(const DecisionCase& c) {
  std::string text = fmt::format("{{\"seed\":{}", c.seed);
  if (!c.kind.empty()) text += ",\"kind\":" + Json(c.kind).dump();
  text += ",\"config\":" + c.config_json + ",\"requests\":" + c.requests_json + ",\"steps\":[";
  DecisionReplay replay(c);
  for (bool is_first = true; !replay.has_ended(); is_first = false) {
    if (!is_first) text += ',';
    text += replay.step().dump();
  }
  replay.check_integrity();
  return text + "]}\n";
}

}  // namespace

std::vector<std::string_view> decision_engines() {
  std::vector<std::string_view> names;
  for (const EngineProduct& product : all_engines()) {
    if (product.decisions != nullptr) names.push_back(product.name);
  }
  return names;
}

void write_decisions(std::string_view engine, const std::string& path, std::ostream& out,
                     std::string_view version) {
  for_each_decision_case(source_of(engine, path, version),
                         [&out](const DecisionCase& c) { out << with_own_steps(c); });
}

DecisionCheck check_decisions(std::string_view engine, const std::string& path,
                              std::string_view version) {
  DecisionCheck check;
  for_each_decision_case(source_of(engine, path, version), [&check](const DecisionCase& c) {
    if (!c.has_steps) {
      fail_config(c.where, "steps", "required key is missing; allowed: the steps to check");
    }
    ++check.num_cases;
    if (auto difference = check_case(c)) check.differences.push_back(std::move(*difference));
  });
  return check;
}

}  // namespace metronome
