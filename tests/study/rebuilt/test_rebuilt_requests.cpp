// SPDX-License-Identifier: Apache-2.0
// Requests rebuilt from logs of simulated runs, whose requests are known.
#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <sstream>

#include "core/metrics/run_record.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/scenario.h"
#include "engines/log/log_dialect.h"
#include "study/rebuilt/log_clock.h"
#include "study/rebuilt/rebuilt_requests.h"
#include "study/rebuilt/rebuilt_steps.h"
#include "tests/catch.h"
#include "tests/engine_log_writer.h"

namespace metronome::testing::TEST_FILE {
namespace {

WrittenRun write_log(std::uint64_t seed, int budget, double rate) {
  const Scenario scenario = parse_scenario(fmt::format(R"(
seed: {}
model: llama-3.1-8b
hardware: h100-sxm
engine: {{max_num_seqs: 32, max_model_len: 8192}}
kv_cache: {{num_blocks: 12000, enable_prefix_caching: false}}
scheduler: {{policy: vllm, max_num_batched_tokens: {}}}
workload:
  num_requests: 80
  arrivals: {{process: poisson, rate: {}}}
  prompt_tokens: {{distribution: lognormal, median: 400, p99: 4000, max: 6000}}
  output_tokens: {{distribution: uniform, min: 1, max: 120}}
)",
                                                       seed, budget, rate),
                                           "case.yaml", {})
                                .variants.front();
  return run_logged(scenario, true);
}

EngineLog read(const std::string& text) {
  std::istringstream in(text);
  return read_engine_log(in, "case.log");
}

RebuiltLog rebuilt(const std::string& text) {
  const EngineLog log = read(text);
  return rebuild_requests(log, rebuild_setup(log));
}

std::string without(const std::string& text, const std::string& word) {
  std::istringstream lines(text);
  std::string left;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(word) == std::string::npos) left += line + "\n";
  }
  return left;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

struct Totals {
  std::int64_t prompts = 0, outputs = 0;
  bool operator==(const Totals&) const = default;
};

// Checks what is said to be exact, and sums. Returns the number of exact requests.
std::size_t check_against(const RunRecord& truth, const RebuiltLog& log) {
  REQUIRE(log.requests.size() == truth.requests.size());
  Totals is;
  Totals was;
  std::vector<double> off;
  for (std::size_t i = 0; i < log.requests.size(); ++i) {
    const RebuiltRequest& request = log.requests[i];
    const RequestRecord& real = truth.requests[i];
    INFO("request " << i);
    if (request.is_prompt_exact) CHECK(request.num_prompt_tokens == real.num_prompt_tokens);
    if (request.is_output_exact) CHECK(request.num_output_tokens == real.num_output_tokens);
    CHECK(request.num_prompt_tokens >= 1);
    is.prompts += request.num_prompt_tokens;
    is.outputs += request.num_output_tokens;
    was.prompts += real.num_prompt_tokens;
    was.outputs += real.num_output_tokens;
    off.push_back(std::abs(static_cast<double>((request.arrival - log.requests[0].arrival) -
                                               (real.arrival - truth.requests[0].arrival)) /
                           1e9));
  }
  CHECK(is == was);
  std::sort(off.begin(), off.end());
  CHECK(off.back() < 2.1);  // both ends have the error of a stamp
  return log.num_exact();
}

}  // namespace

TEST_CASE("property: what is rebuilt of a log as exact is exact", "[study][rebuilt]") {
  const std::uint64_t seed = GENERATE(range<std::uint64_t>(1, 6));
  const int budget = GENERATE(256, 1024, 8192);
  INFO("seed " << seed << ", budget " << budget);
  const WrittenRun written = write_log(seed, budget, 6);
  const std::size_t num_exact = check_against(written.truth, rebuilt(written.text));
  CHECK(num_exact >= (budget == 256 ? 20 : 40));
  // Limits that no request reaches leave some ends open, and no sum.
  std::string open = written.text;
  for (int tokens = 120; tokens >= 1; --tokens) {
    open = replaced(open, fmt::format("max_tokens={},", tokens), "max_tokens=4000,");
  }
  CHECK(check_against(written.truth, rebuilt(open)) < num_exact);
  // So do requests that nobody logged.
  const RebuiltLog unseen = rebuilt(without(written.text, "Received request"));
  CHECK(check_against(written.truth, unseen) < num_exact);
  REQUIRE_FALSE(unseen.remarks.empty());
  CHECK(unseen.remarks[0].find("--enable-log-requests") != std::string::npos);
}

TEST_CASE("contexts of a rebuilt log are those of its run", "[study][rebuilt]") {
  // So slow that one request runs at a time: nothing is open.
  const WrittenRun written = write_log(3, 512, 0.2);
  const EngineLog log = read(written.text);
  const RebuiltLog requests = rebuild_requests(log, rebuild_setup(log));
  CHECK(requests.num_exact() >= 70);
  const ModelConfig model = find_model("llama-3.1-8b", {});
  const CalibrationSteps steps = rebuilt_steps(requests, "case.log", model, "h100-sxm", "vllm");
  CHECK(steps.num_left_out == 0);
  CHECK(steps.steps.size() == written.truth.steps.size());
  double pairs = 0;
  double kv = 0;
  for (const MeasuredStep& step : steps.steps) {
    pairs += step.passes[0].pairs;
    kv += step.passes[0].decode_kv;
  }
  double true_pairs = 0;
  double true_kv = 0;
  for (const RequestRecord& request : written.truth.requests) {
    const double prompt = request.num_prompt_tokens;
    const double decodes = request.num_output_tokens - 1;
    true_pairs += prompt * (prompt + 1) / 2;
    true_kv += decodes * (prompt + (decodes + 1) / 2);
  }
  CHECK(pairs == Approx(true_pairs).epsilon(0.02));
  CHECK(kv == Approx(true_kv).epsilon(0.02));
}

TEST_CASE("a log that begins and ends in the middle has its requests", "[study][rebuilt]") {
  const WrittenRun written = write_log(4, 1024, 6);
  EngineLog log = read(written.text);
  keep_iterations({200, 600}, log);
  const RebuiltLog part = rebuild_requests(log, rebuild_setup(log));
  const std::int64_t running = log.observations.front().num_running;
  REQUIRE(running > 0);
  CHECK(std::count_if(part.requests.begin(), part.requests.end(), [](const RebuiltRequest& one) {
          return one.first == kNoIteration;
        }) == running);
  for (const RebuiltRequest& request : part.requests) {
    CHECK(request.num_prompt_tokens >= 1);
    CHECK(request.num_output_tokens >= 1);
  }
  REQUIRE_FALSE(part.remarks.empty());
  CHECK(part.remarks[0].find("began before the log") != std::string::npos);
}

TEST_CASE("ends of iterations keep stamps and their own times", "[study][rebuilt]") {
  std::vector<LogObservation> seen(4);
  for (LogObservation& one : seen) one.elapsed_ns = 400 * kNsPerMs;
  const std::vector<TimeNs> stamps = {10 * kStampNs, 10 * kStampNs, 10 * kStampNs, 11 * kStampNs};
  const std::vector<TimeNs> ends = iteration_ends(seen, stamps);
  for (std::size_t i = 0; i < ends.size(); ++i) {
    CHECK(ends[i] >= stamps[i]);
    CHECK(ends[i] <= stamps[i] + kStampNs);
    if (i > 0) CHECK(ends[i] - ends[i - 1] >= seen[i].elapsed_ns);
  }
  LogClock clock;
  CHECK(clock.read("23:59:58") == 86'398 * kStampNs);
  CHECK(clock.read("00:00:01") == 86'401 * kStampNs);
  CHECK(clock.read("noon") == kNoTime);
}

}  // namespace metronome::testing::TEST_FILE
