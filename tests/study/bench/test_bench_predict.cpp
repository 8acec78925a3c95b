// SPDX-License-Identifier: Apache-2.0
// `metronome bench --predict`: floors and predictions without a GPU, and beside a measurement.

#include "core/base/json.h"
#include "core/model/model_catalogue.h"
#include "study/bench/bench_cases.h"
#include "study/bench/bench_predict.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

constexpr MachineRates kMeasuredRates = {.copy_bytes_per_s = 4.3e12, .matrix_flops_per_s = 790e12};

const PredictedPoint& point_of(const Prediction& prediction, const BenchCase& what) {
  for (const PredictedPoint& point : prediction.points) {
    if (case_text(point.what) == case_text(what)) return point;
  }
  FAIL("no such case");
  return prediction.points.front();
}

TEST_CASE("predicted floors are those that were computed elsewhere", "[bench]") {
  // Floors of a table made without this code, at 4.3 TB/s and 790 TFLOP/s: decodes at context 2048
  // by batch 1, 8, 64, and first chunks of 512 and 2048; milliseconds.
  struct Known {
    const char* model;
    double decodes[3];
    double chunks[2];
  };
  const Known all[] = {{"llama-3.2-3b", {1.549, 1.931, 4.990}, {3.71, 15.53}},
                       {"qwen3-4b", {1.941, 2.433, 6.366}, {4.81, 20.41}},
                       {"gemma-3-1b", {0.470, 0.502, 0.762}, {0.92, 3.77}}};
  for (const Known& known : all) {
    INFO(known.model);
    PredictOptions options;
    options.model = known.model;
    options.hardware = "h200";
    options.rates = kMeasuredRates;
    const Prediction prediction = predict_bench(options);
    const std::int32_t batches[] = {1, 8, 64};
    for (std::size_t i = 0; i < 3; ++i) {
      const PredictedPoint& point =
          point_of(prediction, {.num_decodes = batches[i], .context = 2048});
      CHECK(point.floor_us / 1e3 == Approx(known.decodes[i]).epsilon(2e-3));
      CHECK(point.is_memory_bound);
      CHECK(point.predicted_us > point.floor_us);
      CHECK_FALSE(point.measured_us);
    }
    CHECK(point_of(prediction, {.chunk_size = 512}).floor_us / 1e3 ==
          Approx(known.chunks[0]).epsilon(6e-3));
    CHECK(point_of(prediction, {.chunk_size = 2048}).floor_us / 1e3 ==
          Approx(known.chunks[1]).epsilon(6e-3));
    // No launches from Python: those of gemma-3-1b would take 7.8 ms.
    const PredictedPoint& chunk = point_of(prediction, {.chunk_size = 512});
    CHECK(chunk.predicted_us < 4 * chunk.floor_us);
  }
}

TEST_CASE("a plan of a case is the step that is timed", "[bench]") {
  const StepPlan plan = plan_of({.num_decodes = 3, .context = 10, .chunk_size = 5, .prefix = 7});
  REQUIRE(plan.chunks.size() == 4);
  CHECK(plan.num_decode_tokens == 3);
  CHECK(plan.num_prefill_tokens == 5);
  CHECK(plan.chunks[2].first_position == 9);
  CHECK(plan.chunks[3].first_position == 7);
  CHECK(plan.chunks[3].end_position() == 12);
  REQUIRE(plan.passes.size() == 1);
  CHECK(plan.passes[0].end == 4);
}

TEST_CASE("bench --predict needs no GPU, and prints what was measured beside it", "[bench][cli]") {
  const ScratchFolder folder;
  const std::string out = folder.path() + "/predicted.json";
  const CommandResult result =
      run_metronome("bench llama-3.2-3b --predict h200 --rates 4.3,790 --json '" + out + "'");
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  // It replaces its own files only, and follows no link.
  CHECK(run_metronome("bench llama-3.2-3b --predict h200 --rates 4.3,790 --json '" + out + "'")
            .exit_code == 0);
  const std::string notes = folder.write("notes.txt", "mine");
  const CommandResult refused =
      run_metronome("bench llama-3.2-3b --predict h200 --json '" + notes + "'");
  CHECK(refused.exit_code == 2);
  CHECK(refused.err == "metronome: error: --json: " + notes +
                           " exists and is not a report of bench; allowed: such a report, or a new "
                           "file\n");
  CHECK(read_text_file(notes) == "mine");
  CHECK(contains(result.out, "4.30 TB/s and 790 TFLOP/s, given"));
  CHECK(contains(result.out, "by roofline of h200; nothing was run here"));
  CHECK_FALSE(contains(result.out, "measured ms"));
  Json report = Json::parse(read_text_file(out));
  CHECK(report["points"].size() == standard_cases().size());
  CHECK(report["device"].is_null());
  CHECK(report["points"][0]["measured_us"].is_null());

  // As if every step had taken twice its floor.
  Json measured = {{"metronome_bench", 1},
                   {"model", "llama-3.2-3b"},
                   {"device", "a GPU"},
                   {"copy_bytes_per_s", 4e12},
                   {"matrix_flops_per_s", 700e12}};
  for (Json point : report["points"]) {
    point["median_us"] = 2 * point["floor_us"].get<double>();
    measured["points"].push_back(point);
  }
  measured["points"].erase(0);
  const std::string bench = folder.write("bench.json", measured.dump());
  const CommandResult beside = run_metronome("bench llama-3.2-3b --predict h200 --measured '" +
                                             bench + "' --rates 4.3,790 --json '" + out + "'");
  INFO(beside.out << beside.err);
  REQUIRE(beside.exit_code == 0);
  CHECK(contains(beside.out, "measured    a GPU\n"));
  CHECK(contains(beside.out, "on average 50 % of the floor, and predicted to within "));
  report = Json::parse(read_text_file(out));
  CHECK(report["points"][0]["measured_us"].is_null());
  CHECK(report["points"][1]["measured_us"].get<double>() ==
        Approx(2 * report["points"][1]["floor_us"].get<double>()));
  const CommandResult own =
      run_metronome("bench llama-3.2-3b --predict h200 --measured '" + bench + "'");
  CHECK(contains(own.out, "4.00 TB/s and 700 TFLOP/s, measured with the steps"));
  const CommandResult wrong =
      run_metronome("bench qwen3-4b --predict h200 --measured '" + bench + "'");
  CHECK(wrong.exit_code == 2);
  CHECK(contains(wrong.err, "bench.json: model: is llama-3.2-3b, not qwen3-4b; allowed: "));
}

TEST_CASE("bench --predict says what it cannot read", "[bench][cli]") {
  const auto error = [](const std::string& arguments) {
    const CommandResult result = run_metronome("bench " + arguments);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    return result.err.substr(std::string("metronome: error: ").size());
  };
  CHECK(error("llama-3.2-3b --rates 4,7") == "--rates: has no effect; allowed: with --predict\n");
  CHECK(error("llama-3.2-3b --measured x") ==
        "--measured: has no effect; allowed: with --predict\n");
  CHECK(error("llama-3.2-3b --predict h200 --repeats 3") ==
        "--repeats: has no effect with --predict; allowed: one of them\n");
  for (const std::string option : {"--early-launches", "--no-graphs", "--wgmma-products"}) {
    CHECK(error("llama-3.2-3b --predict h200 " + option) ==
          option + ": has no effect with --predict; allowed: one of them\n");
  }
  for (const std::string rates : {"4", "4,", "4,x", "0,7", "4,7,", "-4,7", "4;7"}) {
    CHECK(error("llama-3.2-3b --predict h200 --rates '" + rates + "'") ==
          "--rates: '" + rates +
              "' is not a pair of rates; allowed: TB/s and TFLOP/s above 0, such as 4.3,790\n");
  }
  CHECK(error("llama-3.2-3b --predict h2000").starts_with("--predict: "));
  CHECK(error("llama-3.2-4b --predict h200").starts_with("MODEL: "));
  CHECK(contains(error("llama-3.2-3b --predict h200 --measured nowhere.json"), "nowhere.json"));
  CHECK(contains(error("llama-3.2-3b --predict h200 --cost-model nowhere.json"), "nowhere.json"));
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
