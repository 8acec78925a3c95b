// SPDX-License-Identifier: Apache-2.0
// Figures with the band in which they lie under other draws of step times.
#include <cmath>
#include <limits>

#include "core/base/json.h"
#include "core/model/model_catalogue.h"
#include "reports/files/figure_bands.h"
#include "reports/files/result_reader.h"
#include "reports/terminal/table.h"
#include "sim/fitted/fitted_file.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/sim/fitted/fitted_lab.h"

namespace metronome::testing::TEST_FILE {
namespace {

// The scenario, its cost model beside it, and the folder of the results.
struct NoisyRuns {
  ScratchFolder folder;
  std::string scenario;

  NoisyRuns() {
    // Slow enough for some requests to miss their limits.
    FittedModel fitted = known_model();
    fitted.form.graph = 3e6;
    fitted.form.eager = 4e6;
    fitted.form.pair = 1;
    fitted.host_gap_ns.reset();
    scatter_evenly(fitted, 0.8, 1);
    CostModelFile file;
    file.kind = "fitted";
    file.hardware = "h200";
    file.model = "llama-3.2-1b";
    file.body = std::make_shared<const Json>(fitted_body(fitted, find_model("llama-3.2-1b", {})));
    folder.write("noisy.json", file.to_json());
    scenario =
        folder.write("small.yaml", std::string(kSmallScenario) +
                                       "slo: {ttft_ms: 60, itl_ms: 9}\n"
                                       "cost_model: {file: noisy.json, noise: calibrated}\n" +
                                       kTwoVariants);
  }
  CommandResult run(const std::string& name, const std::string& more) const {
    return run_metronome("run '" + scenario + "' --out '" + path(name) + "' " + more);
  }
  std::string path(const std::string& name) const { return folder.path() + "/" + name; }
  Json result(const std::string& name) const {
    return Json::parse(read_text_file(path(name) + "/result.json"));
  }
};

bool holds(const Json& band, const Json& figure) {
  const auto value = figure.get<double>();
  return band[0].get<double>() <= value && value <= band[1].get<double>();
}

}  // namespace

TEST_CASE("a band is from the lowest to the highest figure", "[noise]") {
  std::vector<Summary> draws(3);
  const double p99[] = {31, 29.5, 30};
  for (std::size_t i = 0; i < draws.size(); ++i) {
    draws[i].ttft.p99_ms = p99[i];
    draws[i].itl.max_ms = -p99[i];
    draws[i].output_throughput = 2 * p99[i];
    draws[i].duration_ns = static_cast<TimeNs>(i) * kNsPerSecond;
    draws[i].request_goodput = p99[i];
  }
  draws[1].e2el.mean_ms = std::numeric_limits<double>::quiet_NaN();
  draws[0].e2el.mean_ms = 4;
  draws[2].e2el.mean_ms = 5;
  for (Summary& draw : draws) draw.tpot.p50_ms = std::numeric_limits<double>::quiet_NaN();
  const FigureBands bands = figure_bands(draws);
  CHECK(bands.num_seeds == 3);
  const auto is = [&](const char* key, double low, double high) {
    const FigureBand* band = bands.find(key);
    REQUIRE(band != nullptr);
    return band->low == low && band->high == high;
  };
  CHECK(is("p99_ttft_ms", 29.5, 31));
  CHECK(is("max_itl_ms", -31, -29.5));
  CHECK(is("output_throughput", 59, 62));
  CHECK(is("duration", 0, 2));
  CHECK(is("request_goodput", 29.5, 31));
  CHECK(is("mean_e2el_ms", 4, 5));
  CHECK(std::isnan(bands.find("p50_tpot_ms")->low));
  CHECK(bands.find("slo_attainment") == nullptr);  // there are no limits
}

TEST_CASE("noise gives every percentile a band, and leaves the run as it is", "[noise]") {
  const NoisyRuns runs;
  const CommandResult first = runs.run("default", "");
  INFO(first.out << first.err);
  REQUIRE(first.exit_code == 0);
  REQUIRE(runs.run("once", "--set cost_model.noise_seeds=1").exit_code == 0);
  REQUIRE(runs.run("more", "--set cost_model.noise_seeds=20").exit_code == 0);
  REQUIRE(runs.run("again", "").exit_code == 0);
  CHECK(folder_content(runs.path("default")) == folder_content(runs.path("again")));
  for (const std::string variant : {"whole", "pieces"}) {
    for (const char* file : {"/steps.jsonl", "/requests.jsonl"}) {
      CHECK(read_text_file(runs.path("default/" + variant + file)) ==
            read_text_file(runs.path("once/" + variant + file)));
    }
    CHECK_FALSE(runs.result("once/" + variant).contains("noise"));
    const Json result = runs.result("default/" + variant);
    const Json more = runs.result("more/" + variant);
    CHECK(result["noise"]["seeds"] == 8);
    CHECK(more["noise"]["seeds"] == 20);
    for (const std::string metric : {"ttft", "tpot", "itl", "e2el"}) {
      for (const std::string statistic : {"mean", "p50", "p90", "p95", "p99", "max"}) {
        const std::string key = statistic + "_" + metric + "_ms";
        INFO(key);
        const Json& band = result["noise"]["bands"][key];
        const Json& wide = more["noise"]["bands"][key];
        CHECK(holds(band, result[key]));
        CHECK(band[0].get<double>() < band[1].get<double>());
        CHECK(holds(wide, band[0]));  // the first eight of twenty are the eight
        CHECK(holds(wide, band[1]));
      }
    }
    for (const char* key : {"request_throughput", "output_throughput", "total_token_throughput",
                            "request_goodput", "slo_attainment"}) {
      INFO(key);
      CHECK(holds(result["noise"]["bands"][key], result[key]));
    }
    CHECK(more["noise"]["bands"]["p99_itl_ms"] != result["noise"]["bands"]["p99_itl_ms"]);
  }
  CHECK(contains(first.out, "\n  lowest "));
  CHECK(contains(first.out, "lowest, highest: of 8 noise seeds"));
}

TEST_CASE("a table has its bands below the figures, and none is the best", "[noise]") {
  std::vector<RunResult> results(2);
  for (std::size_t i = 0; i < 2; ++i) {
    results[i].info.label = i == 0 ? "a" : "b";
    results[i].summary.completed = 1;
    results[i].summary.ttft.count = 1;
    results[i].summary.ttft.p99_ms = i == 0 ? 20 : 30;
    results[i].summary.slo_attainment = 0.5;
  }
  results[0].bands = {.num_seeds = 4,
                      .figures = {{"p99_ttft_ms", 19.25, 30}, {"slo_attainment", 0.25, 0.75}}};
  results[1].bands = {.num_seeds = 4, .figures = {{"p99_ttft_ms", 12.5, 31}}};
  const std::string text = render_table(results, {});
  INFO(text);
  const std::size_t begin = text.find("TTFT, ms");
  const std::string block = text.substr(begin, text.find("\n\n", begin) - begin);
  const auto row = [&](std::size_t n) {
    std::size_t at = 0;
    for (; n > 0; --n) at = block.find('\n', at) + 1;
    return block.substr(at, block.find('\n', at) - at);
  };
  CHECK(row(1).starts_with("a  "));
  CHECK(contains(row(1), "20.00*"));
  CHECK(row(2).starts_with("  lowest "));
  CHECK(contains(row(2), "19.25"));
  CHECK(row(3).starts_with("  highest "));
  CHECK(contains(row(3), "30.00"));
  CHECK(row(4).starts_with("b  "));
  CHECK(contains(row(5), "12.50"));
  CHECK(std::count(block.begin(), block.end(), '*') == 1);
  CHECK(contains(text, "25.00"));
  CHECK(contains(text, "75.00"));
}

TEST_CASE("the report shows the bands, also that of stored runs", "[noise]") {
  const NoisyRuns runs;
  REQUIRE(runs.run("out", "-q").exit_code == 0);
  const std::string own = read_text_file(runs.path("out/report.html"));
  const std::string copy = runs.path("copy.html");
  REQUIRE(run_metronome("report '" + runs.path("out") + "' --out '" + copy + "'").exit_code == 0);
  for (const std::string& html : {own, read_text_file(copy)}) {
    CHECK(contains(html, "of 8 noise seeds"));
    const std::size_t cell = html.find("<td data-key=\"p99_ttft_ms\">");
    REQUIRE(cell != std::string::npos);
    CHECK(html.substr(cell, html.find("</td>", cell) - cell).find("<span class=\"band\">") !=
          std::string::npos);
  }
  REQUIRE(runs.run("plain", "-q --set cost_model.noise_seeds=1").exit_code == 0);
  CHECK_FALSE(contains(read_text_file(runs.path("plain/report.html")), "<span class=\"band\">"));
  const StoredRun stored = read_result(runs.path("out/whole"));
  CHECK(stored.result.bands.num_seeds == 8);
  CHECK(result_json(stored.result) == read_text_file(runs.path("out/whole/result.json")));
}

TEST_CASE("seeds of a noise that is not there are refused", "[noise]") {
  const NoisyRuns runs;
  const std::string where = "--set cost_model.noise_seeds: ";
  const auto error = [&](const std::string& more) {
    const CommandResult result = runs.run("out", "-q " + more);
    CHECK(result.exit_code == 2);
    CHECK_FALSE(std::filesystem::exists(runs.path("out")));
    return result.err;
  };
  CHECK(contains(error("--set cost_model.noise_seeds=0 "),
                 where + "0 is out of range; allowed: 1 to 1000"));
  CHECK(contains(error("--set cost_model.noise=none --set cost_model.noise_seeds=4"),
                 where + "without noise every simulation is the same"));
  const std::string bare = runs.folder.write(
      "bare.yaml", std::string(kSmallScenario) + "cost_model: {noise_seeds: 4}\n");
  const CommandResult result = run_metronome("run '" + bare + "' -q");
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "bare.yaml:10: cost_model.noise_seeds: without noise"));
  // A file's seeds do not stand in the way of a run without noise.
  CHECK(runs.run("plain", "-q --set cost_model.noise=none").exit_code == 0);
}

TEST_CASE("sweeps take the first noise seed alone", "[noise]") {
  const NoisyRuns runs;
  REQUIRE(runs.run("run", "-q --variant whole").exit_code == 0);
  const CommandResult swept =
      run_metronome("sweep '" + runs.scenario + "' --variant whole --over seed=3,4 -q --out '" +
                    runs.path("swept") + "'");
  INFO(swept.err);
  REQUIRE(swept.exit_code == 0);
  const Json points = Json::parse(read_text_file(runs.path("swept/summary.json")));
  REQUIRE(points.size() == 2);
  CHECK(points[0].dump() != points[1].dump());
  const Json digest = runs.result("run/whole")["digest"];
  CHECK((points[0]["digest"] == digest || points[1]["digest"] == digest));
  CHECK_FALSE(points[0].contains("noise"));
}

}  // namespace metronome::testing::TEST_FILE
