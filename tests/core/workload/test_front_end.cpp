// SPDX-License-Identifier: Apache-2.0
// A front end between clients and engine: known answers, order of hand-over, and what a run shows.
#include <algorithm>
#include <map>

#include "core/metrics/summary.h"
#include "core/run/prepared_variant.h"
#include "core/run/run.h"
#include "core/scenario/scenario.h"
#include "core/workload/front_end_arrivals.h"
#include "core/workload/workload_arrivals.h"
#include "reports/files/result_reader.h"
#include "sim/sim_executor.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "study/run/variant_run.h"
#include "tests/catch.h"
#include "tests/engine_harness.h"
#include "tests/scratch_folder.h"

namespace metronome::testing::TEST_FILE {
namespace {

// 2 ms a request and 1 ms a prompt token.
constexpr FrontEnd kFrontEnd = {2 * kNsPerMs, 1e6};

Workload timed(std::vector<RequestSpec> requests) {
  Workload workload;
  workload.requests = std::move(requests);
  return workload;
}

// The first request due by then, in ms; -1 if none is.
double taken_at(FrontEndArrivals& arrivals, TimeNs now) {
  const auto spec = arrivals.pop_due(now, 0);
  return spec ? to_ms(spec->arrival) : -1;
}

// A run of this scenario; `front_end` is the value of cost_model.frontend.
RunRecord run_of(const std::string& front_end, const std::string& arrivals) {
  const ScratchFolder folder;
  const std::string path = folder.write(
      "s.yaml",
      "model: llama-3.1-8b\nhardware: h100-sxm\nengine: {max_num_seqs: 16, async_depth: 2}\n"
      "scheduler: {policy: vllm, max_num_batched_tokens: 256}\n"
      "cost_model: {frontend: " +
          front_end +
          "}\n"
          "workload:\n  num_requests: 200\n  arrivals: " +
          arrivals +
          "\n"
          "  prompt_tokens: {distribution: uniform, min: 1, max: 900}\n"
          "  output_tokens: {distribution: uniform, min: 1, max: 60}\n");
  SimulatedBackend backend;
  ScenarioFile file = load_scenario(path, {}, std::nullopt);
  std::vector<PreparedVariant> variants = prepare_variants(backend, std::move(file.variants));
  return run_variant(backend, variants.front(), nullptr, [](const RunProgress&) { return true; })
      .record;
}

}  // namespace

TEST_CASE("a front end hands over after its delay, in order of arrival", "[workload][front_end]") {
  // 2 + 10 ms, 2 + 1 ms (but behind the first), 2 + 3 ms.
  const Workload workload = timed({{0, 10, 1, 0}, {kNsPerMs, 1, 1, 0}, {20 * kNsPerMs, 3, 1, 0}});
  WorkloadArrivals clients(workload);
  FrontEndArrivals arrivals(clients, kFrontEnd);
  CHECK(arrivals.num_total() == 3);
  CHECK(arrivals.next_time() == 0);
  CHECK(taken_at(arrivals, 2 * kNsPerMs) == -1);
  CHECK(arrivals.next_time() == 12 * kNsPerMs);
  CHECK(taken_at(arrivals, 12 * kNsPerMs - 1) == -1);
  CHECK(taken_at(arrivals, 12 * kNsPerMs) == 0);
  CHECK(arrivals.next_time() == 12 * kNsPerMs);
  CHECK(taken_at(arrivals, 12 * kNsPerMs) == 1);
  CHECK(arrivals.next_time() == 20 * kNsPerMs);
  CHECK(taken_at(arrivals, 24 * kNsPerMs) == -1);
  CHECK(taken_at(arrivals, 30 * kNsPerMs) == 20);
  CHECK(arrivals.next_time() == kNever);
}

TEST_CASE("a client of a closed loop sends again when its answer has ended",
          "[workload][front_end]") {
  Workload workload = timed({{0, 4, 1, 0}, {0, 6, 1, 0}});
  workload.mode = ArrivalMode::ClosedLoop;
  workload.concurrency = 1;
  WorkloadArrivals clients(workload);
  FrontEndArrivals arrivals(clients, kFrontEnd);
  CHECK(taken_at(arrivals, 6 * kNsPerMs) == 0);
  CHECK(arrivals.next_time() == kNever);
  arrivals.on_ended(9 * kNsPerMs);
  CHECK(arrivals.next_time() == 9 * kNsPerMs);
  CHECK(taken_at(arrivals, 16 * kNsPerMs) == -1);
  CHECK(taken_at(arrivals, 17 * kNsPerMs) == 9);
}

TEST_CASE("a run behind a front end keeps its order and shows the delay", "[workload][front_end]") {
  const char* const arrivals =
      GENERATE("{process: poisson, rate: 40}", "{process: closed_loop, concurrency: 12}",
               "{process: burst}");
  CAPTURE(arrivals);
  const RunRecord record = run_of("{fixed_ms: 4.4, us_per_prompt_token: 4.9}", arrivals);
  const RunRecord without = run_of("{}", arrivals);
  CHECK(without.handed_over.empty());
  REQUIRE(record.handed_over.size() == record.requests.size());
  REQUIRE(record.requests.size() == without.requests.size());
  TimeNs last = 0;
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    const RequestRecord& request = record.requests[i];
    CAPTURE(i);
    CHECK(request.num_prompt_tokens == without.requests[i].num_prompt_tokens);
    const TimeNs own = 4'400'000 + 4'900 * TimeNs{request.num_prompt_tokens};
    CHECK(record.handed_over[i] == std::max(last, request.arrival + own));
    last = record.handed_over[i];
    CHECK(record.front_end_ns(i) >= own);
    CHECK(record.queue_ns(i) >= 0);
    CHECK(request.first_scheduled == request.arrival + record.front_end_ns(i) + record.queue_ns(i));
  }
  const Summary summary = summarize(record, {});
  CHECK(summary.front_end.count == 200);
  CHECK(summary.front_end.min_ms > 4.4);
  CHECK(summary.queue.min_ms >= 0);
  CHECK(summarize(without, {}).front_end.count == 0);
}

TEST_CASE("an idle engine's first token comes later by the front end alone",
          "[workload][front_end]") {
  const char* const one_by_one = "{process: constant, rate: 0.5}";
  const RunRecord record = run_of("{fixed_ms: 3, us_per_prompt_token: 10}", one_by_one);
  const RunRecord without = run_of("{}", one_by_one);
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    const TimeNs own = 3'000'000 + 10'000 * TimeNs{record.requests[i].num_prompt_tokens};
    CHECK(record.requests[i].ttft_ns() == without.requests[i].ttft_ns() + own);
    CHECK(record.front_end_ns(i) == own);
    CHECK(record.queue_ns(i) == without.queue_ns(i));
  }
}

TEST_CASE("arrivals by step stand still while a front end works", "[workload][front_end]") {
  Workload workload = timed({{0, 4, 1, 0}, {3, 6, 1, 0}});
  workload.mode = ArrivalMode::Steps;
  WorkloadArrivals clients(workload);
  FrontEndArrivals arrivals(clients, kFrontEnd);
  CHECK(arrivals.next_step() == 0);
  CHECK_FALSE(arrivals.pop_due(0, 0));
  CHECK(arrivals.next_step() == 3);
  CHECK(arrivals.next_time() == 6 * kNsPerMs);
  CHECK_FALSE(arrivals.pop_due(5 * kNsPerMs, 3));
  CHECK(arrivals.next_step() == std::nullopt);
  CHECK(taken_at(arrivals, 6 * kNsPerMs) == 0);
  CHECK(arrivals.next_time() == 13 * kNsPerMs);
}

TEST_CASE("every request by step is served behind a front end", "[workload][front_end]") {
  const char* const steps = GENERATE("0, 0, 50, 51, 52", "5, 6, 50, 51, 52", "0, 0, 0, 0, 9000");
  const char* const policy =
      GENERATE("vllm", "static, batch_wait_ms: 5", "sglang, scheduler_recv_interval: 30");
  CAPTURE(steps, policy);
  ScenarioFile file = parse_scenario(
      "model: llama-3.2-1b\nhardware: h200\nengine: {max_num_seqs: 8, max_model_len: 1024}\n"
      "scheduler: {policy: " +
          std::string(policy) +
          "}\ncost_model: {frontend: {fixed_ms: 1}}\n"
          "workload: {num_requests: 5, arrivals: {process: steps, steps: [" +
          steps + "]}, prompt_tokens: {value: 100}, output_tokens: {value: 3}}\n",
      "s.yaml", {});
  SimulatedBackend backend;
  std::vector<PreparedVariant> variants = prepare_variants(backend, std::move(file.variants));
  const VariantOutcome outcome = run_variant(backend, variants.front(), nullptr, {});
  CHECK(outcome.result.summary.completed == 5);
  CHECK(outcome.result.summary.front_end.count == 5);
}

}  // namespace metronome::testing::TEST_FILE
