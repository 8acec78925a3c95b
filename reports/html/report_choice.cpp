// SPDX-License-Identifier: Apache-2.0
#include "reports/html/report_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

#include "core/base/json.h"
#include "core/metrics/steadiness.h"
#include "reports/html/result_value.h"

namespace metronome {
namespace {

constexpr double kThroughputTolerance = 0.03;
constexpr double kAsMuch = 0.999;  // throughputs within a thousandth count as equal

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

// The first of the best runs of `members`. Comparisons with NaN are false.
using Better = std::function<bool(const DetailCandidate&, const DetailCandidate&)>;
std::optional<std::size_t> best(std::span<const DetailCandidate> candidates,
                                const std::vector<std::size_t>& members,
                                const std::function<bool(const DetailCandidate&)>& counts,
                                const Better& is_better) {
  std::optional<std::size_t> found;
  for (const std::size_t run : members) {
    if (!counts(candidates[run])) continue;
    if (!found || is_better(candidates[run], candidates[*found])) found = run;
  }
  return found;
}

double steady_ms(const DetailCandidate& run, SteadyBy by) {
  return by == SteadyBy::Longest ? run.max_itl_ms : run.p99_itl_ms;
}

bool is_steadier(const DetailCandidate& a, const DetailCandidate& b, SteadyBy by) {
  return steady_ms(a, by) < steady_ms(b, by);
}

bool beats(const DetailCandidate& a, const DetailCandidate& b, SteadyBy by) {
  if (steady_ms(a, by) == steady_ms(b, by)) return a.output_throughput > b.output_throughput;
  return is_steadier(a, b, by) && a.output_throughput >= kAsMuch * b.output_throughput;
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

// The run of `members` that `reason` selects, if any.
std::optional<std::size_t> chosen_for(DetailReason reason,
                                      std::span<const DetailCandidate> candidates,
                                      const std::vector<std::size_t>& members, SteadyBy by) {
  const DetailCandidate& first = candidates[members.front()];
  switch (reason) {
    case DetailReason::LongestGap:
      return best(
          candidates, members,
          [](const DetailCandidate& run) { return std::isfinite(run.max_itl_ms); }, has_longer_gap);
    case DetailReason::LeastInSlo:
      return best(
          candidates, members, has_slo, [](const DetailCandidate& a, const DetailCandidate& b) {
            return a.slo_attainment != b.slo_attainment ? a.slo_attainment < b.slo_attainment
                                                        : has_longer_gap(a, b);
          });
    case DetailReason::First: return members.front();
    case DetailReason::Steadiest:
      return best(
          candidates, members,
          [&](const DetailCandidate& run) {
            return has_gaps(run, by) &&
                   run.output_throughput >= (1 - kThroughputTolerance) * first.output_throughput;
          },
          [by](const DetailCandidate& a, const DetailCandidate& b) {
            return is_steadier(a, b, by);
          });
    case DetailReason::MostInSlo:
      return best(candidates, members, has_slo,
                  [by](const DetailCandidate& a, const DetailCandidate& b) {
                    return has_more_in_slo(a, b, by);
                  });
    case DetailReason::LeastSteady:
      return best(
          candidates, members, [by](const DetailCandidate& run) { return has_gaps(run, by); },
          [by](const DetailCandidate& a, const DetailCandidate& b) {
            return is_steadier(b, a, by);
          });
    case DetailReason::Unbeaten:
    case DetailReason::OtherFigure:
    case DetailReason::InOrder: break;  // several, or all
  }
  return std::nullopt;
}

// The figure of a run's engine.
SteadyBy steady_by_of(std::span<const DetailCandidate> candidates,
                      const std::vector<std::size_t>& members) {
  const bool hides = std::any_of(members.begin(), members.end(),
                                 [&](std::size_t run) { return candidates[run].hides_stalls; });
  return hides ? SteadyBy::Longest : SteadyBy::P99;
}

SteadyBy other_figure(SteadyBy by) {
  return by == SteadyBy::P99 ? SteadyBy::Longest : SteadyBy::P99;
}

void place_unbeaten(std::span<const DetailCandidate> candidates,
                    const std::vector<std::size_t>& members, SteadyBy by, DetailReason reason,
                    Ranking& ranking) {
  for (const std::size_t run : members) {
    const bool is_beaten = std::any_of(members.begin(), members.end(), [&](std::size_t other) {
      return beats(candidates[other], candidates[run], by);
    });
    if (has_gaps(candidates[run], by) && !is_beaten) ranking.place(run, reason);
  }
}

}  // namespace

DetailCandidate detail_candidate(std::string_view result_json) {
  const Json result = Json::try_parse(result_json).value_or(Json());
  DetailCandidate candidate;
  if (!result.is_object()) return candidate;
  Json engine = Json::array({result.value("backend", Json())});
  if (const Json* config = result.find("config"); config != nullptr && config->is_object()) {
    for (const char* key : {"model", "hardware", "engine", "cost_model"}) {
      engine.push_back(config->value(key, Json()));
    }
  }
  candidate.engine = engine.dump({.replaces_bad_utf8 = true, .sorts_keys = true});
  candidate.p99_itl_ms = number_at(result, "p99_itl_ms");
  candidate.max_itl_ms = number_at(result, "max_itl_ms");
  candidate.output_throughput = number_at(result, "output_throughput");
  candidate.slo_attainment = number_at(result, "slo_attainment");
  Distribution itl;
  itl.mean_ms = number_at(result, "mean_itl_ms");
  itl.p50_ms = number_at(result, "p50_itl_ms");
  itl.p90_ms = number_at(result, "p90_itl_ms");
  itl.p95_ms = number_at(result, "p95_itl_ms");
  itl.p99_ms = candidate.p99_itl_ms;
  candidate.hides_stalls = hides_stalls(itl);
  return candidate;
}

std::vector<DetailChoice> ranked_for_detail(std::span<const DetailCandidate> candidates) {
  std::vector<std::vector<std::size_t>> engines;
  for (std::size_t run = 0; run < candidates.size(); ++run) {
    const auto same = std::find_if(engines.begin(), engines.end(), [&](const auto& members) {
      return candidates[members.front()].engine == candidates[run].engine;
    });
    if (same == engines.end()) {
      engines.push_back({run});
    } else {
      same->push_back(run);
    }
  }
  Ranking ranking(candidates.size());
  if (!engines.empty()) {
    std::vector<std::size_t> all(candidates.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    for (const DetailReason reason : {DetailReason::LongestGap, DetailReason::LeastInSlo}) {
      const auto chosen = chosen_for(reason, candidates, all, SteadyBy::P99);
      if (chosen) ranking.place(*chosen, reason);
    }
  }
  constexpr DetailReason kOfEngine[] = {DetailReason::First, DetailReason::Steadiest,
                                        DetailReason::MostInSlo, DetailReason::LeastSteady};
  for (const DetailReason reason : kOfEngine) {
    for (const auto& members : engines) {
      const SteadyBy by = steady_by_of(candidates, members);
      const auto chosen = chosen_for(reason, candidates, members, by);
      if (chosen) ranking.place(*chosen, reason);
    }
  }
  for (const auto& members : engines) {
    place_unbeaten(candidates, members, steady_by_of(candidates, members), DetailReason::Unbeaten,
                   ranking);
  }
  // A run that follows may hide its stalls, and so change the figure.
  for (const auto& members : engines) {
    const SteadyBy other = other_figure(steady_by_of(candidates, members));
    for (const DetailReason reason : kOfEngine) {
      const auto chosen = chosen_for(reason, candidates, members, other);
      if (chosen) ranking.place(*chosen, DetailReason::OtherFigure);
    }
    place_unbeaten(candidates, members, other, DetailReason::OtherFigure, ranking);
  }
  for (std::size_t run = 0; run < candidates.size(); ++run) {
    ranking.place(run, DetailReason::InOrder);
  }
  return ranking.take();
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
