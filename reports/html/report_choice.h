// SPDX-License-Identifier: Apache-2.0
// Chooses the runs that a report draws in detail, if there are too many to draw all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/metrics/steadiness.h"
#include "reports/files/result_files.h"

namespace metronome {

// A run that could be drawn in detail, with its figures. A missing one is NaN.
struct DetailCandidate {
  std::string engine;  // backend, model, hardware, engine and cost_model; equal for comparable runs
  double p99_itl_ms = 0;
  double max_itl_ms = 0;
  double output_throughput = 0;
  double slo_attainment = 0;
  bool hides_stalls = false;  // as core/metrics/steadiness.h says it of the p99 ITL
};
DetailCandidate detail_candidate(const ResultContent& result);

// The steadiest run has the lowest p99 ITL, or the shortest longest gap where the p99 of a run on
// the engine hides its stalls, as in `sweep` and `tune` (core/metrics/steadiness.h).
//
// Why a run is drawn: the first reason that applies. The worst runs are the worst of all; the other
// reasons hold among the runs on one engine.
enum class DetailReason : std::uint8_t {
  LongestGap,   // of all runs; a report of many runs shows what went wrong
  LeastInSlo,   // fewest requests within the SLO of all runs; longest gap among equals
  First,        // the reference for the others
  Steadiest,    // at no more than 3 % less output throughput than the first
  MostInSlo,    // most requests within the SLO; among equals most throughput, in steps of 3 %, and
                // then the steadiest
  LeastSteady,  // the opposite of the steadiest
  Unbeaten,     // no other run is steadier at the same throughput, within a thousandth
  OtherFigure,  // one of the four by the other figure
  InOrder,      // the rest
};

struct DetailChoice {
  std::size_t run = 0;  // index of the candidate
  DetailReason reason = DetailReason::First;
};

// Ranks candidates that come one by one. The time of each is logarithmic in their number.
class DetailRanking {
 public:
  void add(DetailCandidate candidate);
  std::size_t size() const { return runs_.size(); }
  // False: the run's reason is InOrder, and stays so when further candidates follow.
  bool has_reason(std::size_t run) const;
  // All candidates by reason, then in their order; a report draws the first ones.
  std::vector<DetailChoice> ranked() const;

 private:
  // The runs of note on one engine, by one of the two figures.
  struct EngineFigure {
    std::optional<std::size_t> steadiest;
    std::optional<std::size_t> most_in_slo;
    std::optional<std::size_t> least_steady;
    std::map<double, double> front;  // figure to throughput, of runs with more than all steadier
  };
  struct Engine {
    std::vector<std::size_t> runs;
    bool hides_stalls = false;  // one of its runs does
    EngineFigure by_p99;
    EngineFigure by_longest;

    SteadyBy by() const { return hides_stalls ? SteadyBy::Longest : SteadyBy::P99; }
    EngineFigure& figure(SteadyBy which) { return which == SteadyBy::P99 ? by_p99 : by_longest; }
    const EngineFigure& figure(SteadyBy which) const {
      return which == SteadyBy::P99 ? by_p99 : by_longest;
    }
  };

  // The first of the best stays.
  template <class IsBetter>
  void keep_better(std::optional<std::size_t>& best, std::size_t run,
                   const IsBetter& is_better) const;
  void add_to(EngineFigure& figure, SteadyBy by, std::size_t run, std::size_t first);
  bool is_unbeaten(const EngineFigure& figure, SteadyBy by, std::size_t run) const;

  std::vector<DetailCandidate> runs_;  // without the engine's text
  std::vector<std::size_t> engine_of_;
  std::map<std::string, std::size_t> engine_of_name_;
  std::vector<Engine> engines_;
  std::optional<std::size_t> longest_gap_;
  std::optional<std::size_t> least_in_slo_;
};

// The ranking of candidates that are all there.
std::vector<DetailChoice> ranked_for_detail(std::span<const DetailCandidate> candidates);

// "a, b (the first run); c (...)": the names of the drawn runs, by reason. `names` has one name per
// candidate.
std::string detail_reasons_text(std::span<const DetailChoice> drawn,
                                std::span<const std::string> names);

}  // namespace metronome
