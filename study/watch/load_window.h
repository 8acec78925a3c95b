// SPDX-License-Identifier: Apache-2.0
// The work of a server between two looks at its metrics.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engines/log/engine_log.h"
#include "engines/metrics/server_metrics.h"
#include "study/what_if/causes.h"

namespace metronome {

struct Look {
  double at_s = 0;    // on any clock that runs evenly
  std::string clock;  // time of day, "16:05:10"
  ServerMetrics metrics;
};

struct LoadWindow {
  double seconds = 0;
  bool has_restarted = false;  // then counts are those since the restart
  std::map<std::int32_t, EngineFigures> engines;
  EngineFigures all;  // all_engines_together()

  // Per second; nullopt: the server does not count it.
  std::optional<double> rate(ServerFigure figure) const {
    const auto count = all.number(figure);
    return count && seconds > 0 ? std::optional(*count / seconds) : std::nullopt;
  }
  // Share of the looked up prompt tokens that the prefix cache had; nullopt: not known, or none
  // was looked up.
  std::optional<double> hit_rate() const;
};

LoadWindow window_between(const Look& before, const Look& now);

// Problems that the looks show by themselves: report_findings() of one line for each engine and
// look behind the first. `log` has the settings of the server; nullptr: they are not known.
std::vector<Cause> find_in_looks(std::span<const Look> looks, const EngineLog* log);

// Adds causes that are not there yet. A queue is what waits for neither slots nor the cache: it is
// left out where one of these is there.
void add_causes(std::span<const Cause> more, std::vector<Cause>& causes);

}  // namespace metronome
