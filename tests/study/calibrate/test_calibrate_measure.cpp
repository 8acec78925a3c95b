// SPDX-License-Identifier: Apache-2.0
// `metronome calibrate --backend`: under a known cost model it finds that model again; on this
// machine's processors it goes all the way to a simulation; and what it refuses.
#include <iostream>
#include <sstream>

#include "core/base/json.h"
#include "core/model/model_catalogue.h"
#include "reports/files/result_reader.h"
#include "sim/fitted/fitted_file.h"
#include "sim/simulation.h"
#include "study/calibrate/calibrate_fit.h"
#include "study/calibrate/calibrate_measure.h"
#include "study/calibrate/calibrate_text.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/expected.h"
#include "tests/sim/fitted/fitted_lab.h"
#include "tools/commands/cli.h"

namespace metronome::testing::TEST_FILE {
namespace {

class Captured {
 public:
  Captured() : before_(std::cout.rdbuf(text_.rdbuf())) {}
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  ~Captured() { std::cout.rdbuf(before_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::streambuf* before_;
};

// Without the breaks of lines.
std::string flat(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const bool is_space = c == ' ' || c == '\n';
    if (!is_space || (!result.empty() && result.back() != ' ')) result += is_space ? ' ' : c;
  }
  return result;
}

struct Lab {
  ScratchFolder folder;
  std::string out = folder.path() + "/out.json";

  // Measures a simulation whose step times are known_model()'s. Returns what was printed.
  std::string measure(double seconds = 1000, int async_depth = 1,
                      const std::vector<std::string>& more = {}) const {
    CostModelFile file;
    file.kind = "fitted";
    file.hardware = "h200";
    file.model = "llama-3.2-1b";
    file.body =
        std::make_shared<const Json>(fitted_body(known_model(), find_model("llama-3.2-1b", {})));
    MeasureOptions options;
    options.model = "llama-3.2-1b";
    options.hardware = "h200";
    options.seconds = seconds;
    options.out = out;
    options.assignments = {"hardware=h200",
                           "cost_model.file=" + folder.write("known.json", file.to_json()),
                           "engine.async_depth=" + std::to_string(async_depth)};
    options.assignments.insert(options.assignments.end(), more.begin(), more.end());
    SimulatedBackend backend;
    const Captured captured;
    calibrate_by_measuring(backend, options);
    return flat(captured.text());
  }
  bool has_written() const {
    return std::filesystem::exists(out) || std::filesystem::exists(measured_folder(out));
  }
};

TEST_CASE("measured under a known cost model, a fit is that cost model", "[calibrate]") {
  const Lab lab;
  const std::string text = lab.measure();
  INFO(text);
  CHECK(contains(text, "in 4 of 4 rounds"));
  CHECK(contains(text, " seed 1 "));
  const Json file = Json::parse(read_text_file(lab.out));
  CHECK(file["hardware"] == "h200");
  CHECK(file["model"] == "llama-3.2-1b");
  for (const Json& regime : file["body"]["held_out_errors"]) {
    INFO(regime);
    CHECK(regime["p95_abs_error"].get<double>() < 1e-4);
  }
  CHECK(file["body"]["host_gap_ns"].get<double>() == Approx(120'000));
  const FittedModel fitted = read_fitted(parse_cost_model_file(file.dump(), "out.json"));
  const FittedModel known = known_model();
  CHECK(fitted.form.pair == Approx(known.form.pair).epsilon(0.01));
  CHECK(fitted.form.decode_kv == Approx(known.form.decode_kv).epsilon(0.01));
  CHECK(fitted.form.row == Approx(known.form.row).epsilon(0.05));
  REQUIRE(fitted.decode_range);
  REQUIRE(fitted.prefill_range);
  CHECK(fitted.decode_range->max.decodes == 16);
  CHECK(fitted.prefill_range->max.tokens == 256);
  CHECK(fitted.prefill_range->max.decodes > 0);
}

// By the roofline, which knows what an H200 needs for each step.
TEST_CASE("steps of the size of a GPU are measured in less than a minute", "[calibrate]") {
  const std::string name = GENERATE("llama-3.2-3b", "qwen3-4b", "gemma-3-1b");
  INFO(name);
  const ScratchFolder folder;
  MeasureOptions options;
  options.model = name;
  options.hardware = "h200";
  options.out = folder.path() + "/out.json";
  options.assignments = {"hardware=h200", "engine.max_num_seqs=256", "engine.max_model_len=16640",
                         "engine.async_depth=2", "scheduler.max_num_batched_tokens=8192"};
  SimulatedBackend backend;
  const Captured captured;
  calibrate_by_measuring(backend, options);
  const std::string text = flat(captured.text());
  INFO(text);
  CHECK(contains(text, "in 4 of 4 rounds"));
  const RunRecord record = read_result(measured_folder(options.out) + "/steps").record;
  CHECK(to_seconds(record.steps.back().finished_at) < 60);
  const FittedModel fitted =
      read_fitted(parse_cost_model_file(read_text_file(options.out), "out.json"));
  REQUIRE(fitted.decode_range);
  CHECK(fitted.errors.back().mean_abs_error < 0.02);
  CHECK(fitted.decode_range->max.decodes == 256);
  CHECK(fitted.decode_range->max.decode_kv > 100'000);
  REQUIRE(fitted.prefill_range);
  CHECK(fitted.prefill_range->max.tokens == 8192);
  CHECK(fitted.prefill_range->max.decodes >= 128);
}

TEST_CASE("what was measured is kept, and fitted to again gives the same file", "[calibrate]") {
  const Lab lab;
  lab.measure();
  const std::string again = lab.folder.path() + "/again.json";
  const std::string kept = measured_folder(lab.out);
  CHECK(kept == lab.folder.path() + "/out.steps");
  const Captured captured;
  CalibrationSetup setup;
  setup.hardware = "h200";
  report_calibration(calibrate_from_steps({kept}, setup, FitKind::Fitted), again);
  CHECK(read_text_file(again) == read_text_file(lab.out));
  const StoredRun run = read_result(kept + "/steps");
  CHECK(run.result.info.policy == "calibration");
  CHECK(run.result.summary.completed == run.result.summary.num_requests);
}

TEST_CASE("with two steps in flight, single ones tell the gap and only it", "[calibrate]") {
  const Lab lab;
  const std::string text = lab.measure(1000, 2);
  INFO(text);
  CHECK(contains(text, "host gap 120.000 us"));
  CHECK(contains(text, "gaps: ran with fewer steps in flight than the others"));
  const std::string kept = measured_folder(lab.out);
  const StoredRun steps = read_result(kept + "/steps");
  const StoredRun gaps = read_result(kept + "/gaps");
  const Json body = Json::parse(read_text_file(lab.out))["body"];
  CHECK(body["steps"] == steps.result.summary.num_steps);
  CHECK(gaps.result.summary.num_steps > 24);
  const CalibrationSteps read = read_calibration_steps({kept}, {});
  CHECK(read.gaps.size() >= 5 * 23);
  CHECK(read.gaps.size() < gaps.record.steps.size());
}

TEST_CASE("gaps of two steps in flight do not count where those of one are known", "[calibrate]") {
  const Lab lab;
  // Longer than most steps, so that the device waits in both runs.
  const std::string text = lab.measure(1000, 2, {"cost_model.host_gap_us=8000"});
  INFO(text);
  CHECK(contains(text, "host gap 8000.000 us"));
  const std::string kept = measured_folder(lab.out);
  const std::size_t num_steps = read_result(kept + "/gaps").record.steps.size();
  CHECK(read_calibration_steps({kept}, {}).gaps.size() < num_steps);
  CHECK(read_calibration_steps({kept + "/steps"}, {}).gaps.size() > 20);
}

TEST_CASE("rounds that the time is not enough for are left out, and said", "[calibrate]") {
  const Lab lab;
  lab.measure();
  const double whole_s =
      to_seconds(read_result(measured_folder(lab.out) + "/steps").record.steps.back().finished_at);
  SECTION("two of four are enough for a fit") {
    const Lab less;
    const std::string text = less.measure(0.7 * whole_s);
    INFO(text);
    CHECK(contains(text, "in 2 of 4 rounds"));
    CHECK(contains(text, "no time was left for the other rounds"));
    const StoredRun run = read_result(measured_folder(less.out) + "/steps");
    CHECK(to_seconds(run.record.steps.back().finished_at) < 0.7 * whole_s);
    CHECK(run.result.summary.never_fits == 0);
    const Json fitted = Json::parse(read_text_file(less.out));
    for (const Json& regime : fitted["body"]["held_out_errors"]) {
      CHECK(regime["p95_abs_error"].get<double>() < 1e-3);
    }
  }
  SECTION("the gap's run is left out last") {
    const Lab less;
    const std::string text = less.measure(whole_s, 2);
    INFO(text);
    CHECK(less.has_written());
    CHECK(contains(text, "no time was left to measure the host gap") ==
          contains(text, "host gap not measured"));
  }
}

TEST_CASE("half a round is no fit, and leaves nothing", "[calibrate][cli]") {
  const ScratchFolder folder;
  const CommandResult result = run_metronome(
      "calibrate --backend=cpu --model mini-llama --seconds 1 --out '" + folder.path() +
      "/out.json' --set engine.max_num_seqs=64 --set engine.max_model_len=2048 "
      "--set scheduler.max_num_batched_tokens=2048");
  INFO(result.out << result.err);
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "--seconds: 1 are not enough for one round: "));
  CHECK(contains(result.err, " steps were measured, and nothing was written; allowed: more"));
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("sizes without room are refused before anything is measured", "[calibrate]") {
  const Lab lab;
  const auto error = [&](const std::string& assignment,
                         const std::string& other = "cpu.threads=1") {
    const std::string text = error_of([&] { lab.measure(1000, 1, {assignment, other}); });
    CHECK_FALSE(lab.has_written());
    INFO(text);
    return text;
  };
  CHECK(error("engine.max_model_len=31") ==
        "--backend: engine.max_model_len: is 31; allowed: 32 or more");
  CHECK(error("scheduler.max_num_batched_tokens=15", "engine.max_num_seqs=4") ==
        "--backend: scheduler.max_num_batched_tokens: is 15; allowed: 16 or more");
  CHECK(error("kv_cache.num_blocks=40")
            .starts_with("--backend: kv_cache.num_blocks: is 40; allowed: 3"));
  CHECK(error_of<UsageError>([&] {
          lab.measure(1000, 1, {"seed=3"});
        }).starts_with("--set: seed=3 has no effect on a calibration; allowed: "));
  CHECK_FALSE(lab.has_written());
}

TEST_CASE("calibrate --backend=cpu makes a file that simulates", "[calibrate][cli]") {
  const ScratchFolder folder;
  const std::string out = folder.path() + "/tiny.json";
  const CommandResult result =
      run_metronome("calibrate --backend=cpu --model tiny-llama --seed 5 --out '" + out +
                    "' --set engine.max_num_seqs=4 --set engine.max_model_len=128 "
                    "--set scheduler.max_num_batched_tokens=64");
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.out, "seed        5\n"));
  CHECK(contains(result.out, "held out"));
  const std::string scenario =
      folder.write("small.yaml",
                   "model: tiny-llama\nengine: {max_num_seqs: 4, max_model_len: 128}\n"
                   "kv_cache: {num_blocks: 64}\n"
                   "scheduler: {policy: token_budget, max_num_batched_tokens: 64}\n"
                   "workload:\n  num_requests: 10\n  arrivals: {process: burst}\n"
                   "  prompt_tokens: {distribution: uniform, min: 4, max: 90}\n"
                   "  output_tokens: {distribution: fixed, value: 8}\n");
  const CommandResult run = run_metronome("run '" + scenario + "' --set cost_model.file='" + out +
                                          "' -q --out '" + folder.path() + "/run'");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const Json summary = Json::parse(read_text_file(folder.path() + "/run/result.json"));
  CHECK(summary["completed"] == 10);
  CHECK(summary["steps_outside_calibration"] == 0);
}

TEST_CASE("calibrate --backend says what it lacks", "[calibrate][cli]") {
  Answers answers("calibrate/backend.txt");
  for (const std::string arguments :
       {"--backend=cpu --out x.json", "--backend=cpu --model tiny-llama",
        "--backend=sim --model tiny-llama --out x.json",
        "--backend=gpu --model tiny-llama --out x.json", "--backend=cpu --from x --out x.json",
        "--backend=cpu --model tiny-llama --out x.json --seconds 0",
        "--backend=cpu --model tiny-llama --out x.json --tp 2",
        "--backend=cpu --model tiny-llama --out x.json --kind replay", "--from x --seconds 3",
        "--backend=cpu --model no-such --out x.json",
        "--backend=cpu --model tiny-llama --out x.json --set engine.max_num_seq=3"}) {
    const CommandResult result = run_metronome("calibrate " + arguments);
    INFO(arguments);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    answers.add(arguments, result.err);
  }
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
