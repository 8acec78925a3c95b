// SPDX-License-Identifier: Apache-2.0
#include "study/watch/load_window.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engines/log/log_dialect.h"
#include "reports/terminal/report_findings.h"

namespace metronome {
namespace {

std::int64_t whole(std::optional<double> value) {
  constexpr double kMost = 1e15;
  return value && *value < kMost ? std::llround(*value) : 0;
}

// As the line that a server logs at intervals.
LogObservation report_of(const EngineFigures& engine, std::int32_t rank, double seconds,
                         const std::string& clock) {
  LogObservation seen;
  seen.kind = Observed::Report;
  seen.time = clock;
  seen.rank = rank;
  seen.num_running = whole(engine.number(ServerFigure::Running));
  seen.num_waiting = whole(engine.number(ServerFigure::Waiting));
  seen.prompt_rate = engine.number(ServerFigure::PromptTokens).value_or(0) / seconds;
  seen.decode_rate = engine.number(ServerFigure::OutputTokens).value_or(0) / seconds;
  seen.cache_usage = engine.number(ServerFigure::CacheUse);
  seen.num_preempted = whole(engine.number(ServerFigure::Preempted));
  return seen;
}

// The cache is full where a prompt of the mean length and a block for its answer find no room.
double full_share(std::span<const Look> looks) {
  constexpr double kMost = 0.95;  // as in logs, which do not say lengths
  constexpr double kLeast = 0.5;
  const ServerMetrics& now = looks.back().metrics;
  const LoadWindow window = window_between(looks.front(), looks.back());
  const BucketCounts& lengths = window.all.histogram(ServerFigure::PromptLength);
  if (!now.block_size || !now.num_blocks || lengths.empty()) return kMost;
  const auto block = static_cast<double>(*now.block_size);
  const double pool = block * static_cast<double>(*now.num_blocks);
  return std::clamp(1 - (lengths.mean() + block) / pool, kLeast, kMost);
}

}  // namespace

std::optional<double> LoadWindow::hit_rate() const {
  const auto queries = all.number(ServerFigure::PrefixQueries);
  const auto hits = all.number(ServerFigure::PrefixHits);
  if (!queries || !hits) return all.number(ServerFigure::HitRate);
  return *queries > 0 ? std::optional(*hits / *queries) : std::nullopt;
}

LoadWindow window_between(const Look& before, const Look& now) {
  LoadWindow window;
  window.seconds = now.at_s - before.at_s;
  window.has_restarted = before.metrics.started_at != now.metrics.started_at;
  for (const auto& [rank, engine] : now.metrics.engines) {
    const auto found = before.metrics.engines.find(rank);
    if (found == before.metrics.engines.end()) continue;
    if (!figures_since(found->second, engine)) window.has_restarted = true;
  }
  for (const auto& [rank, engine] : now.metrics.engines) {
    const auto found = before.metrics.engines.find(rank);
    const bool is_new = window.has_restarted || found == before.metrics.engines.end();
    window.engines[rank] = is_new ? engine : *figures_since(found->second, engine);
  }
  window.all = all_engines_together(window.engines);
  return window;
}

void add_causes(std::span<const Cause> more, std::vector<Cause>& causes) {
  const auto has = [&causes](std::string_view name) {
    return std::any_of(causes.begin(), causes.end(),
                       [name](const Cause& one) { return one.name == name; });
  };
  for (const Cause& cause : more) {
    if (!has(cause.name)) causes.push_back(cause);
  }
  if (!has("slots") && !has("full")) return;
  std::erase_if(causes, [](const Cause& one) { return one.name == "queue"; });
}

std::vector<Cause> find_in_looks(std::span<const Look> looks, const EngineLog* log) {
  std::vector<Cause> causes;
  if (looks.size() < 2) return causes;
  EngineLog polled;
  polled.dialect = find_log_dialect(looks.back().metrics.names->policy);
  if (polled.dialect == nullptr) return causes;
  if (log != nullptr && log->dialect == polled.dialect) {
    polled.settings = log->settings;
    polled.chosen = log->chosen;
  }
  for (std::size_t i = 1; i < looks.size(); ++i) {
    const LoadWindow window = window_between(looks[i - 1], looks[i]);
    if (window.seconds <= 0) continue;
    for (const auto& [rank, engine] : window.engines) {
      polled.observations.push_back(report_of(engine, rank, window.seconds, looks[i].clock));
    }
  }
  for (LogFinding& found : report_findings(polled, full_share(looks))) {
    causes.push_back({found.name, std::move(found.text), found.share});
  }
  return causes;
}

}  // namespace metronome
