// SPDX-License-Identifier: Apache-2.0
// Sessions: requests that continue earlier ones.
#include <algorithm>
#include <string>
#include <vector>

#include "core/metrics/run_record.h"
#include "core/metrics/summary.h"
#include "core/run/prepared_variant.h"
#include "core/scenario/scenario.h"
#include "core/workload/session_arrivals.h"
#include "core/workload/workload_profile.h"
#include "reports/files/result_files.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "study/run/variant_run.h"
#include "tests/catch.h"
#include "tests/core/workload/workload_helpers.h"

namespace metronome::testing::TEST_FILE {
namespace {

constexpr const char* kChat =
    "{sessions: {kind: chat, num_sessions: 3, turns: {value: 3}, think_time_ms: {value: 2000}}, "
    "arrivals: {process: constant, rate: 0.5}, prompt_tokens: {value: 100}, "
    "output_tokens: {value: 20}, prefix: {kind: groups, num_groups: 1, prefix_tokens: 640}}";

RunRecord simulate(const std::string& workload_yaml, const std::string& more = "",
                   std::uint64_t seed = 7) {
  const Scenario scenario =
      parse_scenario("model: llama-3.2-1b\nhardware: h100-sxm\nseed: " + std::to_string(seed) +
                         "\nscheduler: {policy: vllm}\nengine: {max_model_len: 4096}\nworkload: " +
                         workload_yaml + "\n" + more,
                     "s.yaml", {})
          .variants.front();
  Simulation simulation = prepare_simulation(scenario);
  const Workload workload = make_workload(scenario.workload, scenario.seed);
  RunRecorder recorder(workload.requests.size());
  EventSink* const sinks[] = {&recorder};
  VirtualClock clock;
  simulation.run(workload, clock, sinks, {});
  return recorder.finish();
}

TEST_CASE("a turn's prompt has all that came before", "[core][workload]") {
  const Workload workload = make(kChat);
  REQUIRE(workload.requests.size() == 9);
  CHECK(workload.session_begin == std::vector<std::uint32_t>{0, 3, 6, 9});
  for (std::size_t s = 0; s < 3; ++s) {
    CHECK(workload.requests[3 * s].arrival == static_cast<TimeNs>(2 * (s + 1)) * kNsPerSecond);
    for (std::size_t turn = 0; turn < 3; ++turn) {
      const std::size_t i = 3 * s + turn;
      CHECK(workload.requests[i].num_prompt_tokens ==
            640 + 100 + static_cast<std::int32_t>(turn) * 120);
      CHECK(workload.requests[i].max_output_tokens == 20);
      CHECK(workload.delays[i] == (turn == 0 ? 0 : 2 * kNsPerSecond));
    }
  }
}

TEST_CASE("an agent calls tools before it answers", "[core][workload]") {
  const Workload workload = make(
      "{sessions: {kind: agent, num_sessions: 2, tool_calls: {value: 2}, call_tokens: "
      "{value: 5}, tool_tokens: {value: 300}, tool_time_ms: {value: 700}}, arrivals: {rate: "
      "1}, prompt_tokens: {value: 100}, output_tokens: {value: 20}}");
  REQUIRE(workload.requests.size() == 6);
  const std::int32_t prompts[] = {100, 405, 710};
  const std::int32_t outputs[] = {5, 5, 20};
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(workload.requests[i].num_prompt_tokens == prompts[i % 3]);
    CHECK(workload.requests[i].max_output_tokens == outputs[i % 3]);
    CHECK(workload.delays[i] == (i % 3 == 0 ? 0 : 700 * kNsPerMs));
  }
}

TEST_CASE("a turn is sent when its user has read and thought", "[core][workload]") {
  const RunRecord record = simulate(kChat);
  REQUIRE(record.requests.size() == 9);
  std::vector<TimeNs> starts, ends;
  for (const RequestRecord& request : record.requests) {
    CHECK(request.completed());
    starts.push_back(request.arrival);
    ends.push_back(request.ended);
  }
  // Every arrival but those of the three first turns is 2 s after some end.
  std::size_t num_followers = 0;
  for (const TimeNs start : starts) {
    num_followers += std::count(ends.begin(), ends.end(), start - 2 * kNsPerSecond) > 0 ? 1 : 0;
  }
  CHECK(num_followers == 6);
  CHECK(std::is_sorted(starts.begin(), starts.end()));
}

TEST_CASE("a turn finds its history in the cache, answers included", "[core][workload]") {
  const RunRecord record = simulate(kChat);
  std::vector<std::int32_t> cached;
  for (const RequestRecord& request : record.requests)
    cached.push_back(request.num_prefix_hit_tokens);
  std::sort(cached.begin(), cached.end());
  // Blocks of 16 tokens. The first session begins cold; the others find the shared prefix of 640.
  // Then 740 + 19 computed tokens are 47 full blocks, and 860 + 19 are 54.
  CHECK(cached == std::vector<std::int32_t>{0, 640, 640, 752, 752, 752, 864, 864, 864});
}

TEST_CASE("sessions are deterministic and follow the seed", "[core][workload]") {
  const std::string drawn =
      "{sessions: {kind: chat, num_sessions: 20, turns: {distribution: uniform, min: 1, max: 5}, "
      "think_time_ms: {distribution: lognormal, mean: 3000, std: 2000}}, arrivals: {rate: 2}, "
      "prompt_tokens: {distribution: lognormal, mean: 80, std: 60}, output_tokens: {distribution: "
      "normal, mean: 60, std: 20}}";
  const auto ends = [&](std::uint64_t seed) {
    std::vector<TimeNs> times;
    for (const RequestRecord& request : simulate(drawn, "", seed).requests) {
      times.push_back(request.ended);
    }
    return times;
  };
  CHECK(ends(1) == ends(1));
  CHECK(ends(1) != ends(2));
}

TEST_CASE("a closed loop keeps as many sessions as it has users", "[core][workload]") {
  const RunRecord record = simulate(
      "{sessions: {kind: chat, num_sessions: 6, turns: {value: 2}, think_time_ms: {value: 10}}, "
      "arrivals: {process: closed_loop, concurrency: 2}, prompt_tokens: {value: 100}, "
      "output_tokens: {value: 20}}");
  CHECK(record.requests.size() == 12);
  SummaryOptions options;
  CHECK(summarize(record, options).max_concurrent_requests == 2);
}

TEST_CASE("a session is over when a turn fails", "[core][workload]") {
  // The third turn's prompt of 2500 + 3 * 600 tokens is longer than the model's 4096.
  const RunRecord record = simulate(
      "{sessions: {kind: chat, num_sessions: 2, turns: {value: 5}, think_time_ms: {value: 10}}, "
      "arrivals: {rate: 10}, prompt_tokens: {value: 1500}, output_tokens: {value: 100}}");
  // Turns of 1500, 3100 and 4700 tokens: the third one never fits, and none follows.
  std::size_t num_sent = 0, num_completed = 0;
  for (const RequestRecord& request : record.requests) {
    num_sent += request.num_prompt_tokens > 0 ? 1 : 0;
    num_completed += request.completed() ? 1 : 0;
  }
  CHECK(num_completed == 4);
  CHECK(num_sent == 6);
}

TEST_CASE("the profile of sessions tells new tokens from history", "[core][workload]") {
  const WorkloadProfile profile = profile_of(make(kChat));
  CHECK(profile.num_requests == 9);
  CHECK(profile.session_requests.mean == 3);
  CHECK(profile.new_tokens.total == 3 * (740 + 100 + 100));
  CHECK(profile.prompt_tokens.total == 3 * (740 + 860 + 980));
  CHECK(profile.shared_tokens == 2 * 640 + 3 * (760 + 880));
  CHECK(profile.last_arrival == 6 * kNsPerSecond);
  CHECK(profile.requests_per_s == 1.5);
}

TEST_CASE("the profile of prompts finds shared beginnings", "[core][workload]") {
  const WorkloadProfile groups = profile_of(
      make("{num_requests: 5, arrivals: {rate: 1}, prompt_tokens: {value: 10}, output_tokens: "
           "{value: 2}, prefix: {kind: groups, num_groups: 1, prefix_tokens: 30}}"));
  CHECK(groups.shared_tokens == 4 * 30);
  CHECK(groups.prompt_tokens.total == 200);
  CHECK(groups.requests_per_s == 1.0);
  const WorkloadProfile none =
      profile_of(make("{num_requests: 5, arrivals: {process: burst}, prompt_tokens: {value: 10}, "
                      "output_tokens: {value: 2}}"));
  CHECK(none.shared_tokens == 0);
  CHECK_FALSE(none.requests_per_s);
  const CountFigures figures = figures_of({5, 1, 2, 3, 4});
  CHECK(figures.p50 == 3);
  CHECK(figures.p90 == 5);
  CHECK(figures.mean == 3);
}

TEST_CASE("sessions that are described wrongly", "[core][workload]") {
  const auto error = [](const std::string& sessions, const std::string& more = "") {
    return error_of([&] {
      read_config(
          "{arrivals: {rate: 1}, prompt_tokens: {value: 1}, output_tokens: {value: 1}, "
          "sessions: {" +
          sessions + "}" + more + "}");
    });
  };
  CHECK(error("kind: chat, num_sessions: 2") ==
        "w.yaml:1: workload.sessions.turns: missing; kind chat needs it");
  CHECK(error("kind: chat, num_sessions: 2, turns: {value: 2}, think_time_ms: {value: 1}",
              ", num_requests: 3") ==
        "w.yaml:1: workload.num_requests: not used with sessions, which have a number of turns; "
        "give sessions.num_sessions");
  CHECK(error("kind: chat, num_sessions: 2, turns: {value: 2}, think_time_ms: {value: 1}, "
              "tool_calls: {value: 1}") ==
        "w.yaml:1: workload.sessions.tool_calls: not used by kind chat; it belongs to agent");
  CHECK(error("num_sessions: 2") ==
        "w.yaml:1: workload.sessions.num_sessions: not used by kind none; it belongs to chat, "
        "agent");
  CHECK(error("kind: agent, num_sessions: 2, tool_calls: {value: 1}, call_tokens: {value: 1}, "
              "tool_tokens: {value: 1}, tool_time_ms: {value: 1}, turns: {value: 2}") ==
        "w.yaml:1: workload.sessions.think_time_ms: missing; turns need it");
}

TEST_CASE("sessions end within the longest simulated time", "[core][workload]") {
  const auto error = [](const std::string& sessions, const std::string& arrivals) {
    return error_of([&] {
      make("{sessions: {num_sessions: 2, " + sessions + "}, arrivals: {" + arrivals +
           "}, prompt_tokens: {value: 1}, output_tokens: {value: 1}}");
    });
  };
  const std::string pauses = "kind: chat, think_time_ms: {value: 100000000}, turns: {value: ";
  const std::string tools =
      "kind: agent, call_tokens: {value: 1}, tool_tokens: {value: 1}, tool_time_ms: "
      "{value: 100000000}, tool_calls: {value: ";
  // 9,999 pauses of 100,000 s after a start at 2 s are within 10^9 s; 10,000 are not.
  CHECK(error(pauses + "10000}", "process: constant, rate: 1").empty());
  CHECK(error(pauses + "10001}", "process: constant, rate: 1") ==
        "workload.sessions: the last request would arrive after 1000000002.000000 s; at most "
        "1000000000 s");
  CHECK(error(tools + "9999}", "rate: 1").empty());
  CHECK(contains(error(tools + "10001}", "rate: 1"), "at most 1000000000 s"));
  const std::string loop = "process: closed_loop, concurrency: 1";
  CHECK(error(pauses + "3001}", loop).empty());
  CHECK(contains(error(pauses + "6001}", loop), "at most 1000000000 s"));
}

TEST_CASE("turns after a failed one are counted", "[core][workload]") {
  // Prompts of 740, 860 and 980 tokens: the second is too long, and nobody sends the third.
  ScenarioFile file = parse_scenario(
      "model: llama-3.2-1b\nhardware: h100-sxm\nscheduler: {policy: vllm}\n"
      "engine: {max_model_len: 800}\nworkload: " +
          std::string(kChat),
      "s.yaml", {});
  SimulatedBackend backend;
  std::vector<PreparedVariant> variants = prepare_variants(backend, std::move(file.variants));
  const VariantOutcome outcome = run_variant(backend, variants.front(), nullptr, {});
  CHECK(outcome.result.summary.completed == 3);
  CHECK(outcome.result.summary.never_fits == 3);
  CHECK(outcome.warnings.back() ==
        "3 of 9 requests were not sent: an earlier one of their session failed");
  CHECK(contains(result_json(outcome.result), "\"unsent\": 3,"));
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
