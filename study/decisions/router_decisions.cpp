// SPDX-License-Identifier: Apache-2.0
#include "study/decisions/router_decisions.h"

#include <algorithm>
#include <optional>
#include <ostream>

#include "core/base/error.h"
#include "core/config/config_reader.h"
#include "fleet/decisions/router_case.h"

namespace metronome {
namespace {

void require_router(std::string_view router) {
  const auto known = decision_routers();
  if (std::find(known.begin(), known.end(), router) != known.end()) return;
  fail_config({}, "router",
              "unknown router '" + std::string(router) + "'; allowed: " + join_names(known));
}

// Of a field that the event has and the replay gives otherwise.
std::optional<DecisionDifference> difference_in(const Json& event, const RouterAnswer& answer,
                                                const std::string& choice_key, ReplicaId recorded) {
  for (const auto& [field, got] : answer.known.items()) {
    const Json* expected = event.find(field);
    if (expected == nullptr || *expected == got) continue;
    return {{.field = field, .expected = expected->dump(), .got = got.dump()}};
  }
  const std::vector<ReplicaId>& choices = answer.choices;
  if (std::find(choices.begin(), choices.end(), recorded) != choices.end()) return std::nullopt;
  return {{.field = choice_key,
           .expected = Json(recorded).dump(),
           .got = choices.size() == 1 ? Json(choices[0]).dump() : Json(choices).dump()}};
}

std::optional<DecisionDifference> check_case(RouterCase& c, std::size_t line) {
  for (std::size_t i = 0; i < c.num_events(); ++i) {
    const auto answer = c.apply(i);
    if (!answer) continue;
    const ReplicaId recorded = c.recorded_choice(i);
    auto difference =
        difference_in(c.json().at("events").at(i), *answer, std::string(c.choice_key()), recorded);
    if (difference) {
      difference->line = line;
      difference->name = c.name();
      difference->step = i;
      return difference;
    }
    c.send(recorded);
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string_view> decision_routers() { return recorded_routers(); }

void write_router_decisions(std::string_view router, const std::string& path, std::ostream& out) {
  require_router(router);
  for_each_router_case(router, path, [&out](RouterCase& c, std::size_t) {
    Json own = c.json();
    for (std::size_t i = 0; i < c.num_events(); ++i) {
      const auto answer = c.apply(i);
      if (!answer) continue;
      Json& event = own["events"].at(i);
      for (const auto& [field, got] : answer->known.items()) event[field] = got;
      event[std::string(c.choice_key())] = answer->choices.front();
      c.send(answer->choices.front());
    }
    out << own.dump() << '\n';
  });
}

DecisionCheck check_router_decisions(std::string_view router, const std::string& path) {
  require_router(router);
  DecisionCheck check;
  for_each_router_case(router, path, [&check](RouterCase& c, std::size_t line) {
    ++check.num_cases;
    if (auto difference = check_case(c, line)) check.differences.push_back(std::move(*difference));
  });
  return check;
}

}  // namespace metronome
