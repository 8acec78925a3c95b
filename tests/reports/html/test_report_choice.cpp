// SPDX-License-Identifier: Apache-2.0
// Which runs a report draws in detail: known answers, and what holds whatever the runs are.
#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/json.h"
#include "core/base/rng.h"
#include "reports/html/report_choice.h"
#include "reports/html/report_html.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/draws.h"
#include "tests/error_of.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

using Reason = DetailReason;

const double kNone = std::nan("");

std::vector<std::pair<std::size_t, Reason>> pairs(const std::vector<DetailChoice>& ranked) {
  std::vector<std::pair<std::size_t, Reason>> pairs;
  for (const DetailChoice& choice : ranked) pairs.emplace_back(choice.run, choice.reason);
  return pairs;
}

std::map<std::size_t, Reason> reasons_of(std::span<const DetailCandidate> candidates) {
  std::map<std::size_t, Reason> reasons;
  for (const DetailChoice& choice : ranked_for_detail(candidates)) {
    REQUIRE(reasons.emplace(choice.run, choice.reason).second);
  }
  REQUIRE(reasons.size() == candidates.size());
  return reasons;
}

// Few values, so that many are equal.
std::vector<DetailCandidate> random_candidates(Rng& rng) {
  std::vector<DetailCandidate> candidates(static_cast<std::size_t>(draw(rng, 1, 30)));
  const std::int32_t num_engines = draw(rng, 1, 3);
  for (DetailCandidate& run : candidates) {
    run.engine = std::to_string(draw(rng, 1, num_engines));
    run.p99_itl_ms = draw(rng, 0, 9) == 0 ? kNone : draw(rng, 1, 8);
    run.max_itl_ms = draw(rng, 0, 9) == 0 ? kNone : draw(rng, 1, 8);
    run.output_throughput = 100 + 0.05 * draw(rng, 0, 160);
    run.slo_attainment = draw(rng, 0, 9) == 0 ? kNone : 0.25 * draw(rng, 0, 4);
    run.hides_stalls = draw(rng, 0, 19) == 0;
  }
  return candidates;
}

}  // namespace

TEST_CASE("the runs that carry the story are drawn first", "[reports]") {
  const std::vector<DetailCandidate> runs = {
      {"apart", 160, 190, 100.0, 0.1},  // 0: the first
      {"apart", 40, 60, 98.0, 0.9},     // 1: the lowest p99 ITL within 3 %
      {"mixed", 150, 180, 110.0, 0.2},  // 2: the first on its engine
      {"apart", 20, 50, 90.0, 0.05},    // 3: lower, but 10 % slower; none is steadier
      {"apart", 170, 190, 99.0, 0.1},   // 4: the highest p99 ITL
      {"mixed", 12, 20, 107.0, 1.0},    // 5: 2.7 % slower
      {"mixed", 30, 40, 110.0, 1.0},    // 6: as many in the SLO as 5, and faster
      {"mixed", 31, 40, 109.0, 1.0},    // 7: 6 beats it
      {"apart", 50, 70, 99.0, 0.95},    // 8: most in the SLO
      {"apart", 45, 60, 98.05, 0.2},    // 9: as fast as 1, give or take a thousandth, less steady
      {"mixed", 35, 45, 110.1, 0.9},    // 10: the same of 6
      {"mixed", 60, 900, 100.0, 0.3},   // 11: one long gap
      {"mixed", 60, 80, 100.0, 0.0},    // 12: none in the SLO
      {"mixed", 60, 70, 100.0, 0.0},    // 13: nor here, with shorter gaps
  };
  const std::vector<DetailChoice> ranked = ranked_for_detail(runs);
  CHECK(pairs(ranked) == std::vector<std::pair<std::size_t, Reason>>{{11, Reason::LongestGap},
                                                                     {12, Reason::LeastInSlo},
                                                                     {0, Reason::First},
                                                                     {2, Reason::First},
                                                                     {1, Reason::Steadiest},
                                                                     {5, Reason::Steadiest},
                                                                     {8, Reason::MostInSlo},
                                                                     {6, Reason::MostInSlo},
                                                                     {4, Reason::LeastSteady},
                                                                     {3, Reason::Unbeaten},
                                                                     {9, Reason::OtherFigure},
                                                                     {7, Reason::InOrder},
                                                                     {10, Reason::InOrder},
                                                                     {13, Reason::InOrder}});
  const std::vector<std::string> names = {"a", "b", "c", "d", "e", "f", "g",
                                          "h", "i", "j", "k", "l", "m"};
  CHECK(detail_reasons_text(std::span(ranked).first(7), names) ==
        "l (longest gap of all); m (fewest requests within the SLO of all); a, c (first of their "
        "engine); b, f (steadiest at no more than 3 % less throughput than the first); i "
        "(most requests within the SLO, at the highest throughput)");
}

TEST_CASE("where a p99 hides stalls, the longest gap says which run is steady", "[reports]") {
  // The first has few gaps and huge ones.
  std::vector<DetailCandidate> runs = {{"e", 20, 6000, 100, kNone}, {"e", 800, 810, 100, kNone}};
  const auto steadiest = [&runs] {
    const std::vector<DetailChoice> ranked = ranked_for_detail(runs);
    const auto found = std::find_if(ranked.begin(), ranked.end(), [](const DetailChoice& choice) {
      return choice.reason == Reason::Steadiest;
    });
    return found == ranked.end() ? runs.size() : found->run;
  };
  runs.push_back({"e", 15, 7000, 100, kNone});
  runs.push_back({"other", 900, 9000, 10, kNone});  // the longest gap of all
  CHECK(steadiest() == 2);
  runs[0].hides_stalls = true;
  CHECK(steadiest() == 1);

  RunResult result;
  result.summary.itl = {
      .mean_ms = 40, .p50_ms = 10, .p90_ms = 11, .p95_ms = 11, .p99_ms = 12, .max_ms = 6000};
  CHECK(detail_candidate(ResultContent(result)).hides_stalls);
  result.summary.itl.mean_ms = 10.2;
  CHECK_FALSE(detail_candidate(ResultContent(result)).hides_stalls);
}

TEST_CASE("of runs within the SLO alike, the one at the most load is drawn", "[reports]") {
  const std::vector<DetailCandidate> runs = {{"e", 9, 9, 100, 0.4},
                                             {"e", 3, 3, 10, 1},  // steady, at a low load
                                             {"e", 6, 6, 60, 1},
                                             {"e", 5, 5, 60, 1}};
  const std::vector<DetailChoice> ranked = ranked_for_detail(runs);
  const auto most = std::find_if(ranked.begin(), ranked.end(), [](const DetailChoice& choice) {
    return choice.reason == Reason::MostInSlo;
  });
  REQUIRE(most != ranked.end());
  CHECK(most->run == 3);
}

TEST_CASE("runs without gaps or without an SLO are chosen for neither", "[reports]") {
  const std::vector<DetailCandidate> runs = {{"e", kNone, kNone, 100, kNone},
                                             {"e", kNone, kNone, 120, kNone},
                                             {"e", 5, kNone, 100, kNone},
                                             {"e", 9, kNone, 90, kNone}};
  CHECK(pairs(ranked_for_detail(runs)) ==
        std::vector<std::pair<std::size_t, Reason>>{{0, Reason::First},
                                                    {2, Reason::Steadiest},
                                                    {3, Reason::LeastSteady},
                                                    {1, Reason::InOrder}});
  CHECK(ranked_for_detail({}).empty());
}

TEST_CASE("every run is ranked once, and none of its engine is better at what it is chosen for",
          "[reports][property]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    Rng rng(seed, "report choice");
    const std::vector<DetailCandidate> runs = random_candidates(rng);
    const auto reasons = reasons_of(runs);
    std::map<std::string, const DetailCandidate*> first;
    for (const DetailCandidate& run : runs) first.emplace(run.engine, &run);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const DetailCandidate& run = runs[i];
      const bool hides = std::any_of(runs.begin(), runs.end(), [&](const DetailCandidate& other) {
        return other.engine == run.engine && other.hides_stalls;
      });
      const auto steady = [hides](const DetailCandidate& of) {
        return hides ? of.max_itl_ms : of.p99_itl_ms;
      };
      const bool is_worst =
          reasons.at(i) == Reason::LongestGap || reasons.at(i) == Reason::LeastInSlo;
      CHECK(((reasons.at(i) == Reason::First) == (first.at(run.engine) == &run) || is_worst));
      for (const DetailCandidate& other : runs) {
        CHECK_FALSE((reasons.at(i) == Reason::LongestGap && other.max_itl_ms > run.max_itl_ms));
        CHECK_FALSE(
            (reasons.at(i) == Reason::LeastInSlo && other.slo_attainment < run.slo_attainment));
        if (other.engine != run.engine) continue;
        const double least = 0.97 * first.at(run.engine)->output_throughput;
        switch (reasons.at(i)) {
          case Reason::Steadiest:
            CHECK(run.output_throughput >= least);
            CHECK_FALSE((other.output_throughput >= least && steady(other) < steady(run)));
            break;
          case Reason::MostInSlo: CHECK_FALSE(other.slo_attainment > run.slo_attainment); break;
          case Reason::LeastSteady: CHECK_FALSE(steady(other) > steady(run)); break;
          case Reason::Unbeaten:
            CHECK_FALSE((steady(other) < steady(run) &&
                         other.output_throughput >= 0.999 * run.output_throughput));
            CHECK_FALSE(
                (steady(other) == steady(run) && other.output_throughput > run.output_throughput));
            break;
          case Reason::LongestGap:
          case Reason::LeastInSlo:
          case Reason::First:
          case Reason::OtherFigure:
          case Reason::InOrder: break;
        }
      }
    }
  }
}

// So a report can drop the details of such runs before the last one is there.
TEST_CASE("a run that is no candidate stays none when others follow", "[reports][property]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    Rng rng(seed, "report choice, growing");
    const std::vector<DetailCandidate> runs = random_candidates(rng);
    for (std::size_t size = 1; size < runs.size(); ++size) {
      const auto before = reasons_of(std::span(runs).first(size));
      const auto after = reasons_of(std::span(runs).first(size + 1));
      for (const auto& [run, reason] : before) {
        if (reason == Reason::InOrder) CHECK(after.at(run) == Reason::InOrder);
      }
    }
  }
}

TEST_CASE("candidates that come one by one have a reason or not as in the ranking of all",
          "[reports][property]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    Rng rng(seed, "report choice, one by one");
    DetailRanking ranking;
    for (DetailCandidate& run : random_candidates(rng)) ranking.add(std::move(run));
    for (const DetailChoice& choice : ranking.ranked()) {
      CHECK(ranking.has_reason(choice.run) == (choice.reason != Reason::InOrder));
    }
  }
}

// Each of these would take minutes if its time grew with the square.
TEST_CASE("the choice and the names of very many runs take time in proportion", "[reports]") {
  constexpr std::size_t kMany = 100'000;
  DetailRanking equal, better;
  std::size_t num_kept = 0;
  for (std::size_t i = 0; i < kMany; ++i) {
    equal.add({"e", 5, 9, 100, 1});
    better.add({"e", 5 + 1 / (1.0 + static_cast<double>(i)), 9, 100, 1});
    num_kept += equal.has_reason(i) && better.has_reason(i);
  }
  CHECK(num_kept == kMany);
  CHECK(equal.ranked()[kMany - 1].reason == Reason::Unbeaten);
  CHECK(better.ranked()[kMany - 1].reason == Reason::OtherFigure);  // all have one longest gap
  std::vector<ReportRun> runs(kMany, {"a", {}, {}, false});
  make_names_differ(runs);
  CHECK(runs.front().name == "a #1");
  CHECK(runs.back().name == "a #" + std::to_string(kMany));
}

TEST_CASE("run and report draw the same runs in detail, and say why", "[cli][html]") {
  const ScratchFolder scratch;
  std::string text = kSmallScenario + std::string("variants:\n");
  for (int size = 32; size <= 352; size += 32) {
    text += "  - {name: chunk-" + std::to_string(size) +
            ", scheduler: {policy: chunked, prefill_chunk_size: " + std::to_string(size) + "}}\n";
  }
  text += "  - {name: whole, scheduler: {policy: continuous}}\n";
  const std::string file = scratch.write("small.yaml", text);
  const std::string out = scratch.path() + "/out";
  // At the lower rate few runs differ, and the next in order fill the report.
  for (const std::string rate : {"10", "100"}) {
    const CommandResult run = run_metronome("run '" + file + "' -q --set slo.itl_ms=20 --out '" +
                                            out + "' --set workload.arrivals.rate=" + rate);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const std::string html = read_text_file(out + "/report.html");
    REQUIRE(run_metronome("report '" + out + "'").exit_code == 0);
    CHECK(read_text_file(out + "/report.html") == html);
    CHECK(contains(html, "8 of 12 runs are drawn in detail: "));
    CHECK(contains(html, "(longest gap of all); "));
    const std::string open = "id=\"report-data\">";
    const std::size_t begin = html.find(open) + open.size();
    const auto data = Json::parse(html.substr(begin, html.find("</script>", begin) - begin));
    const auto count = [&](auto is_counted) {
      return std::count_if(data["runs"].begin(), data["runs"].end(), is_counted);
    };
    CHECK(count([](const Json& one) { return one["is_selected"].get<bool>(); }) == 8);
    // The others are sketches: drawn when a reader selects them.
    CHECK(count([](const Json& one) { return one["detail"].is_object(); }) == 12);
    // The worst are among those drawn.
    const auto figure = [](const Json& one, const char* key) {
      return one["result"][key].get<double>();
    };
    for (const Json& each : data["runs"]) {
      const auto is_worse_drawn = [&](const char* key, double sign) {
        return std::any_of(data["runs"].begin(), data["runs"].end(), [&](const Json& other) {
          return other["is_selected"].get<bool>() &&
                 sign * figure(other, key) >= sign * figure(each, key);
        });
      };
      CHECK(is_worse_drawn("max_itl_ms", 1));
      CHECK(is_worse_drawn("slo_attainment", -1));
    }
  }
}

}  // namespace TEST_FILE
