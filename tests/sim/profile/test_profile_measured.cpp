// SPDX-License-Identifier: Apache-2.0
// The two measured runs, simulated from kernel times alone: how far off the figures are that were
// published of them. The data are not part of the repository.
#include <cstdlib>
#include <optional>
#include <string>

#include "core/base/json.h"
#include "core/scenario/scenario.h"
#include "core/workload/workload_trace.h"
#include "sim/cost/cost_model_file.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/shared_data.h"

namespace metronome::TEST_FILE {
namespace {

using testing::ScratchFolder;
using testing::shared_path;

struct Measured {
  const char* scenario;
  const char* folder;     // of the run and of the profile
  const char* catalogue;  // the shipped file
};
constexpr Measured kMeasured[] = {
    {"scenarios/measured/rtx4090_sharegpt.yaml", "rtx4090_llama-3.1-8b", "rtx-4090_llama-3.1-8b"},
    {"scenarios/measured/rtxpro6000_sharegpt.yaml", "rtxpro6000_llama-3.1-8b",
     "rtx-pro-6000_llama-3.1-8b"},
};

std::optional<std::string> run_log(const Measured& measured) {
  return shared_path("data/measured/" + std::string(measured.folder) + "/requests.jsonl");
}

// Mean of |error| of TTFT, TPOT and E2EL.
double error_of_run(const Measured& measured, const std::string& log, const std::string& settings) {
  const ScratchFolder folder;
  const testing::CommandResult run = testing::run_metronome(
      "run " + std::string(measured.scenario) + " --out " + folder.path() + "/run" + settings);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const testing::CommandResult validation =
      testing::run_metronome("validate " + log + " " + folder.path() + "/run --json");
  INFO(validation.err);
  REQUIRE(validation.exit_code == 0);
  return Json::parse(validation.out).at("mean_abs_error").get<double>();
}

}  // namespace

TEST_CASE("measured runs are met from kernel times alone", "[profile][measured]") {
  double sum = 0;
  for (const Measured& measured : kMeasured) {
    const auto log = run_log(measured);
    if (!log) return;
    const double error = error_of_run(measured, *log, "");
    INFO(measured.scenario << ": " << 100 * error << " %");
    CHECK(error < 0.0125);
    sum += error;
  }
  INFO("average " << 50 * sum << " %");
  CHECK(sum / 2 <= 0.009);
}

TEST_CASE("the shipped files are what an import of their profiles writes", "[profile][measured]") {
  for (const Measured& measured : kMeasured) {
    const auto profile = shared_path("data/profiles/" + std::string(measured.folder));
    if (!profile) return;
    const ScratchFolder folder;
    const std::string out = folder.path() + "/imported.json";
    const testing::CommandResult imported =
        testing::run_metronome("calibrate --import " + *profile + " --out " + out);
    INFO(imported.err);
    REQUIRE(imported.exit_code == 0);
    Json written = *find_cost_model_file(out, {}).body;
    Json shipped = *find_cost_model_file(measured.catalogue, {}).body;
    // The fit takes logarithms, whose last digits differ between libraries.
    for (Json* body : {&written, &shipped}) {
      for (const char* kind : {"decode", "mixed"}) {
        Json rounded = Json::object();
        for (const auto& [name, value] : body->at("block_filling").at(kind).items()) {
          rounded[name] = static_cast<int>(value.get<double>() * 100 + 0.5);
        }
        REQUIRE(rounded.size() == 5);
        body->at("block_filling").at(kind) = rounded;
      }
    }
    CHECK(written == shipped);
  }
}

TEST_CASE("Vidur's kernel times are imported", "[profile][measured]") {
  const auto profile = shared_path("data/profiles/vidur_a100_llama-2-7b");
  if (!profile) return;
  const ScratchFolder folder;
  const std::string out = folder.path() + "/vidur.json";
  const testing::CommandResult imported = testing::run_metronome(
      "calibrate --import " + *profile + " --hardware a100-80gb --model llama-2-7b --out " + out);
  INFO(imported.err);
  REQUIRE(imported.exit_code == 0);
  CHECK(find_cost_model_file(out, {}).hardware == "a100-80gb");
}

TEST_CASE("a request log gives a trace its arrivals", "[traces]") {
  const ScratchFolder folder;
  TraceConfig config;
  config.format = TraceFormat::ShareGpt;
  config.file = folder.write(
      "trace.jsonl",
      R"({"input_toks": 2, "output_toks": 3, "arrival_time_ns": 5, "input_tok_ids": [1, 2]}
{"input_toks": 1, "output_toks": 4, "arrival_time_ns": 6, "input_tok_ids": [9]}
)");
  const std::string first = R"({"arrival_time": 1787267980.5, "input_toks": 2, "output_toks": 3})";
  const std::string second = R"({"id": "b", "input_toks": 1, "output_toks": 4, "arrival_time": )";
  config.request_log = folder.write("log.jsonl", first + "\n" + second + "1787267981.75}\n");
  Workload workload = read_trace(config);
  place_recorded_arrivals(config, 0, workload);
  CHECK(workload.requests[0].arrival == 0);
  // Epoch seconds with a fraction are exact to a microsecond.
  CHECK(std::abs(workload.requests[1].arrival - 1'250'000'000) < 1000);

  const auto refused = [&](const std::string& text) {
    config.request_log = folder.write("log.jsonl", text);
    const std::string message = testing::error_of([&] { read_trace(config); });
    return message.substr(message.find("log.jsonl"));
  };
  CHECK(refused(first + "\n") == "log.jsonl:1: requests: 1, but the trace has 2; allowed: as many");
  CHECK(refused(first + "\n" + first + "\n") ==
        "log.jsonl:2: input_toks: 2, but the trace has 1; allowed: a log of the same requests in "
        "the same order");
  CHECK(refused(first + "\n" + second + "1}\n" + first + "\n") ==
        "log.jsonl:3: requests: more than the 2 of the trace; allowed: as many");
  CHECK(refused("{\"arrival_time\": 3}\n").find("input_toks: missing") != std::string::npos);
}

}  // namespace metronome::TEST_FILE
