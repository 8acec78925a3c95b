// SPDX-License-Identifier: Apache-2.0
// `metronome validate`: the comparison itself, the files it reads, and the command.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <stdexcept>

#include "core/base/json.h"
#include "core/base/rng.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "reports/compare/comparable.h"
#include "reports/compare/validation.h"
#include "sim/roofline/roofline.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

// Requests of `gaps_ms`, each after a first token at `ttft_ms`.
ObservedRequest request_of(double ttft_ms, const std::vector<double>& gaps_ms) {
  const auto ns = [](double ms) { return std::llround(ms * 1e6); };
  ObservedRequest request;
  request.num_prompt_tokens = 10;
  request.num_output_tokens = static_cast<std::int32_t>(gaps_ms.size()) + 1;
  request.ttft_ns = request.e2el_ns = ns(ttft_ms);
  for (const double gap : gaps_ms) {
    request.gaps.push_back(ns(gap));
    request.e2el_ns += ns(gap);
  }
  return request;
}

ObservedRun run_of(std::vector<ObservedRequest> requests) {
  ObservedRun run;
  run.requests = std::move(requests);
  run.duration_ns = 10 * kNsPerSecond;
  return run;
}

const FigureError& figure(const FigureComparison& comparison, const std::string& metric,
                          const std::string& statistic) {
  for (const FigureError& figure : comparison.latencies) {
    if (figure.metric() == metric && figure.statistic() == statistic) return figure;
  }
  throw std::runtime_error("no " + metric + " " + statistic);
}

double distance(const FigureComparison& comparison, const std::string& metric) {
  for (const MetricDistance& distance : comparison.distances) {
    if (distance.metric == metric) return distance.distance;
  }
  throw std::runtime_error("no distance of " + metric);
}

ObservedRun exponential_run(std::uint64_t seed, int num_requests) {
  Rng rng(seed, "exponential");
  std::vector<ObservedRequest> requests;
  for (int i = 0; i < num_requests; ++i) requests.push_back(request_of(rng.gamma(1, 50), {}));
  requests.front().num_prompt_tokens = static_cast<std::int32_t>(seed);  // not the same requests
  return run_of(std::move(requests));
}

// Two variants of a small scenario, run and read back.
struct SmallRuns {
  ScratchFolder folder;
  std::string out;

  SmallRuns() {
    const std::string scenario =
        folder.write("small.yaml", std::string(kSmallScenario) + kTwoVariants);
    out = folder.path() + "/out";
    REQUIRE(run_metronome("run '" + scenario +
                          "' -q --set workload.arrivals.rate=200 "
                          "--set cost_model.eager_us_per_layer=0 --out '" +
                          out + "'")
                .exit_code == 0);
  }
  ObservedRun read(const std::string& variant, bool from_queue = false) const {
    return read_observed_run(out + "/" + variant, {.from_queue = from_queue});
  }
  // A request log of a run, as a server that saw it would have written.
  std::string log_of(const std::string& variant) const {
    const ObservedRun run = read(variant, true);
    std::string text;
    for (std::size_t i = 0; i < run.requests.size(); ++i) {
      const ObservedRequest& request = run.requests[i];
      const auto seconds = [](TimeNs ns) { return 5000 + static_cast<double>(ns) / 1e9; };
      text += Json{{"request_id", "bench-" + std::to_string(i)},
                   {"input_toks", request.num_prompt_tokens},
                   {"output_toks", request.num_output_tokens},
                   {"arrival_time", 1.7e9},
                   {"queued_ts", seconds(request.begin)},
                   {"first_token_ts", seconds(request.first_token)},
                   {"last_token_ts", seconds(request.last_token)}}
                  .dump() +
              "\n";
    }
    return text;
  }
};

class ScaledPredictor final : public StepTimePredictor {
 public:
  explicit ScaledPredictor(double factor)
      : factor_(factor),
        costs_(find_model("llama-3.2-1b", {}), find_hardware("h200", {}), CostModelConfig{}) {}
  TimeNs step_ns(const StepPlan& plan) override {
    return std::llround(static_cast<double>(costs_.step_cost(plan).total_ns) * factor_);
  }
  TimeNs host_gap_ns(const StepPlan&) const override { return 0; }

 private:
  double factor_;
  RooflineCostModel costs_;
};

}  // namespace

TEST_CASE("figures of two runs, by hand", "[reports][validation]") {
  // TTFT 10, 20, 30, 40 against 11, 22, 33, 44 ms; percentiles as NumPy interpolates them.
  const ObservedRun measured = run_of(
      {request_of(10, {1, 3}), request_of(20, {2}), request_of(30, {}), request_of(40, {5, 5, 5})});
  const ObservedRun simulated = run_of(
      {request_of(11, {1, 3}), request_of(22, {2}), request_of(33, {}), request_of(44, {5, 5, 5})});
  const FigureComparison comparison = compare_figures(measured, simulated);
  CHECK(comparison.is_paired);
  CHECK(figure(comparison, "ttft", "mean").measured == Approx(25));
  CHECK(figure(comparison, "ttft", "p50").measured == Approx(25));
  CHECK(figure(comparison, "ttft", "p90").measured == Approx(37));
  CHECK(figure(comparison, "ttft", "p95").simulated == Approx(1.1 * 38.5));
  CHECK(figure(comparison, "ttft", "p99").simulated == Approx(1.1 * 39.7));
  for (const char* statistic : {"mean", "p50", "p90", "p95", "p99"}) {
    CHECK(figure(comparison, "ttft", statistic).error == Approx(0.1));
    CHECK(*figure(comparison, "ttft", statistic).low == Approx(0.1));  // in every resample
    CHECK(*figure(comparison, "ttft", statistic).high == Approx(0.1));
    CHECK(figure(comparison, "tpot", statistic).error == 0);
    CHECK(figure(comparison, "itl", statistic).error == 0);
  }
  CHECK(figure(comparison, "tpot", "mean").measured == Approx((2 + 2 + 5) / 3.0));
  CHECK(figure(comparison, "itl", "mean").measured == Approx(21 / 6.0));
  CHECK(figure(comparison, "e2el", "mean").measured == Approx((14 + 22 + 30 + 55) / 4.0));
  // Cumulative shares differ most below 11: one of four against none.
  CHECK(distance(comparison, "ttft") == Approx(0.25));
  CHECK(distance(comparison, "itl") == 0);
  CHECK(comparison.worst().metric() == "ttft");
  double sum = 0;
  for (const char* statistic : {"mean", "p50", "p90", "p95", "p99"}) {
    sum += 0.1 + std::abs(figure(comparison, "e2el", statistic).error);
  }
  CHECK(comparison.mean_abs_error() == Approx(sum / 15));
  CHECK(comparison.others[0].measured == Approx(0.4));
  CHECK(comparison.others[1].measured == Approx(1.0));  // 3 + 2 + 1 + 4 tokens in 10 s
  CHECK(comparison.others[2].measured == Approx(5.0));
}

TEST_CASE("the band of an error has the width that theory gives it", "[reports][validation]") {
  // Two independent samples of one exponential distribution: the ratio of their means has a
  // standard deviation of sqrt(2 / n).
  constexpr int kNumRequests = 2'000;
  const double expected = 2 * 1.96 * std::sqrt(2.0 / kNumRequests);
  int num_covered = 0;
  constexpr int kNumRounds = 60;
  for (std::uint64_t seed = 0; seed < kNumRounds; ++seed) {
    const FigureComparison comparison =
        compare_figures(exponential_run(2 * seed + 1, kNumRequests),
                        exponential_run(2 * seed + 2, kNumRequests), 200);
    CHECK_FALSE(comparison.is_paired);
    const FigureError& mean = figure(comparison, "ttft", "mean");
    CHECK(*mean.high - *mean.low == Approx(expected).epsilon(0.3));
    num_covered += *mean.low <= 0 && 0 <= *mean.high ? 1 : 0;
  }
  CHECK(num_covered >= 0.88 * kNumRounds);  // of 95 in 100
}

TEST_CASE("decisions of recorded runs are compared", "[reports][validation]") {
  const SmallRuns runs;
  const ObservedRun whole = runs.read("whole");
  const ObservedRun pieces = runs.read("pieces");
  const auto compare = [](const ObservedRun& a, const ObservedRun& b) {
    return compare_decisions(a.stored->record, StepShape::Mixed, b.stored->record,
                             StepShape::Mixed);
  };
  const DecisionComparison same = compare(whole, whole);
  CHECK_FALSE(same.first_difference);
  CHECK(same.num_equal == static_cast<std::int64_t>(whole.stored->record.steps.size()));

  const DecisionComparison other = compare(whole, pieces);
  REQUIRE(other.first_difference);
  // Chunks of 128 tokens: the first prompt longer than that is where they part.
  const std::int64_t step = other.first_difference->step;
  CHECK(step == other.num_equal);
  const RunRecord& record = pieces.stored->record;
  for (std::int64_t s = 0; s < step; ++s) {
    CHECK(record.steps[static_cast<std::size_t>(s)].num_prefill_tokens < 128);
  }
  CHECK(contains(other.first_difference->simulated, " prefills 128 from 0"));
  CHECK(contains(other.first_difference->measured, " prefills "));

  ObservedRun again = runs.read("whole");
  RunRecord& longer = again.stored->record;
  longer.steps.push_back(StepEntry{});
  const DecisionComparison cut =
      compare_decisions(longer, StepShape::Mixed, whole.stored->record, StepShape::Mixed);
  REQUIRE(cut.first_difference);
  CHECK(cut.first_difference->simulated.empty());
}

TEST_CASE("instants of tokens are compared with simulated steps", "[reports][validation]") {
  const SmallRuns runs;
  const std::string path = runs.folder.write("log.jsonl", runs.log_of("pieces"));
  const ObservedRun log = read_observed_run(path);
  CHECK(log.format == RunFormat::RequestLog);
  const TimestampComparison own = compare_timestamps(log, runs.read("pieces", true).stored->record);
  CHECK(own.num_timestamps == 40);
  CHECK(own.num_linked > 0);
  CHECK(own.num_violated == 0);
  const FigureComparison figures = compare_figures(log, runs.read("pieces", true));
  CHECK(figures.is_paired);
  CHECK(figures.mean_abs_error() < 1e-6);
  CHECK(compare_timestamps(log, runs.read("whole", true).stored->record).num_violated > 0);

  // One last token that comes a step later than it did.
  ObservedRun late = read_observed_run(path);
  const auto last =
      std::max_element(late.requests.begin(), late.requests.end(),
                       [](const auto& a, const auto& b) { return a.last_token < b.last_token; });
  const auto moved = last == late.requests.begin() ? last + 1 : late.requests.begin();
  moved->last_token = last->last_token + 1;
  const TimestampComparison broken =
      compare_timestamps(late, runs.read("pieces", true).stored->record);
  CHECK(broken.num_violated == 1);
  CHECK(contains(broken.violations.front(),
                 "last token of request " + std::to_string(moved - late.requests.begin())));
}

TEST_CASE("step times are compared with a cost model", "[reports][validation]") {
  const SmallRuns runs;
  const ObservedRun run = runs.read("pieces");
  for (const double factor : {1.0, 1.25}) {
    ScaledPredictor predictor(factor);
    const std::vector<RegimeError> regimes =
        compare_step_times(run.stored->record, StepShape::Mixed, predictor);
    REQUIRE(regimes.size() >= 3);
    CHECK(regimes.front().regime == "decode 1-8");
    CHECK(regimes.back().regime == "all");
    CHECK(regimes.back().num_steps == static_cast<std::int64_t>(run.stored->record.steps.size()));
    std::int64_t num_steps = 0;
    for (const RegimeError& regime : regimes) {
      num_steps += regime.num_steps;
      CHECK(regime.mean_error == Approx(factor - 1).margin(1e-6));
      CHECK(regime.mean_abs_error == Approx(factor - 1).margin(1e-6));
      CHECK(regime.p95_abs_error == Approx(factor - 1).margin(1e-6));
      CHECK(regime.total_error == Approx(factor - 1).margin(1e-6));
      CHECK(regime.worst_error == Approx(factor - 1).margin(1e-6));
    }
    CHECK(num_steps == 2 * regimes.back().num_steps);
  }
}

TEST_CASE("vLLM's benchmark result is read", "[reports][validation]") {
  const ScratchFolder folder;
  const std::string path = folder.write("bench.json", R"({"duration": 12.5, "completed": 2,
      "input_lens": [100, 200, 300], "output_lens": [3, 2, 0], "ttfts": [0.25, 0.5, 0.0],
      "itls": [[0.01, 0.02], [0.04], []], "start_times": [100.0, 101.0, 102.0],
      "generated_texts": ["a", "b", ""], "errors": ["", "", "Bad Gateway"]})");
  const ObservedRun run = read_observed_run(path);
  CHECK(run.format == RunFormat::Client);
  CHECK(run.num_incomplete == 1);
  CHECK(run.duration_ns == 12'500'000'000);
  REQUIRE(run.requests.size() == 2);
  CHECK(run.requests[0].num_prompt_tokens == 100);
  CHECK(run.requests[0].ttft_ns == 250'000'000);
  CHECK(run.requests[0].e2el_ns == 280'000'000);
  CHECK(run.requests[0].tpot_ns() == Approx(15'000'000));
  CHECK(run.requests[1].begin == kNsPerSecond);
  CHECK(run.requests[1].last_token == 1'540'000'000);
  CHECK(run.requests[1].gaps == std::vector<TimeNs>{40'000'000});
}

TEST_CASE("runs that cannot be read are refused by name", "[reports][validation]") {
  const ScratchFolder folder;
  const auto error_with = [&](const std::string& content) {
    const std::string path = folder.write("run.json", content);
    const std::string error = error_of([&] { (void)read_observed_run(path); });
    REQUIRE(error.starts_with(path));
    return error.substr(path.size());
  };
  CHECK(contains(error_with("{}"),
                 ": is no format that is known here; its keys: none; allowed: a result of "));
  CHECK(contains(error_with("oops"), ": is neither JSON"));
  CHECK(contains(error_with(R"({"ttfts": [1], "duration": 1, "input_lens": [1, 2],
                                "output_lens": [1], "itls": [[]]})"),
                 ": input_lens: has 2 entries; allowed: as many as ttfts, 1"));
  CHECK(
      contains(error_with(R"({"ttfts": [-1], "duration": 1})"), ": ttfts[0]: -1 is out of range"));
  CHECK(contains(error_with(R"({"ttfts": [], "duration": 1, "input_lens": [], "output_lens": [],
                                "itls": []})"),
                 ": has no completed request"));
  const std::string line = R"({"input_toks": 5, "output_toks": 2, "queued_ts": 3.0,)";
  CHECK(contains(error_with(line + R"("first_token_ts": 2.0, "last_token_ts": 4.0})"),
                 ":1: first_token_ts: is before queued_ts"));
  CHECK(contains(error_with(line + R"("first_token_ts": 4.0, "last_token_ts": 3.5})"),
                 ":1: last_token_ts: is before the first"));
  CHECK(contains(error_with(line + R"("first_token_ts": "x", "last_token_ts": 3.5})"),
                 ":1: first_token_ts: is not a number"));
  CHECK(contains(error_of([&] { (void)read_observed_run(folder.path() + "/none"); }),
                 "/none: does not exist; allowed: "));
  const SmallRuns runs;
  CHECK(contains(error_of([&] { (void)read_observed_run(runs.out); }),
                 ": has the results of 2 runs; allowed: one of them, such as " + runs.out));
}

TEST_CASE("runs of other models or requests are not compared unasked", "[cli][validation]") {
  const SmallRuns runs;
  const ObservedRun whole = runs.read("whole");
  // As a client of vLLM's benchmark would have seen the same run.
  const auto bench = [&](const std::string& model, std::size_t num_requests, std::int32_t more) {
    Json inputs = Json::array();
    Json outputs = Json::array();
    Json ttfts = Json::array();
    Json itls = Json::array();
    for (std::size_t i = 0; i < num_requests; ++i) {
      inputs.push_back(whole.requests[i].num_prompt_tokens + more);
      outputs.push_back(whole.requests[i].num_output_tokens);
      ttfts.push_back(0.1);
      itls.push_back(Json::array());
    }
    const Json json = {{"model_id", model},      {"duration", 9},  {"input_lens", inputs},
                       {"output_lens", outputs}, {"ttfts", ttfts}, {"itls", itls}};
    return runs.folder.write("bench.json", json.dump());
  };
  const auto compare = [&](const std::string& path, const std::string& options = "") {
    return run_metronome("validate '" + path + "' '" + runs.out + "/whole' " + options);
  };
  const std::size_t all = whole.requests.size();
  const std::string own = "meta-llama/Llama-3.2-1B-Instruct";
  CHECK(compare(bench(own, all, 0)).exit_code == 0);
  CHECK(compare(bench("/models/Llama-3.2-1B-Instruct-FP8/", all, 0)).exit_code == 0);
  const CommandResult unknown = compare(bench("chat", all, 0));
  CHECK(unknown.exit_code == 0);
  CHECK(contains(unknown.out, "remark      the model is called chat, whose shape is not known"));

  const CommandResult other_model = compare(bench("deepseek-ai/DeepSeek-V3", all, 0));
  CHECK(other_model.exit_code == 2);
  CHECK(contains(other_model.err, "the model is deepseek-ai/DeepSeek-V3, not llama-3.2-1b;"));
  const CommandResult fewer = compare(bench(own, all - 1, 0));
  CHECK(fewer.exit_code == 2);
  CHECK(contains(fewer.err, std::to_string(all - 1) + " requests, not " + std::to_string(all)));
  const CommandResult longer = compare(bench(own, all, 100));
  CHECK(longer.exit_code == 2);
  CHECK(contains(longer.err, "prompts of "));
  CHECK_FALSE(contains(longer.err, "outputs of "));

  const CommandResult asked = compare(bench(own, all, 100), "--allow-differences");
  CHECK(asked.exit_code == 0);
  CHECK(contains(asked.out, "differs     prompts of "));
  const Json json = Json::parse(compare(bench(own, all, 100), "--allow-differences --json").out);
  CHECK(json.at("differences").size() == 1);
  CHECK(json.at("same_requests") == false);
}

TEST_CASE("requests that arrive at another rate are remarked upon", "[reports][validation]") {
  const auto arriving = [](TimeNs apart) {
    std::vector<ObservedRequest> requests;
    for (int i = 0; i < 12; ++i) {
      requests.push_back(request_of(30, {2}));
      requests.back().begin = i * apart;
    }
    return run_of(std::move(requests));
  };
  const auto remarks = [&](TimeNs one, TimeNs other) {
    return differences_of(arriving(one), arriving(other)).remarks;
  };
  CHECK(remarks(kNsPerSecond / 4, kNsPerSecond) ==
        std::vector<std::string>{"requests arrive at 4.00/s, not at 1.00/s"});
  CHECK(remarks(kNsPerSecond, kNsPerSecond / 4).size() == 1);
  CHECK(remarks(kNsPerSecond, kNsPerSecond * 3 / 2).empty());
  CHECK(remarks(0, kNsPerSecond).empty());
}

TEST_CASE("a request that is there twice counts once", "[reports][validation]") {
  const SmallRuns runs;
  const std::string log = runs.log_of("whole");
  const std::string twice = runs.folder.write("twice.jsonl", log + log);
  CHECK(contains(error_of([&] { (void)read_observed_run(twice); }),
                 "request_id: is \"bench-0\", which line 1 has already"));
}

TEST_CASE("the validate command", "[cli][validation]") {
  const SmallRuns runs;
  const std::string whole = "'" + runs.out + "/whole' ";
  const std::string pieces = "'" + runs.out + "/pieces' ";
  const CommandResult same = run_metronome("validate " + whole + whole + "--same-decisions");
  CHECK(same.exit_code == 0);
  CHECK(contains(same.out, "decisions   the same in all "));
  CHECK(contains(same.out, "mean |error| of TTFT, TPOT and E2EL 0.00 %"));
  const CommandResult idle = run_metronome("validate " + whole + whole + "--scenario x.yaml");
  CHECK(idle.exit_code == 2);
  CHECK(contains(idle.err, "--scenario: has no effect"));
  const CommandResult differ = run_metronome("validate " + whole + pieces);
  CHECK(differ.exit_code == 0);
  CHECK(contains(differ.out, "simulated; then, in step "));
  CHECK(run_metronome("validate " + whole + pieces + "--same-decisions").exit_code == 1);

  const Json json = Json::parse(run_metronome("validate " + whole + pieces + "--json").out);
  CHECK(json.at("same_requests") == true);
  CHECK(json.at("latencies").size() == 20);
  CHECK(json.at("step_times").back().at("regime") == "all");
  CHECK(json.at("decisions").at("first_difference").at("step") ==
        json.at("decisions").at("equal_steps"));

  const std::string log = runs.folder.write("log.jsonl", runs.log_of("whole"));
  const CommandResult logged =
      run_metronome("validate '" + log + "' " + whole + "--same-decisions");
  CHECK(logged.exit_code == 0);
  CHECK(contains(logged.out, "all lie in simulated steps of the same order"));
  CHECK(run_metronome("validate '" + log + "' " + pieces + "--same-decisions").exit_code == 1);
  // A client's measurement has no step, and nothing that could differ.
  const std::string bench = runs.folder.write("bench.json", R"({"duration": 1, "completed": 1,
      "input_lens": [5], "output_lens": [2], "ttfts": [0.1], "itls": [[0.01]],
      "start_times": [1.0], "generated_texts": ["a"], "errors": [""]})");
  const CommandResult client =
      run_metronome("validate '" + bench + "' " + whole + "--same-decisions --allow-differences");
  CHECK(client.exit_code == 2);
  CHECK(
      contains(client.err, "bench.json has no decisions to compare; allowed: a MEASURED that is "));
  CHECK(client.out.empty());
  CHECK(run_metronome("validate '" + bench + "' " + whole + "--allow-differences").exit_code == 0);
  const CommandResult swapped = run_metronome("validate " + whole + "'" + log + "'");
  CHECK(swapped.exit_code == 2);
  CHECK(contains(swapped.err, "is not a result folder; allowed: "));
  CHECK(contains(run_metronome("validate " + whole).err, "got 1 runs; allowed: MEASURED and "));
}

}  // namespace metronome::testing::TEST_FILE
