// SPDX-License-Identifier: Apache-2.0
// Cost models of kind `replay`: the steps of a run given back, and what was never made said so.

#include "core/base/json.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/metrics/recorded_steps.h"
#include "core/model/model_catalogue.h"
#include "reports/files/result_reader.h"
#include "sim/fitted/fitted_file.h"
#include "sim/measured_model.h"
#include "sim/replay/replay_file.h"
#include "study/recorded/logged_run.h"
#include "tests/allocations.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/draws.h"
#include "tests/error_of.h"
#include "tests/sim/fitted/fitted_lab.h"

namespace metronome::testing::TEST_FILE {
namespace {

ModelConfig model() { return find_model("llama-3.2-1b", {}); }

// A fitted model that covers everything, whose times scatter by a fifth.
FittedModel noisy_model() {
  FittedModel fitted = known_model();
  fitted.host_gap_chunk_ns = 3'000;
  scatter_evenly(fitted, 0.9, 0.2);
  return fitted;
}

CostModelFile file_of(const std::vector<RecordedStep>& steps) {
  CostModelFile file;
  file.name = "runs/a.json";
  file.kind = "replay";
  file.hardware = "h200";
  file.model = "llama-3.2-1b";
  file.body = std::make_shared<const Json>(replay_body(steps, noisy_model(), model()));
  return file;
}

std::unique_ptr<CostModel> made(const CostModelFile& file, const CostModelConfig& config = {}) {
  return make_cost_model(file, model(), find_hardware("h200", {}), config);
}

StepPlan plan_of(std::int64_t step, const std::vector<ScheduledChunk>& chunks) {
  StepPlan plan;
  plan.step_index = step;
  plan.chunks = chunks;
  plan.passes = {{0, static_cast<std::int32_t>(chunks.size())}};
  for (const ScheduledChunk& chunk : chunks) {
    (chunk.kind == ChunkKind::Decode ? plan.num_decode_tokens : plan.num_prefill_tokens) +=
        chunk.num_tokens;
  }
  return plan;
}

ScheduledChunk decode(std::uint32_t request, std::int32_t position) {
  return {RequestId{request}, position, 1, ChunkKind::Decode, true};
}
ScheduledChunk prefill(std::uint32_t request, std::int32_t position, std::int32_t num_tokens,
                       bool samples = false) {
  return {RequestId{request}, position, num_tokens, ChunkKind::Prefill, samples};
}

// Requests in bursts with pauses between, preempted now and then.
std::string bursts(std::uint64_t seed, int async_depth, const std::string& policy) {
  return "seed: " + std::to_string(seed) + R"(
model: llama-3.2-1b
engine: {max_num_seqs: 12, max_model_len: 4096, async_depth: )" +
         std::to_string(async_depth) + R"(}
kv_cache: {num_blocks: 180}
scheduler: )" +
         policy +
         R"(
cost_model: {file: noisy.json, noise: calibrated, cold_start_ms: 40}
workload:
  num_requests: 60
  arrivals: {process: gamma, rate: 9, burstiness: 0.15}
  prompt_tokens: {distribution: uniform, min: 10, max: 1500}
  output_tokens: {distribution: uniform, min: 1, max: 60}
)";
}

constexpr const char* kPolicies[] = {
    "{policy: vllm, max_num_batched_tokens: 512}",
    "{policy: chunked, prefill_chunk_size: 200}",
    "{policy: single_prefill, max_num_batched_tokens: 256}",
};

std::string read_run(const ScratchFolder& folder, const std::string& file) {
  return read_text_file(folder.path() + "/" + file);
}

// Runs `scenario` as "first", makes a replay of that, and returns the command that runs the
// scenario again under it.
std::string recorded_and_kept(const ScratchFolder& folder, const std::string& scenario) {
  CostModelFile file;
  file.kind = "fitted";
  file.hardware = "h200";
  file.model = "llama-3.2-1b";
  file.body = std::make_shared<const Json>(fitted_body(noisy_model(), model()));
  folder.write("noisy.json", file.to_json());
  const std::string path = folder.write("bursts.yaml", scenario);
  REQUIRE(run_metronome("run '" + path + "' -q --out '" + folder.path() + "/first'").exit_code ==
          0);
  const CommandResult kept =
      run_metronome("calibrate --from '" + folder.path() + "/first' --kind replay --out '" +
                    folder.path() + "/replay.json'");
  INFO(kept.err);
  REQUIRE(kept.exit_code == 0);
  CHECK(contains(kept.out, "steps can be replayed"));
  return "run '" + path + "' -q --set cost_model.noise=none --set cost_model.file='" +
         folder.path() + "/replay.json' ";
}

}  // namespace

TEST_CASE("a step's composition is what its time depends on", "[replay]") {
  const StepPlan plan = plan_of(4, {decode(0, 70), decode(1, 9), prefill(2, 512, 128)});
  const std::uint64_t known = step_composition(plan);
  CHECK(step_composition(plan_of(9, {prefill(7, 512, 128), decode(3, 9), decode(5, 70)})) == known);
  StepPlan other = plan;
  other.passes = {{0, 2}, {2, 3}};
  const std::uint64_t separate = step_composition(other);
  CHECK(separate != known);
  other.passes = {{2, 3}, {0, 2}};
  CHECK(step_composition(other) == separate);
  const auto differs = [&](const std::vector<ScheduledChunk>& chunks) {
    return step_composition(plan_of(4, chunks)) != known;
  };
  CHECK(differs({decode(0, 71), decode(1, 9), prefill(2, 512, 128)}));
  CHECK(differs({decode(0, 70), decode(1, 9), prefill(2, 512, 127)}));
  CHECK(differs({decode(0, 70), decode(1, 9), prefill(2, 512, 128, true)}));
  CHECK(differs({decode(0, 70), decode(1, 9)}));
  CHECK(differs({decode(0, 70), decode(1, 9), decode(1, 9), prefill(2, 512, 128)}));
  // Sums of positions are not enough, nor a prefill chunk of one token for a decode.
  CHECK(step_composition(plan_of(0, {decode(0, 70), decode(1, 10)})) !=
        step_composition(plan_of(0, {decode(0, 71), decode(1, 9)})));
  CHECK(step_composition(plan_of(0, {decode(0, 70)})) !=
        step_composition(plan_of(0, {prefill(0, 70, 1, true)})));
}

TEST_CASE("compositions of a million drawn plans differ", "[replay]") {
  const std::uint64_t seed = 4;
  INFO("seed " << seed);
  Rng rng(seed, "plans");
  std::vector<std::uint64_t> all;
  for (std::int32_t position = 0; position < 1'000; ++position) {
    for (std::int32_t k = 0; k < 1'000; ++k) {
      all.push_back(step_composition(plan_of(0, {decode(0, 1'000 + position), prefill(1, k, 1)})));
    }
  }
  std::sort(all.begin(), all.end());
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
}

TEST_CASE("a replayed step takes its own time, else the nearest's of its composition", "[replay]") {
  const StepPlan a = plan_of(0, {decode(0, 70)});
  const StepPlan b = plan_of(0, {decode(0, 70), prefill(1, 0, 512)});
  const auto step = [](const StepPlan& plan, TimeNs device_ns, TimeNs gap_ns) {
    return RecordedStep{step_composition(plan), device_ns, gap_ns, false, kNoTime};
  };
  std::vector<RecordedStep> steps = {step(a, 100'000, 1'000),   step(b, 900'000, 2'000),
                                     step(a, 200'000, 3'000),   step(a, 300'000, kNoTime),
                                     step(b, 800'000, 900'000), step(a, 400'000, 4'000)};
  steps[4].is_gap_hidden = true;
  steps[4].decode_only_ns = 123;
  const auto replay = made(file_of(steps));
  const auto at = [&](StepPlan plan, std::int64_t index) {
    plan.step_index = index;
    const StepCost cost = replay->step_cost(plan);
    CHECK_FALSE(cost.is_extrapolated);
    CHECK(cost.total_ns == cost.linear_ns + cost.attention_ns + cost.comm_ns + cost.overhead_ns);
    CHECK(std::min({cost.linear_ns, cost.attention_ns, cost.comm_ns, cost.overhead_ns}) >= 0);
    return std::make_pair(cost.total_ns, replay->host_gap_ns(plan));
  };
  using Pair = std::pair<TimeNs, TimeNs>;
  CHECK(at(a, 0) == Pair(100'000, 1'000));
  CHECK(at(a, 2) == Pair(200'000, 3'000));
  CHECK(at(a, 3) == Pair(300'000, 123'000));  // nobody recorded the gap: the form's
  CHECK(at(a, 1) == Pair(100'000, 1'000));    // the earlier of two as near
  CHECK(at(a, 4) == Pair(300'000, 123'000));
  CHECK(at(a, 77) == Pair(400'000, 4'000));
  CHECK(at(b, 0) == Pair(900'000, 2'000));
  CHECK(at(b, 3) == Pair(800'000, 126'000));  // hidden: the host may have been ready earlier
  CHECK(replay->step_cost(a).decode_only_ns == 100'000);
  StepPlan later = b;
  later.step_index = 5;
  CHECK(replay->step_cost(later).decode_only_ns == 123);
  const TimeNs decodes = replay->step_cost(b).decode_only_ns;
  CHECK(decodes > 0);
  CHECK(decodes < 900'000);

  CostModelConfig config;
  config.host_gap_us = 7;
  CHECK(made(file_of(steps), config)->host_gap_ns(a) == 7'000);

  const StepPlan unseen = plan_of(1, {decode(0, 71), prefill(1, 0, 512)});
  CostModelFile fitted = file_of({});
  fitted.kind = "fitted";
  fitted.body = std::make_shared<const Json>(fitted_body(noisy_model(), model()));
  const auto form = made(fitted);
  CHECK_FALSE(form->step_cost(unseen).is_extrapolated);
  CHECK(replay->step_cost(unseen).is_extrapolated);
  CHECK(replay->step_cost(unseen).total_ns == form->step_cost(unseen).total_ns);
  CHECK(replay->host_gap_ns(unseen) == form->host_gap_ns(unseen));
  StepPlan unfinished = a;
  unfinished.passes.clear();
  CHECK(replay->host_gap_ns(unfinished) == form->host_gap_ns(a));
}

TEST_CASE("asking for a replayed step's time allocates nothing", "[replay]") {
  std::vector<RecordedStep> steps;
  std::vector<StepPlan> plans;
  for (std::int32_t i = 0; i < 100; ++i) {
    plans.push_back(plan_of(i, {decode(0, i), prefill(1, 0, 64)}));
    steps.push_back({step_composition(plans.back()), 1'000 + i, 5, false, kNoTime});
  }
  steps.resize(60);
  const auto replay = made(file_of(steps));
  replay->step_cost(plans[0]);
  TimeNs sum = 0;
  const std::int64_t before = num_allocations();
  for (const StepPlan& plan : plans) {
    sum += replay->step_cost(plan).total_ns + replay->host_gap_ns(plan);
  }
  CHECK(num_allocations() == before);
  CHECK(sum > 0);
}

TEST_CASE("a replay file gives back what was written, and says what is wrong with it", "[replay]") {
  const std::vector<RecordedStep> steps = {{0xfedcba9876543210u, 12, 34, true, 5},
                                           {7, 1'000'000'000'000, kNoTime, false, kNoTime},
                                           {0, 0, 0, false, kNoTime}};
  const CostModelFile file = file_of(steps);
  const CostModelFile again = parse_cost_model_file(file.to_json(), "again.json");
  CHECK(again.kind == "replay");
  CHECK(read_replay(again) == steps);
  const auto error_after = [&](auto change) {
    CostModelFile broken = file;
    Json body = *file.body;
    change(body);
    broken.body = std::make_shared<const Json>(body);
    return error_of([&] { made(broken); });
  };
  CHECK(contains(error_after([](Json& body) { body.erase("steps"); }),
                 "runs/a.json: body: steps: is missing"));
  CHECK(contains(error_after([](Json& body) { body["steps"][1][0] = "12"; }),
                 "is not a number of 16 hexadecimal digits"));
  CHECK(contains(error_after([](Json& body) { body["steps"][1][1] = -1; }), "-1 is out of range"));
  CHECK(contains(error_after([](Json& body) { body["steps"][1].push_back(1); }),
                 "has 6 columns; allowed: 5"));
  CHECK(contains(error_after([](Json& body) { std::swap(body["columns"][1], body["columns"][2]); }),
                 "runs/a.json: body: columns: is not"));
  CHECK(contains(error_after([](Json& body) { body["fitted"] = 3; }),
                 "runs/a.json: body: fitted: is not an object"));
  CHECK(contains(error_after([](Json& body) { body["fitted"]["form_ns"].erase("pair"); }),
                 "runs/a.json: body: fitted: form_ns: pair: is missing"));
  CHECK(contains(error_after([](Json& body) { body["fitted"]["shape"]["n_layers"] = 99; }),
                 "runs/a.json: body: fitted: shape: n_layers: is 99"));
}

TEST_CASE("a run under its own settings is given back to the nanosecond", "[replay]") {
  const std::uint64_t seed = GENERATE(range<std::uint64_t>(1, 4));
  const int async_depth = GENERATE(1, 2);
  const std::string policy = kPolicies[seed - 1];
  INFO("seed " << seed << ", async_depth " << async_depth << ", " << policy);
  const ScratchFolder folder;
  const std::string again = recorded_and_kept(folder, bursts(seed, async_depth, policy));
  REQUIRE(run_metronome(again + "--out '" + folder.path() + "/again'").exit_code == 0);
  for (const char* file : {"steps.jsonl", "requests.jsonl"}) {
    INFO(file);
    CHECK(read_run(folder, std::string("again/") + file) ==
          read_run(folder, std::string("first/") + file));
  }
  const Json first = Json::parse(read_run(folder, "first/result.json"));
  const Json result = Json::parse(read_run(folder, "again/result.json"));
  CHECK(result["steps_outside_calibration"] == 0);
  CHECK(result["digest"] == first["digest"]);
  CHECK(first["busy_share"].get<double>() < 0.95);  // there are pauses
  if (async_depth == 2 || seed != 1) return;
  CHECK(first["num_preemptions"].get<int>() > 0);
  const CommandResult judged = run_metronome("validate --same-decisions '" + folder.path() +
                                             "/first' '" + folder.path() + "/again' --json");
  INFO(judged.out << judged.err);
  REQUIRE(judged.exit_code == 0);
  const Json report = Json::parse(judged.out);
  CHECK(report["mean_abs_error"] == 0.0);
}

TEST_CASE("another chunk size is replayed where the run tells of it", "[replay]") {
  const ScratchFolder folder;
  const std::string again = recorded_and_kept(folder, bursts(2, 1, kPolicies[1]));
  REQUIRE(run_metronome(again + "--set scheduler.prefill_chunk_size=150 --out '" + folder.path() +
                        "/other'")
              .exit_code == 0);
  const StoredRun first = read_result(folder.path() + "/first");
  const StoredRun other = read_result(folder.path() + "/other");
  const auto times_of = [](const StoredRun& run) {
    std::multimap<std::uint64_t, TimeNs> times;
    for (const RecordedStep& step : replay_steps(run.record, {})) {
      times.emplace(step.composition, step.device_ns);
    }
    return times;
  };
  const auto known = times_of(first);
  std::int64_t num_flagged = 0;
  RecordedSteps steps(other.record, StepShape::Mixed);
  StepPlan plan;
  while (steps.next(plan)) {
    const StepEntry& entry = other.record.steps[steps.position()];
    const auto [begin, end] = known.equal_range(step_composition(plan));
    CHECK(entry.extrapolated == (begin == end));
    num_flagged += entry.extrapolated;
    const bool is_recorded = std::any_of(
        begin, end, [&](const auto& step) { return step.second == entry.duration_ns(); });
    if (entry.extrapolated == 0) CHECK(is_recorded);
  }
  const Json result = Json::parse(read_run(folder, "other/result.json"));
  CHECK(result["steps_outside_calibration"] == num_flagged);
  CHECK(num_flagged > 0);
  CHECK(num_flagged < static_cast<std::int64_t>(other.record.steps.size()));
}

TEST_CASE("what this machine computed is given back in simulation", "[replay]") {
  const ScratchFolder folder;
  const std::string path = folder.write("real.yaml", R"(seed: 5
model: tiny-llama
engine: {max_num_seqs: 6, max_model_len: 512}
kv_cache: {num_blocks: 400}
scheduler: {policy: chunked, prefill_chunk_size: 32}
workload:
  num_requests: 30
  arrivals: {process: burst}
  prompt_tokens: {distribution: uniform, min: 10, max: 120}
  output_tokens: {distribution: uniform, min: 2, max: 24}
)");
  const std::string real = folder.path() + "/real";
  REQUIRE(run_metronome("run '" + path + "' -q --backend=cpu --out '" + real + "'").exit_code == 0);
  const std::string file = folder.path() + "/replay.json";
  const CommandResult kept =
      run_metronome("calibrate --from '" + real + "' --kind replay --out '" + file + "'");
  INFO(kept.err);
  REQUIRE(kept.exit_code == 0);
  REQUIRE(run_metronome("run '" + path + "' -q --set cost_model.file='" + file + "' --out '" +
                        folder.path() + "/again'")
              .exit_code == 0);
  const StoredRun a = read_result(real);
  const StoredRun b = read_result(folder.path() + "/again");
  REQUIRE(a.record.steps.size() == b.record.steps.size());
  for (std::size_t i = 0; i < a.record.steps.size(); ++i) {
    CHECK(a.record.steps[i].started_at == b.record.steps[i].started_at);
    CHECK(a.record.steps.finished_at(i) == b.record.steps.finished_at(i));
    CHECK(b.record.steps[i].extrapolated == 0);
  }
  for (std::size_t i = 0; i < a.record.requests.size(); ++i) {
    CHECK(a.record.requests[i].first_token == b.record.requests[i].first_token);
    CHECK(a.record.requests[i].last_token == b.record.requests[i].last_token);
  }
}

TEST_CASE("a log of iterations is replayed where a scenario says whose they were", "[replay]") {
  const ScratchFolder folder;
  const std::string path = folder.write("served.yaml", R"(seed: 8
model: llama-3.2-1b
hardware: h200
engine: {max_num_seqs: 8, max_model_len: 4096, async_depth: 1}
scheduler: {policy: vllm, max_num_batched_tokens: 512}
workload:
  num_requests: 40
  arrivals: {process: burst}
  prompt_tokens: {distribution: uniform, min: 20, max: 900}
  output_tokens: {distribution: uniform, min: 2, max: 40}
)");
  REQUIRE(run_metronome("run '" + path + "' -q --out '" + folder.path() + "/served'").exit_code ==
          0);
  const StoredRun served = read_result(folder.path() + "/served");
  Rng rng(8, "iterations");
  std::string text;
  std::vector<TimeNs> took;
  for (std::size_t i = 0; i < served.record.steps.size(); ++i) {
    const StepEntry& step = served.record.steps[i];
    took.push_back(draw(rng, 2'000, 9'000) * kNsPerUs);
    text += "INFO [core.py:349] Iteration(" + std::to_string(i + 1) + "): " +
            composition_text(step.num_prefill_chunks, step.num_prefill_tokens,
                             step.num_decode_tokens, step.num_decode_tokens) +
            ", iteration elapsed time: " + std::to_string(to_ms(took.back())) + " ms\n";
  }
  const std::string log = folder.write("vllm.log", text);
  const std::string file = folder.path() + "/replay.json";
  const std::string calibrate =
      "calibrate --from '" + log + "' --kind replay --out '" + file + "' ";
  const CommandResult bare = run_metronome(calibrate + "--model llama-3.2-1b");
  CHECK(bare.exit_code == 2);
  CHECK(contains(bare.err, "--kind: replay cannot distinguish the steps of " + log));
  CHECK_FALSE(std::filesystem::exists(file));
  const CommandResult kept = run_metronome(calibrate + "--scenario '" + path + "'");
  INFO(kept.err);
  REQUIRE(kept.exit_code == 0);
  REQUIRE(run_metronome("run '" + path + "' -q --set cost_model.file='" + file + "' --out '" +
                        folder.path() + "/again'")
              .exit_code == 0);
  const StoredRun again = read_result(folder.path() + "/again");
  REQUIRE(again.record.steps.size() == took.size());
  for (std::size_t i = 0; i < took.size(); ++i) {
    CHECK(again.record.steps[i].duration_ns() == took[i]);
    CHECK(again.record.steps[i].extrapolated == 0);
    if (i == 0) continue;  // the log has no gaps: the hardware's
    CHECK(again.record.steps[i].started_at - again.record.steps.finished_at(i - 1) ==
          std::llround(kDefaultHostGapUs * 1e3));
  }
}

TEST_CASE("what cannot be replayed is refused", "[replay]") {
  const ScratchFolder folder;
  const std::string scenario =
      folder.write("small.yaml", std::string(kSmallScenario) + kTwoVariants);
  const std::string runs = folder.path() + "/runs";
  REQUIRE(
      run_metronome("run '" + scenario + "' -q --set workload.num_requests=40 --out '" + runs + "'")
          .exit_code == 0);
  const std::string file = folder.path() + "/replay.json";
  const auto error = [&](const std::string& arguments) {
    const CommandResult result = run_metronome(arguments);
    CHECK(result.exit_code == 2);
    CHECK_FALSE(std::filesystem::exists(folder.path() + "/out"));
    return result.err;
  };
  const std::string keep = "calibrate --out '" + file + "' --from '" + runs;
  CHECK(contains(error(keep + "' --kind replay"),
                 "--kind: replay stores the steps of one run, not of 2"));
  CHECK(contains(error(keep + "/whole' --kind median"),
                 "--kind: 'median' is unknown; allowed: corrected, fitted, replay"));
  CHECK_FALSE(std::filesystem::exists(file));
  CHECK(contains(error("calibrate --import profiles --kind replay"), "--kind: has no effect"));
  REQUIRE(run_metronome(keep + "/whole' --kind replay").exit_code == 0);
  CHECK(contains(error("run '" + scenario + "' --set cost_model.noise=calibrated --out '" +
                       folder.path() + "/out' --set cost_model.file='" + file + "'"),
                 "cost_model.noise: calibrated needs"));
}

}  // namespace metronome::testing::TEST_FILE
