// SPDX-License-Identifier: Apache-2.0
#include "reports/html/report_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "core/base/json.h"

namespace metronome {
namespace {

constexpr double kThroughputTolerance = 0.03;
constexpr double kAsMuch = 0.999;  // throughputs within a thousandth count as equal
constexpr SteadyBy kFigures[] = {SteadyBy::P99, SteadyBy::Longest};

constexpr std::array<std::string_view, 9> kReasons = {
    "longest gap of all",
    "fewest requests within the SLO of all",
    "first of their engine",
    "steadiest at no more than 3 % less throughput than the first",
    "most requests within the SLO, at the highest throughput",
    "least steady",
    "not beaten in both steadiness and throughput",
    "of note by the other of p99 ITL and longest gap",
    "next in order"};

// Lists each run once, with the first reason given for it.
class Ranking {
 public:
  explicit Ranking(std::size_t size) : is_placed_(size) {}

  void place(std::size_t run, DetailReason reason) {
    if (is_placed_[run]) return;
    is_placed_[run] = true;
    choices_.push_back({run, reason});
  }
  std::vector<DetailChoice> take() { return std::move(choices_); }

 private:
  std::vector<bool> is_placed_;
  std::vector<DetailChoice> choices_;
};

double steady_ms(const DetailCandidate& run, SteadyBy by) {
  return by == SteadyBy::Longest ? run.max_itl_ms : run.p99_itl_ms;
}

bool is_steadier(const DetailCandidate& a, const DetailCandidate& b, SteadyBy by) {
  return steady_ms(a, by) < steady_ms(b, by);
}

// At a low load all are within the SLO: of equal shares, the one at more throughput tells more. In
// steps of about 3 %, within which runs count as equally fast.
bool has_more_in_slo(const DetailCandidate& a, const DetailCandidate& b, SteadyBy by) {
  if (a.slo_attainment != b.slo_attainment) return a.slo_attainment > b.slo_attainment;
  const auto step = [](const DetailCandidate& run) {
    return std::round(std::log(run.output_throughput) / kThroughputTolerance);
  };
  return step(a) != step(b) ? step(a) > step(b) : is_steadier(a, b, by);
}

bool has_gaps(const DetailCandidate& run, SteadyBy by) { return std::isfinite(steady_ms(run, by)); }
bool has_slo(const DetailCandidate& run) { return std::isfinite(run.slo_attainment); }

bool has_longer_gap(const DetailCandidate& a, const DetailCandidate& b) {
  return a.max_itl_ms > b.max_itl_ms;
}

bool has_less_in_slo(const DetailCandidate& a, const DetailCandidate& b) {
  return a.slo_attainment != b.slo_attainment ? a.slo_attainment < b.slo_attainment
                                              : has_longer_gap(a, b);
}

SteadyBy other_figure(SteadyBy by) {
  return by == SteadyBy::P99 ? SteadyBy::Longest : SteadyBy::P99;
}

}  // namespace

DetailCandidate detail_candidate(const ResultContent& result) {
  Json engine = Json::array({result.info.backend});
  if (const Json& config = result.info.config; config.is_object()) {
    for (const char* key : {"model", "hardware", "engine", "cost_model"}) {
      engine.push_back(config.value(key, Json()));
    }
  }
  const Distribution itl = result.figures.distribution("itl");
  DetailCandidate candidate;
  candidate.engine = engine.dump({.replaces_bad_utf8 = true, .sorts_keys = true});
  candidate.p99_itl_ms = itl.p99_ms;
  candidate.max_itl_ms = itl.max_ms;
  candidate.output_throughput = result.figures.number("output_throughput");
  candidate.slo_attainment = result.figures.number("slo_attainment");
  candidate.hides_stalls = hides_stalls(itl);
  return candidate;
}

template <class IsBetter>
void DetailRanking::keep_better(std::optional<std::size_t>& best, std::size_t run,
                                const IsBetter& is_better) const {
  if (!best || is_better(runs_[run], runs_[*best])) best = run;
}

void DetailRanking::add_to(EngineFigure& figure, SteadyBy by, std::size_t run, std::size_t first) {
  const DetailCandidate& own = runs_[run];
  const auto steadier = [by](const DetailCandidate& a, const DetailCandidate& b) {
    return is_steadier(a, b, by);
  };
  if (has_slo(own)) {
    keep_better(figure.most_in_slo, run, [by](const DetailCandidate& a, const DetailCandidate& b) {
      return has_more_in_slo(a, b, by);
    });
  }
  if (!has_gaps(own, by)) return;
  if (own.output_throughput >= (1 - kThroughputTolerance) * runs_[first].output_throughput) {
    keep_better(figure.steadiest, run, steadier);
  }
  keep_better(figure.least_steady, run,
              [&](const DetailCandidate& a, const DetailCandidate& b) { return steadier(b, a); });
  if (std::isnan(own.output_throughput)) return;
  // Each entry has more throughput than all that are steadier.
  const auto next = figure.front.upper_bound(steady_ms(own, by));
  if (next != figure.front.begin() && std::prev(next)->second >= own.output_throughput) return;
  auto slower = figure.front.insert_or_assign(steady_ms(own, by), own.output_throughput).first;
  for (++slower; slower != figure.front.end() && slower->second <= own.output_throughput;) {
    slower = figure.front.erase(slower);
  }
}

void DetailRanking::add(DetailCandidate candidate) {
  const std::size_t run = runs_.size();
  const auto [found, is_new] = engine_of_name_.emplace(candidate.engine, engines_.size());
  if (is_new) engines_.emplace_back();
  candidate.engine.clear();
  engine_of_.push_back(found->second);
  Engine& engine = engines_[found->second];
  engine.runs.push_back(run);
  engine.hides_stalls = engine.hides_stalls || candidate.hides_stalls;
  runs_.push_back(std::move(candidate));
  if (std::isfinite(runs_[run].max_itl_ms)) keep_better(longest_gap_, run, has_longer_gap);
  if (has_slo(runs_[run])) keep_better(least_in_slo_, run, has_less_in_slo);
  for (const SteadyBy by : kFigures) {
    add_to(engine.figure(by), by, run, engine.runs.front());
  }
}

bool DetailRanking::is_unbeaten(const EngineFigure& figure, SteadyBy by, std::size_t run) const {
  const DetailCandidate& own = runs_[run];
  if (!has_gaps(own, by)) return false;
  const auto equal = figure.front.lower_bound(steady_ms(own, by));
  const bool is_equal = equal != figure.front.end() && equal->first == steady_ms(own, by);
  if (is_equal && equal->second > own.output_throughput) return false;
  return equal == figure.front.begin() ||
         !(std::prev(equal)->second >= kAsMuch * own.output_throughput);
}

bool DetailRanking::has_reason(std::size_t run) const {
  const Engine& engine = engines_[engine_of_[run]];
  if (longest_gap_ == run || least_in_slo_ == run || engine.runs.front() == run) return true;
  return std::any_of(std::begin(kFigures), std::end(kFigures), [&](SteadyBy by) {
    const EngineFigure& figure = engine.figure(by);
    return figure.steadiest == run || figure.most_in_slo == run || figure.least_steady == run ||
           is_unbeaten(figure, by, run);
  });
}

std::vector<DetailChoice> DetailRanking::ranked() const {
  Ranking ranking(runs_.size());
  const auto place = [&ranking](const std::optional<std::size_t>& run, DetailReason reason) {
    if (run) ranking.place(*run, reason);
  };
  const auto place_unbeaten = [&](const Engine& engine, SteadyBy by, DetailReason reason) {
    for (const std::size_t run : engine.runs) {
      if (is_unbeaten(engine.figure(by), by, run)) ranking.place(run, reason);
    }
  };
  place(longest_gap_, DetailReason::LongestGap);
  place(least_in_slo_, DetailReason::LeastInSlo);
  for (const Engine& engine : engines_) place(engine.runs.front(), DetailReason::First);
  constexpr std::pair<DetailReason, std::optional<std::size_t> EngineFigure::*> kOfEngine[] = {
      {DetailReason::Steadiest, &EngineFigure::steadiest},
      {DetailReason::MostInSlo, &EngineFigure::most_in_slo},
      {DetailReason::LeastSteady, &EngineFigure::least_steady}};
  for (const auto& [reason, best] : kOfEngine) {
    for (const Engine& engine : engines_) place(engine.figure(engine.by()).*best, reason);
  }
  for (const Engine& engine : engines_) {
    place_unbeaten(engine, engine.by(), DetailReason::Unbeaten);
  }
  // A run that follows may hide its stalls, and so change the figure.
  for (const Engine& engine : engines_) {
    const SteadyBy other = other_figure(engine.by());
    for (const auto& [reason, best] : kOfEngine) {
      place(engine.figure(other).*best, DetailReason::OtherFigure);
    }
    place_unbeaten(engine, other, DetailReason::OtherFigure);
  }
  for (std::size_t run = 0; run < runs_.size(); ++run) ranking.place(run, DetailReason::InOrder);
  return ranking.take();
}

std::vector<DetailChoice> ranked_for_detail(std::span<const DetailCandidate> candidates) {
  DetailRanking ranking;
  for (const DetailCandidate& candidate : candidates) ranking.add(candidate);
  return ranking.ranked();
}

std::string detail_reasons_text(std::span<const DetailChoice> drawn,
                                std::span<const std::string> names) {
  std::string text;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const bool is_new = i == 0 || drawn[i].reason != drawn[i - 1].reason;
    text += (i == 0 ? "" : is_new ? "; " : ", ") + names[drawn[i].run];
    if (i + 1 == drawn.size() || drawn[i + 1].reason != drawn[i].reason) {
      text += " (" + std::string(kReasons[static_cast<std::size_t>(drawn[i].reason)]) + ")";
    }
  }
  return text;
}

}  // namespace metronome
