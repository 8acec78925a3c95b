// SPDX-License-Identifier: Apache-2.0
// Chooses the runs that a report draws in detail, if there are too many to draw all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace metronome {

// A run that could be drawn in detail, with figures from its result.json. A missing figure is NaN.
struct DetailCandidate {
  std::string engine;  // backend, model, hardware, engine and cost_model; equal for comparable runs
  double p99_itl_ms = 0;
  double max_itl_ms = 0;
  double output_throughput = 0;
  double slo_attainment = 0;
  bool hides_stalls = false;  // as core/metrics/steadiness.h says it of the p99 ITL
};
DetailCandidate detail_candidate(std::string_view result_json);

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

// All candidates by reason, then in their order; a report draws the first ones. A run with reason
// InOrder keeps it when further candidates follow.
std::vector<DetailChoice> ranked_for_detail(std::span<const DetailCandidate> candidates);

// "a, b (the first run); c (...)": the names of the drawn runs, by reason. `names` has one name per
// candidate.
std::string detail_reasons_text(std::span<const DetailChoice> drawn,
                                std::span<const std::string> names);

}  // namespace metronome
