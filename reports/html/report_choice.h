// Which runs of a report are drawn in detail, where there are more than it draws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace metronome {

// A run that could be drawn in detail: its result.json in brief. A figure that is not there is NaN.
struct DetailCandidate {
  std::string engine;  // backend, model, hardware, engine and cost_model: equal for runs to compare
  double p99_itl_ms = 0;
  double output_throughput = 0;
  double slo_attainment = 0;
};
DetailCandidate detail_candidate(std::string_view result_json);

// Why a run is drawn; the first that holds, among the runs on one engine.
enum class DetailReason : std::uint8_t {
  First,        // what the others are compared with
  Steadiest,    // lowest p99 ITL at no more than 3 % less output throughput than the first
  MostInSlo,    // most requests within the SLO, the lowest p99 ITL of equals
  LeastSteady,  // highest p99 ITL
  Unbeaten,     // none has a lower p99 ITL at as much throughput, give or take a thousandth
  InOrder,      // the rest
};

struct DetailChoice {
  std::size_t run = 0;  // position among the candidates
  DetailReason reason = DetailReason::First;
};

// All candidates, by reason and, where that is the same, in order: a report draws the first of
// them. A run that is InOrder stays so when further candidates follow.
std::vector<DetailChoice> ranked_for_detail(std::span<const DetailCandidate> candidates);

// "a, b (the first run); c (...)": the names of what is drawn, by reason. `names` are those of the
// candidates.
std::string detail_reasons_text(std::span<const DetailChoice> drawn,
                                std::span<const std::string> names);

}  // namespace metronome
