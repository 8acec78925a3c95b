// SPDX-License-Identifier: Apache-2.0
// Bands of a run's figures: other seeds, and steps that are faster and slower.
#include <cmath>
#include <string>

#include "core/base/json.h"
#include "core/metrics/run_record.h"
#include "core/scenario/scenario.h"
#include "reports/files/figure_bands.h"
#include "reports/files/result_reader.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

constexpr const char* kSteady =
    "model: llama-3.1-8b\n"
    "hardware: h100-sxm\n"
    "scheduler: {policy: vllm}\n"
    "cost_model: {host_gap_us: 0}\n"
    "workload: {num_requests: 40, arrivals: {process: poisson, rate: 4}, prompt_tokens: "
    "{distribution: fixed, value: 512}, output_tokens: {distribution: fixed, value: 64}}\n";

struct Runs {
  ScratchFolder folder;
  std::string scenario;

  explicit Runs(const std::string& more = "")
      : scenario(folder.write("steady.yaml", kSteady + more)) {}
  std::string path() const { return folder.path() + "/out"; }
  CommandResult run(const std::string& more) const {
    return run_metronome("run '" + scenario + "' --out '" + path() + "' " + more);
  }
  Json result() const { return Json::parse(read_text_file(path() + "/result.json")); }
};

bool is_near(double a, double b) { return std::fabs(a - b) < 1e-6 * std::fabs(b); }

}  // namespace

TEST_CASE("scaled steps take so many times as long", "[study][bands]") {
  Scenario scenario = parse_scenario(kSteady, "steady.yaml", {}).variants.front();
  scenario.workload.num_requests = 1;
  const auto mean_tpot_ms = [&](double scale) {
    Simulation simulation = prepare_simulation(scenario);
    simulation.scale_steps(scale);
    const Workload workload = make_workload(scenario);
    RunRecorder recorder(1, simulation.front_end);
    EventSink* sinks[] = {&recorder};
    VirtualClock clock;
    REQUIRE(simulation.run(workload, clock, sinks).completed);
    return summarize(recorder.finish(), {scenario.slo, 1}).tpot.mean_ms;
  };
  const double once = mean_tpot_ms(1);
  CHECK(is_near(mean_tpot_ms(1.5), 1.5 * once));
  CHECK(is_near(mean_tpot_ms(0.5), 0.5 * once));
}

TEST_CASE("bands hold the figures, and TTFT has its own errors", "[study][bands]") {
  const Runs runs;
  const CommandResult done = runs.run("--bands");
  INFO(done.out << done.err);
  REQUIRE(done.exit_code == 0);
  const Json result = runs.result();
  const Json& accuracy = result.at("accuracy");
  const Json& bands = result.at("bands");
  CHECK(bands.at("seeds") == 5);
  for (const std::size_t end : {std::size_t{0}, std::size_t{1}}) {
    CHECK(is_near(bands.at("step_scale")[end].get<double>(),
                  1 + accuracy.at("tpot")[end].get<double>()));
  }
  for (const auto& [key, band] : bands.at("bands").items()) {
    INFO(key);
    if (band[0].is_null()) continue;
    CHECK(band[0].get<double>() <= result.at(key).get<double>());
    CHECK(band[1].get<double>() >= result.at(key).get<double>());
  }
  const double ttft = result.at("p99_ttft_ms").get<double>();
  const Json& ttft_band = bands.at("bands").at("p99_ttft_ms");
  CHECK(ttft_band[1].get<double>() >= ttft * (1 + accuracy.at("ttft")[1].get<double>()) - 1e-9);
  CHECK(contains(done.out, "how sure: TPOT "));
  CHECK(contains(done.out, "lowest, highest: of 5 seeds, and of steps that take "));
  const StoredRun stored = read_result(runs.path());
  CHECK(result_json(stored.result) == read_text_file(runs.path() + "/result.json"));
  // The run itself is as without bands.
  const std::string digest = result.at("digest").get<std::string>();
  REQUIRE(runs.run("-q").exit_code == 0);
  CHECK(runs.result().at("digest") == digest);
  CHECK_FALSE(runs.result().contains("bands"));
}

TEST_CASE("requests that no seed draws have one seed", "[study][bands]") {
  const Runs runs;
  REQUIRE(runs.run("-q --bands --set workload.arrivals.process=constant").exit_code == 0);
  CHECK(runs.result().at("bands").at("seeds") == 1);
}

TEST_CASE("a router that draws depends on the seed", "[study][bands]") {
  const Runs runs("fleet: {replicas: 3, router: random}\n");
  REQUIRE(runs.run("-q --bands --set workload.arrivals.process=constant").exit_code == 0);
  CHECK(runs.result().at("bands").at("seeds") == 5);
}

TEST_CASE("bands of figures that nobody knows are refused", "[study][bands]") {
  const Runs runs;
  REQUIRE(runs.run("-q --bands").exit_code == 0);
  const std::string path = runs.path() + "/result.json";
  std::string text = read_text_file(path);
  const std::size_t at = text.find("\"steep\": {");
  REQUIRE(at != std::string::npos);
  const std::size_t inside = at + std::string_view("\"steep\": {").size();
  const bool is_empty = text[inside] == '}';
  text.insert(inside, is_empty ? "\"bogus\": [1, 2]" : "\"bogus\": [1, 2], ");
  runs.folder.write("out/result.json", text);
  const CommandResult done =
      run_metronome("report '" + runs.path() + "' --out '" + runs.folder.path() + "/r.html'");
  CHECK(done.exit_code == 2);
  CHECK(contains(done.err, "bands: steep: bogus: is no figure; allowed: a key of a figure"));
}

TEST_CASE("a load near the limit makes first tokens steep", "[study][bands]") {
  const Runs runs;
  // Requests queue for slots: each takes half a second, two at a time.
  const CommandResult done =
      runs.run("--bands --set engine.max_num_seqs=2 --set workload.num_requests=400");
  INFO(done.out << done.err);
  REQUIRE(done.exit_code == 0);
  CHECK(contains(done.out, "TTFT is steep: "));
  CHECK_FALSE(runs.result().at("bands").at("steep").empty());
}

TEST_CASE("a figure is steep beyond the cube of the factor of steps", "[study][bands]") {
  Summary fast, slow;
  const FigureBand scale = {"step_scale", 0.9, 1.1};
  const double cube = std::pow(1.1 / 0.9, 3);
  fast.ttft.p99_ms = 100;
  slow.ttft.p99_ms = 100 * cube * 1.01;
  fast.itl.p99_ms = 10;
  slow.itl.p99_ms = 10 * cube * 0.99;
  const std::vector<FigureBand> steep = steep_figures(fast, slow, scale);
  REQUIRE(steep.size() == 1);
  CHECK(steep[0].key == "p99_ttft_ms");
  CHECK(steep[0].low == 100);
}

}  // namespace metronome::testing::TEST_FILE
