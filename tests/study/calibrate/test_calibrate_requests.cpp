// SPDX-License-Identifier: Apache-2.0
// `metronome calibrate --from` a request log, as a user would do it.
#include <filesystem>
#include <string>

#include "core/base/json.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/expected.h"
#include "tests/measured_run.h"

namespace metronome::testing::TEST_FILE {
namespace {

// The other GPU's scenario, as one file.
std::string served(const MeasuredRun& measured, std::uint64_t seed) {
  return measured.folder.write("served.yaml",
                               scenario_text(seed, 2) + "cost_model: {host_gap_us: 300}\n");
}

Json validated(const MeasuredRun& measured, const std::string& log, const std::string& scenario,
               const std::string& options) {
  const std::string out = measured.folder.path() + "/simulated";
  std::filesystem::remove_all(out);
  const CommandResult run =
      run_metronome("run '" + scenario + "' -q --out '" + out + "' " + options);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const CommandResult result = run_metronome("validate --json '" + log + "' '" + out + "'");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  return Json::parse(result.out);
}

}  // namespace

TEST_CASE("a request log corrects the step times of its scenario", "[calibrate][requests]") {
  const std::uint64_t seed = GENERATE(range<std::uint64_t>(31, 34));
  INFO("seed " << seed);
  const MeasuredRun measured(seed, 2);
  const std::string log = measured.request_log();
  const std::string scenario = served(measured, seed);
  const std::string other = "--set hardware='" + measured.folder.path() + "/slower.yaml' ";
  const std::string file = measured.folder.path() + "/own.json";
  const Json plain = validated(measured, log, scenario, other);
  CHECK(plain["mean_abs_error"].get<double>() > 0.05);

  const CommandResult fit = run_metronome("calibrate --from '" + log + "' --scenario '" + scenario +
                                          "' " + other + "--until 5 --out '" + file + "'");
  INFO(fit.out << fit.err);
  REQUIRE(fit.exit_code == 0);
  CHECK(contains(fit.out, "corrected   the roofline of slower"));
  CHECK(contains(fit.out, "later  "));
  const Json corrected =
      validated(measured, log, scenario, other + "--set cost_model.file='" + file + "'");
  CHECK(corrected["mean_abs_error"].get<double>() < 0.25 * plain["mean_abs_error"].get<double>());
  CHECK(corrected["mean_abs_error"].get<double>() < 0.02);
  CHECK(corrected["pinned"]["contradictions"].empty());
}

TEST_CASE("the host's gap is not taken for the device's time", "[calibrate][requests]") {
  const std::string gap = "cost_model: {host_gap_us: 8000}\n";
  const MeasuredRun measured(35, 1, gap);
  const std::string log = measured.request_log();
  const std::string scenario = measured.folder.path() + "/measured.yaml";
  const std::string file = measured.folder.path() + "/own.json";
  const CommandResult fit = run_metronome("calibrate --from '" + log + "' --scenario '" + scenario +
                                          "' --out '" + file + "'");
  INFO(fit.out << fit.err);
  REQUIRE(fit.exit_code == 0);
  // The scenario's step times are those that were measured.
  const Json body = Json::parse(read_text_file(file))["body"];
  for (const char* kind : {"decode", "prompt"}) {
    for (const Json& range : body[kind]) {
      CHECK(range[1].get<double>() == Approx(1).margin(0.005));
    }
  }
  // A corrected model cannot be the base of another correction.
  const CommandResult again =
      run_metronome("calibrate --from '" + log + "' --scenario '" + scenario +
                    "' --set cost_model.file='" + file + "' --out '" + file + "'");
  CHECK(again.exit_code == 2);
  CHECK(contains(again.err,
                 "is a correction itself; allowed: the cost model that it corrects, or none"));
  CHECK(Json::parse(read_text_file(file))["body"] == body);
}

TEST_CASE("a form is fitted to a request log", "[calibrate][requests]") {
  const MeasuredRun measured(41, 2);
  const std::string log = measured.request_log();
  const std::string scenario = served(measured, 41);
  const std::string other = "--set hardware='" + measured.folder.path() + "/slower.yaml' ";
  const std::string file = measured.folder.path() + "/fitted.json";
  const CommandResult fit =
      run_metronome("calibrate --kind fitted --from '" + log + "' --scenario '" + scenario + "' " +
                    other + "--out '" + file + "'");
  INFO(fit.out << fit.err);
  REQUIRE(fit.exit_code == 0);
  CHECK(contains(fit.out, "between two known instants"));
  const Json fitted =
      validated(measured, log, scenario, other + "--set cost_model.file='" + file + "'");
  CHECK(fitted["mean_abs_error"].get<double>() < 0.03);
  CHECK(Json::parse(read_text_file(file))["kind"] == "fitted");
}

TEST_CASE("figures after an instant are those of later requests", "[validate][requests]") {
  const MeasuredRun measured(51, 2);
  const std::string log = measured.request_log();
  const std::string out = measured.folder.path() + "/out";
  const auto validate = [&](const std::string& options) {
    return run_metronome("validate '" + log + "' '" + out + "' --json " + options);
  };
  const Json all = Json::parse(validate("").out);
  const Json none = Json::parse(validate("--after 0").out);
  CHECK(all["latencies"] == none["latencies"]);
  CHECK(none["throughputs"].empty());
  const Json later = Json::parse(validate("--after 4").out);
  double sum = 0;
  int count = 0;
  for (const ObservedRequest& request : measured.seen.requests) {
    // A log's clock begins with its first request.
    const TimeNs at = request.first_token - measured.seen.requests.front().begin;
    if (at <= 4000 * kNsPerMs) continue;
    sum += static_cast<double>(request.ttft_ns) / static_cast<double>(kNsPerMs);
    ++count;
  }
  CHECK(count > 10);
  CHECK(later["latencies"][0]["measured"].get<double>() == Approx(sum / count).epsilon(1e-4));
  CHECK(later["latencies"][0]["measured"] != all["latencies"][0]["measured"]);
  CHECK(later["after_s"] == 4);
  CHECK(contains(validate("--after 1e10").err, "--after: 10000000000 is out of range"));
  CHECK(contains(validate("--after 1000").err, "has no later first token"));
  CHECK(contains(validate("--after -1").err, "--after: -1 is out of range"));
}

TEST_CASE("what a request log cannot be calibrated with is said", "[calibrate][requests]") {
  const MeasuredRun measured(61, 2);
  const std::string log = measured.request_log();
  const std::string scenario = served(measured, 61);
  const std::string out = measured.folder.path() + "/own.json";
  const auto error = [&](const std::string& options) {
    const CommandResult result = run_metronome("calibrate --out '" + out + "' " + options);
    INFO(options);
    CHECK(result.exit_code == 2);
    CHECK_FALSE(std::filesystem::exists(out));
    return result.err;
  };
  const std::string from = "--from '" + log + "' ";
  const std::string with = from + "--scenario '" + scenario + "' ";
  const std::string csv = measured.folder.write("steps.csv", "tokens\n");
  const std::string steps = "--from '" + csv + "' --model llama-3.1-8b ";
  Answers answers("calibrate/requests.txt");
  for (const std::string& options :
       {from, with + "--until 0", with + "--until 1e10", with + "--hardware h200",
        with + "--kind fitted --tp 2", with + "--until 0.05", with + "--kind none",
        with + from + "--kind corrected", from + "--set seed=1",
        with + "--set workload.num_requests=7",
        with + "--set workload.num_requests=7 --kind corrected", steps + "--until 3",
        steps + "--kind corrected"}) {
    const auto shown = [&](const std::string& text) {
      return with_name_for(measured.folder.path(), "FOLDER", text);
    };
    answers.add(shown(options), shown(error(options)));
  }
  // Hardware that cannot do what its own file says.
  const std::string slower = "--set hardware='" + measured.folder.path() + "/slower.yaml' ";
  const std::string file = measured.folder.path() + "/fitted.json";
  REQUIRE(run_metronome("calibrate --kind fitted " + with + slower + "--out '" + file + "'")
              .exit_code == 0);
  measured.folder.write("weaker.yaml",
                        "slower: {peak_flops: 200e12, peak_bandwidth: 2.4e12, memory_bytes: "
                        "149250113536,\n  matmul_efficiency: 1, attention_efficiency: 1, "
                        "bandwidth_efficiency: 1,\n  launch_overhead_us: 0, kernel_overhead_us: "
                        "0, host_gap_us: 0}\n");
  const std::string floor = error(with + "--set hardware='" + measured.folder.path() +
                                  "/weaker.yaml' --set cost_model.file='" + file + "'");
  INFO(floor);
  CHECK(contains(floor, "but slower needs at least"));
}

}  // namespace metronome::testing::TEST_FILE
