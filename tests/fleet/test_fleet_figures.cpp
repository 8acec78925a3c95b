// SPDX-License-Identifier: Apache-2.0
// Figures of fleets that keep no steps, beside those of the whole record of the same run.
#include <algorithm>
#include <cstdint>
#include <fmt/core.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/rng.h"
#include "core/metrics/digest.h"
#include "core/metrics/fleet_figures.h"
#include "core/metrics/run_record.h"
#include "core/metrics/summary.h"
#include "core/run/prepared_variant.h"
#include "core/scenario/scenario.h"
#include "core/workload/workload.h"
#include "fleet/fleet_run.h"
#include "reports/files/requests_stream.h"
#include "reports/files/result_folder.h"
#include "reports/files/variant_result.h"
#include "sim/virtual_clock.h"
#include "study/run/run_bands.h"
#include "study/run/variant_run.h"
#include "system/file_writer.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/draws.h"
#include "tests/error_of.h"
#include "tests/scratch_folder.h"

namespace metronome::testing::TEST_FILE {
namespace {

class Collected final : public EndedRequestSink {
 public:
  void take(const EndedRequest& request) override { requests.push_back(request); }
  std::vector<EndedRequest> requests;
};

struct Both {
  RunRecord record;
  Summary whole, figures;
  Collected ended;
};

Both run(const Scenario& scenario, std::int32_t num_threads = 1) {
  Both both;
  const Workload workload = make_workload(scenario);
  const std::unique_ptr<PreparedRun> prepared = FleetBackend(num_threads).prepare(scenario);
  RunRecorder recorder(workload.requests.size(), prepared->front_end);
  FleetFigures figures({.slo = scenario.slo,
                        .class_names = workload.class_names,
                        .front_end = prepared->front_end,
                        .first_arrival = workload.requests.front().arrival},
                       &both.ended);
  EventSink* const sinks[] = {&recorder, &figures};
  VirtualClock clock;
  REQUIRE(prepared->run(workload, clock, sinks, {}).completed);
  both.record = recorder.finish();
  both.record.class_names = workload.class_names;
  both.whole = summarize(both.record, {scenario.slo, prepared->setup.kv_cache.num_blocks});
  both.figures = figures.finish();
  return both;
}

void check_alike(const Distribution& found, const Distribution& wanted) {
  constexpr double kWidth = 1.0 / 256;
  REQUIRE(found.count == wanted.count);
  if (wanted.count == 0) return;
  // A TPOT counts in whole nanoseconds.
  CHECK(found.mean_ms == Approx(wanted.mean_ms).epsilon(1e-6));
  CHECK(found.std_ms == Approx(wanted.std_ms).epsilon(1e-6).margin(1e-4));
  CHECK(found.min_ms == Approx(wanted.min_ms).margin(1e-6));
  CHECK(found.max_ms == Approx(wanted.max_ms).margin(1e-6));
  CHECK(found.p50_ms == Approx(wanted.p50_ms).epsilon(kWidth));
  CHECK(found.p90_ms == Approx(wanted.p90_ms).epsilon(kWidth));
  CHECK(found.p99_ms == Approx(wanted.p99_ms).epsilon(kWidth));
}

void check_alike(const GroupSummary& found, const GroupSummary& wanted) {
  CHECK(found.name == wanted.name);
  CHECK(found.num_requests == wanted.num_requests);
  CHECK(found.completed == wanted.completed);
  CHECK(found.good == wanted.good);
  CHECK(found.request_goodput == wanted.request_goodput);
  check_alike(found.ttft, wanted.ttft);
  check_alike(found.tpot, wanted.tpot);
  check_alike(found.e2el, wanted.e2el);
}

void check_alike(const std::vector<GroupSummary>& found, const std::vector<GroupSummary>& wanted) {
  REQUIRE(found.size() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) check_alike(found[i], wanted[i]);
}

void check_steps(const Summary& found, const Summary& wanted) {
  CHECK(found.num_steps == wanted.num_steps);
  CHECK(found.num_failed_steps == wanted.num_failed_steps);
  CHECK(found.mean_batch_tokens == wanted.mean_batch_tokens);
  CHECK(found.busy_share == wanted.busy_share);
  CHECK(found.mean_kv_use == wanted.mean_kv_use);
  CHECK(found.peak_kv_use == wanted.peak_kv_use);
  CHECK(found.mean_running == wanted.mean_running);
  CHECK(found.mean_waiting == wanted.mean_waiting);
  CHECK(found.peak_running == wanted.peak_running);
  CHECK(found.peak_waiting == wanted.peak_waiting);
}

void check_counts(const Summary& found, const Summary& wanted) {
  CHECK(found.duration_ns == wanted.duration_ns);
  CHECK(found.num_requests == wanted.num_requests);
  CHECK(found.completed == wanted.completed);
  CHECK(found.failed == wanted.failed);
  CHECK(found.refused == wanted.refused);
  CHECK(found.errored == wanted.errored);
  CHECK(found.total_input_tokens == wanted.total_input_tokens);
  CHECK(found.total_output_tokens == wanted.total_output_tokens);
  CHECK(found.output_throughput == wanted.output_throughput);
  CHECK(found.good == wanted.good);
  CHECK(found.slo_attainment == wanted.slo_attainment);
  CHECK(found.max_concurrent_requests == wanted.max_concurrent_requests);
  CHECK(found.num_preemptions == wanted.num_preemptions);
  CHECK(found.prefix_hit_rate == wanted.prefix_hit_rate);
  CHECK(found.fleet_events == wanted.fleet_events);
  CHECK(found.num_retried == wanted.num_retried);
  CHECK(found.present_share == wanted.present_share);
  CHECK(found.replica_imbalance == wanted.replica_imbalance);
}

void check_alike(const Both& both, bool loses_work) {
  const Summary& found = both.figures;
  const Summary& wanted = both.whole;
  check_counts(found, wanted);
  check_steps(found, wanted);
  check_alike(found.ttft, wanted.ttft);
  check_alike(found.tpot, wanted.tpot);
  check_alike(found.itl, wanted.itl);
  check_alike(found.e2el, wanted.e2el);
  check_alike(found.queue, wanted.queue);
  check_alike(found.front_end, wanted.front_end);
  check_alike(found.jitter, wanted.jitter);
  check_alike(found.classes, wanted.classes);
  check_alike(found.priorities, wanted.priorities);
  CHECK(found.longest_stall.gap_ns == wanted.longest_stall.gap_ns);
  CHECK(found.longest_stall.request == wanted.longest_stall.request);
  CHECK(found.longest_stall.began_at == wanted.longest_stall.began_at);
  REQUIRE(found.replicas.size() == wanted.replicas.size());
  // The record counts tokens among those of a second that a replica lost with its requests.
  if (!loses_work) CHECK(found.max_output_tokens_per_s == wanted.max_output_tokens_per_s);
  for (std::size_t r = 0; r < wanted.replicas.size(); ++r) {
    const ReplicaSummary& own = found.replicas[r];
    const ReplicaSummary& whole = wanted.replicas[r];
    check_alike(own.requests, whole.requests);
    CHECK(own.total_input_tokens == whole.total_input_tokens);
    CHECK(own.total_output_tokens == whole.total_output_tokens);
    CHECK(own.prefix_hit_rate == whole.prefix_hit_rate);
    CHECK(own.busy_share == whole.busy_share);
    CHECK(own.mean_kv_use == whole.mean_kv_use);
    CHECK(own.peak_kv_use == whole.peak_kv_use);
    if (!loses_work) check_alike(own.itl, whole.itl);
  }
}

void check_requests(const Both& both) {
  REQUIRE(both.ended.requests.size() == both.record.requests.size());
  std::map<std::uint32_t, const EndedRequest*> by_number;
  for (const EndedRequest& ended : both.ended.requests) by_number[ended.number] = &ended;
  REQUIRE(by_number.size() == both.record.requests.size());
  for (const auto& [number, ended] : by_number) {
    const RequestRecord& wanted = both.record.requests[number];
    const RequestRecord& found = ended->record;
    CAPTURE(number);
    CHECK(ended->replica == both.record.replica_of[number]);
    CHECK(found.reason == wanted.reason);
    CHECK(found.arrival == wanted.arrival);
    CHECK(found.first_scheduled == wanted.first_scheduled);
    CHECK(found.last_scheduled == wanted.last_scheduled);
    CHECK(found.first_token == wanted.first_token);
    CHECK(found.last_token == wanted.last_token);
    CHECK(found.ended == wanted.ended);
    CHECK(found.num_output_tokens == wanted.num_output_tokens);
    CHECK(found.num_prefill_chunks == wanted.num_prefill_chunks);
    CHECK(found.num_preemptions == wanted.num_preemptions);
    if (wanted.num_output_tokens < 2) continue;
    CHECK(found.min_itl_ns == wanted.min_itl_ns);
    CHECK(found.max_itl_ns == wanted.max_itl_ns);
  }
}

std::string random_failures(Rng& rng, std::int32_t num_replicas) {
  std::string list;
  for (std::int32_t replica = draw(rng, 0, num_replicas - 1); replica < num_replicas; ++replica) {
    const std::int32_t at = draw(rng, 100, 4000);
    const char* const requests = chance(rng, 0.5) ? "lost" : "retried";
    list += fmt::format("{{replica: {}, at_s: {}, down_s: {}, requests: {}}}, ", replica, at / 1e3,
                        draw(rng, 1, 20) / 10.0, requests);
  }
  return fmt::format(", failures: [{}]", list);
}

struct Case {
  std::string text;
  bool loses_work = false;
};

Case random_case(std::uint64_t seed) {
  Rng rng(seed, "fleet_figures");
  Case one;
  const std::int32_t num_replicas = draw(rng, 1, 5);
  const char* const routers[] = {"round_robin", "least_loaded", "sglang_router", "dynamo",
                                 "random"};
  std::string fleet = fmt::format("replicas: {}, router: {}", num_replicas,
                                  routers[static_cast<std::size_t>(draw(rng, 0, 4))]);
  one.loses_work = chance(rng, 0.4);
  if (one.loses_work) fleet += random_failures(rng, num_replicas);
  if (chance(rng, 0.3)) {
    const std::int32_t max_in_flight = draw(rng, 2, 12);
    fleet += fmt::format(", gateway: {{max_in_flight: {}, max_queue: {}}}", max_in_flight,
                         draw(rng, 0, 20));
  }
  const char* const policies[] = {"token_budget", "vllm", "continuous", "sglang"};
  const char* const policy = policies[static_cast<std::size_t>(draw(rng, 0, 3))];
  const std::int32_t num_blocks = draw(rng, 80, 400);
  const std::int32_t depth = std::string(policy) == "vllm" && chance(rng, 0.5) ? 2 : 1;
  const std::int32_t rate = draw(rng, 10, 200);
  const std::int32_t max_prompt = draw(rng, 30, 600);
  const char* const priorities = chance(rng, 0.3) ? ", priority: {values: [0, 1, 5]}" : "";
  one.text = fmt::format(
      "model: llama-3.1-8b\nhardware: h100-sxm\nseed: {}\n"
      "engine: {{max_num_seqs: 16, max_model_len: 1024, async_depth: {}}}\n"
      "kv_cache: {{num_blocks: {}}}\nscheduler: {{policy: {}}}\n"
      "slo: {{ttft_ms: 300, itl_ms: 60}}\n"
      "workload: {{num_requests: 300, arrivals: {{process: poisson, rate: {}}},\n"
      "  prompt_tokens: {{distribution: uniform, min: 1, max: {}}},\n"
      "  output_tokens: {{distribution: uniform, min: 1, max: 100}}{}}}\nfleet: {{{}}}\n",
      seed, depth, num_blocks, policy, rate, max_prompt, priorities, fleet);
  return one;
}

Scenario scenario_of(const std::string& text) {
  return parse_scenario(text, "fleet.yaml", {}).variants.front();
}

TEST_CASE("figures without steps are those of the record", "[fleet][figures]") {
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(1, 41)));
  const Case one = random_case(seed);
  CAPTURE(seed, one.text);
  const Both both = run(scenario_of(one.text));
  check_requests(both);
  check_alike(both, one.loses_work);
}

// Seconds count from the first arrival, whether that request completes or not.
TEST_CASE("figures without steps where requests never fit", "[fleet][figures]") {
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(1, 13)));
  Rng rng(seed, "never_fits");
  const std::string text = fmt::format(
      "model: llama-3.1-8b\nhardware: h100-sxm\nseed: {}\n"
      "engine: {{max_num_seqs: 16, max_model_len: 1024}}\n"
      "kv_cache: {{num_blocks: {}}}\nscheduler: {{policy: vllm}}\n"
      "workload: {{num_requests: 100, arrivals: {{process: poisson, rate: 20}},\n"
      "  prompt_tokens: {{distribution: uniform, min: 1, max: 600}}, output_tokens: 20}}\n"
      "fleet: {{replicas: 2}}\n",
      seed, draw(rng, 10, 40));
  CAPTURE(seed, text);
  const Both both = run(scenario_of(text));
  CHECK(both.whole.never_fits > 0);
  check_alike(both, false);
}

TEST_CASE("requests end in one order for any number of threads", "[fleet][figures]") {
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(1, 9)));
  std::string text = random_case(seed).text;
  text.replace(text.find("replicas: ") + 10, 1, "40");
  CAPTURE(seed, text);
  const Scenario scenario = scenario_of(text);
  const Both one = run(scenario, 1);
  for (const std::int32_t num_threads : {2, 4}) {
    const Both several = run(scenario, num_threads);
    REQUIRE(several.ended.requests.size() == one.ended.requests.size());
    for (std::size_t i = 0; i < one.ended.requests.size(); ++i) {
      CHECK(several.ended.requests[i].number == one.ended.requests[i].number);
      CHECK(several.ended.requests[i].record.ended == one.ended.requests[i].record.ended);
    }
    CHECK(several.figures.itl.p99_ms == one.figures.itl.p99_ms);
    CHECK(several.figures.ttft.mean_ms == one.figures.ttft.mean_ms);
  }
}

TEST_CASE("steps of chosen replicas: what is refused", "[fleet][figures]") {
  const std::string text = random_case(1).text;
  const auto error = [&text](const std::string& change) {
    return error_of([&] { (void)parse_scenario(text, "fleet.yaml", {change}); });
  };
  CHECK(contains(error("fleet.steps_of=[7]"), "fleet.steps_of: there is no replica 7; allowed: 0"));
  const auto errors = [&text](const std::vector<std::string>& changes) {
    return error_of([&] { (void)parse_scenario(text, "fleet.yaml", changes); });
  };
  CHECK(contains(errors({"fleet.steps_of=[0]", "fleet.keep_steps=true"}), "one of the two keys"));
  CHECK(contains(errors({"fleet.keep_steps=false", "results.steps=true"}), "results.steps: "));
  CHECK(contains(error("results.trace=true"), "replicas in fleet.steps_of"));
  const std::string drafts =
      "fleet.groups=[{count: 1, scheduler: {policy: vllm}, "
      "speculative: {method: ngram, num_speculative_tokens: 2}}]";
  CHECK(errors({drafts}).empty());
  CHECK(contains(errors({drafts, "fleet.keep_steps=false"}), "fleet.keep_steps: figures of draft"));
  CHECK(contains(errors({drafts, "fleet.steps_of=[0]"}), "fleet.steps_of: figures of drafts"));
}

// The last lines of a file that grew beyond its limit are not written, and it is not whole.
TEST_CASE("requests of a stream with a limit", "[fleet][figures]") {
  const ScratchFolder scratch;
  const auto is_whole = [&scratch](std::int64_t limit, std::uint32_t num_requests) {
    RequestsStream stream(scratch.path() + "/requests.jsonl", limit, {});
    for (std::uint32_t i = 0; i < num_requests; ++i) stream.take({.number = i, .replica = 0});
    return stream.finish();
  };
  CHECK(is_whole(1'000'000'000, 5000));
  CHECK(!is_whole(100'000, 5000));
  CHECK(!is_whole(500'000, 5000));
  CHECK(!is_whole(10, 1));
}

// Two replicas as the scenario says, and two of another kind.
constexpr const char* kTwoKinds =
    "description: two kinds\nmodel: llama-3.1-8b\nhardware: h100-sxm\n"
    "engine: {max_num_seqs: 8, max_model_len: 4096}\nscheduler: {policy: vllm}\n"
    "workload: {num_requests: 60, arrivals: {process: poisson, rate: 30}, prompt_tokens: 100,\n"
    "  output_tokens: 20}\n"
    "fleet:\n  replicas: 4\n  steps_of: [0, 3]\n  groups:\n"
    "    - {count: 2, price_per_gpu_hour: 2}\n"
    "    - {count: 2, price_per_gpu_hour: 10, hardware: h200, scheduler: {policy: sglang}}\n";

TEST_CASE("files of chosen replicas that are too large are named", "[fleet][figures]") {
  const ScratchFolder scratch;
  FleetBackend backend;
  std::vector<PreparedVariant> variants = prepare_variants(backend, {scenario_of(kTwoKinds)});
  VariantOutcome outcome = run_variant(backend, variants.front(), nullptr, {});
  ResultFolder folder(scratch.path() + "/out");
  const std::vector<std::string> left_out =
      write_variant(outcome, variants.front().scenario.results, folder, "own", 10);
  const auto has = [&left_out](const std::string& name) {
    return std::find(left_out.begin(), left_out.end(), name) != left_out.end();
  };
  CHECK(has("own.replica_0/steps.jsonl (results.steps)"));
  CHECK(has("own.replica_3/requests.jsonl (results.requests)"));
}

TEST_CASE("a chosen replica's result is that of its own engine", "[fleet][figures]") {
  const ScratchFolder scratch;
  const std::string scenario = scratch.path() + "/kinds.yaml";
  write_file(scenario, kTwoKinds);
  const std::string out = scratch.path() + "/out";
  const CommandResult result = run_metronome(fmt::format("run '{}' -q --out '{}'", scenario, out));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const Json whole = Json::parse(read_text_file(out + "/result.json"));
  CHECK(whole.at("steps_kept") == false);
  CHECK(contains(whole.at("formulas").at("percentiles").get<std::string>(), "histograms"));
  const auto check = [&](const std::string& replica, const std::string& policy,
                         const std::string& hardware, double price) {
    const Json own = Json::parse(read_text_file(out + "/replica_" + replica + "/result.json"));
    CAPTURE(replica);
    CHECK(own.at("label").get<std::string>() == "kinds replica " + replica);
    CHECK(own.at("policy").get<std::string>() == policy);
    CHECK(contains(own.at("hardware").get<std::string>(), hardware));
    CHECK(own.at("price_per_gpu_hour").get<double>() == price);
    CHECK(own.at("request_rate") == "inf");
    CHECK(own.at("digest").is_null());
    CHECK(own.at("scenario") == whole.at("scenario"));
    CHECK(own.at("description") == "two kinds");
    CHECK(!own.contains("steps_kept"));
  };
  check("0", "vllm", "h100", 2);
  check("3", "sglang", "h200", 10);
  const CommandResult refused = run_metronome(fmt::format("diagnose '{}'", out));
  CHECK(refused.exit_code == 2);
  CHECK(contains(refused.err, "fleet.keep_steps: true"));
  CHECK(run_metronome(fmt::format("diagnose '{}/replica_3'", out)).exit_code == 0);
}

// Draws are figures of the same kind as the run's own.
TEST_CASE("bands of a fleet that keeps no steps", "[fleet][figures]") {
  FleetBackend backend;
  Scenario scenario = scenario_of(kTwoKinds);
  scenario.results.bands = 2;
  std::vector<Summary> draws;
  const auto draw_one = [&draws, &backend](PreparedVariant& variant) {
    VariantOutcome outcome = run_variant(backend, variant, nullptr, {});
    draws.push_back(outcome.result.summary);
    return outcome;
  };
  std::vector<PreparedVariant> variants = prepare_variants(backend, {scenario});
  PreparedVariant& own = variants.front();
  VariantOutcome outcome = draw_one(own);
  add_bands(backend, own, {}, outcome);
  for (int n = 0; n < 2; ++n) {
    ++scenario.seed;
    draw_one(prepare_variants(backend, {scenario}).front());
  }
  if (const std::optional<TimeAccuracy>& accuracy = outcome.result.info.accuracy) {
    for (const double factor : {1 + accuracy->tpot.low, 1 + accuracy->tpot.high}) {
      own.run->scale_steps(factor);
      draw_one(own);
    }
  }
  const FigureBands wanted = figure_bands(draws);
  REQUIRE(outcome.result.bands.figures.size() == wanted.figures.size());
  for (std::size_t i = 0; i < wanted.figures.size(); ++i) {
    const FigureBand& band = outcome.result.bands.figures[i];
    CAPTURE(band.key);
    CHECK(band.key == wanted.figures[i].key);
    if (contains(band.key, "ttft")) continue;  // has a band of its own
    CHECK(band.low == wanted.figures[i].low);
    CHECK(band.high == wanted.figures[i].high);
  }
}

// The same files with and without the steps, but for what the figures do not know.
TEST_CASE("files of a fleet that keeps the steps of one replica", "[fleet][figures]") {
  const ScratchFolder scratch;
  const std::string scenario = scratch.path() + "/fleet.yaml";
  write_file(scenario, random_case(1).text);
  const auto files = [&](const std::string& name, const std::string& options) {
    const std::string out = scratch.path() + "/" + name;
    const CommandResult result =
        run_metronome(fmt::format("run '{}' -q --out '{}' {}", scenario, out, options));
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    return folder_content(out);
  };
  const std::map<std::string, std::string> one = files("one", "--steps-of 1 --threads 1");
  for (const char* const name :
       {"result.json", "requests.jsonl", "replica_1/result.json", "replica_1/requests.jsonl",
        "replica_1/steps.jsonl", "replica_1/trace.json", "report.html", "summary.json"}) {
    CAPTURE(name);
    CHECK(one.contains(name));
  }
  CHECK(!one.contains("steps.jsonl"));
  CHECK(!one.contains("replica_0/result.json"));
  CHECK(one == files("two", "--steps-of 1 --threads 2"));
  CHECK(one == files("four", "--steps-of 1 --threads 4"));
  const std::map<std::string, std::string> none = files("none", "--steps-of none");
  CHECK(none.at("requests.jsonl") == one.at("requests.jsonl"));
  CHECK(none.size() == 4);
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
