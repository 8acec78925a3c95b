// SPDX-License-Identifier: Apache-2.0
// Causes of a run of several engines: the router's, and each engine's own.
#include <string>

#include "core/metrics/first_tokens.h"
#include "core/metrics/replica_record.h"
#include "reports/files/result_reader.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

// Two replicas of one slot each. Every second request is long, so round robin gives all long ones
// to replica 0, which has a queue while replica 1 is idle.
struct Fleet {
  ScratchFolder folder;
  std::string out = folder.path() + "/out";

  explicit Fleet(const std::string& router, int num_slots = 1) {
    std::string trace = "arrived_at,num_prefill_tokens,num_decode_tokens\n";
    for (int i = 0; i < 20; ++i) {
      trace += std::to_string(0.2 * i) + (i % 2 == 0 ? ",200,150\n" : ",200,2\n");
    }
    folder.write("trace.csv", trace);
    const std::string scenario = folder.write(
        "fleet.yaml", "model: llama-3.1-8b\nhardware: h100-sxm\nengine: {max_num_seqs: " +
                          std::to_string(num_slots) +
                          "}\n"
                          "scheduler: {policy: vllm}\nfleet: {replicas: 2, router: " +
                          router + "}\nworkload: {trace: {file: trace.csv, format: vidur}}\n");
    const CommandResult done = run_metronome("run '" + scenario + "' -q --out '" + out + "'");
    INFO(done.err);
    REQUIRE(done.exit_code == 0);
  }
};

}  // namespace

TEST_CASE("a queue beside an idle replica is the router's", "[diagnose][fleet]") {
  const Fleet fleet("round_robin");
  const CommandResult done = run_metronome("diagnose '" + fleet.out + "'");
  INFO(done.out << done.err);
  REQUIRE(done.exit_code == 0);
  CHECK(contains(done.out, "The router round_robin made first tokens late: "));
  CHECK(contains(done.out, "replica 1 had nobody waiting."));
  CHECK(contains(done.out, "With the router least_loaded, simulated: TTFT p50 "));
  CHECK(contains(done.out, "Replica 0: 1 requests run, as many as may"));
}

TEST_CASE("waits in front of all replicas are the gateway's", "[diagnose][fleet]") {
  const Fleet fleet("least_loaded, gateway: {max_in_flight: 1}", 64);
  const CommandResult done = run_metronome("diagnose '" + fleet.out + "' --no-replay");
  INFO(done.out << done.err);
  REQUIRE(done.exit_code == 0);
  CHECK(contains(done.out, "gateway: Requests waited in the gateway, which lets 1 request in"));
}

TEST_CASE("replicas that share their queue well blame no router", "[diagnose][fleet]") {
  const Fleet fleet("least_loaded", 64);
  const CommandResult done = run_metronome("diagnose '" + fleet.out + "' --no-replay");
  INFO(done.out << done.err);
  REQUIRE(done.exit_code == 0);
  CHECK_FALSE(contains(done.out, "made first tokens late"));
  CHECK(contains(done.out, "The run had several engines"));
}

TEST_CASE("the record of a replica explains its first tokens exactly", "[metrics][fleet]") {
  const Fleet fleet("round_robin");
  const StoredRun run = read_result(fleet.out);
  REQUIRE(run.record.replicas.size() == 2);
  std::size_t num_steps = 0;
  std::size_t num_requests = 0;
  for (std::size_t r = 0; r < 2; ++r) {
    const RunRecord own = record_of_replica(run.record, r);
    num_steps += own.steps.size();
    REQUIRE(own.requests.size() == run.record.requests.size());
    const FirstTokens tokens(own, {1, 0, 0});
    for (std::size_t i = 0; i < own.requests.size(); ++i) {
      const bool is_own = run.record.replica_of[i] == static_cast<std::int32_t>(r);
      CHECK((own.requests[i].first_token != kNoTime) == is_own);
      if (!is_own) continue;
      ++num_requests;
      CHECK(tokens.parts()[i].total_ns() == own.requests[i].ttft_ns());
      CHECK(own.requests[i].ttft_ns() == run.record.requests[i].ttft_ns());
    }
    // Its tokens come at the ends of its own steps.
    for (std::size_t i = 0; i < own.requests.size(); ++i) {
      if (own.requests[i].first_token == kNoTime) continue;
      const TokenRun& first = own.runs_of(i).front();
      CHECK(own.steps.finished_at(static_cast<std::size_t>(first.first_step)) ==
            own.requests[i].first_token);
    }
  }
  CHECK(num_steps == run.record.steps.size());
  CHECK(num_requests == run.record.requests.size());
}

}  // namespace metronome::testing::TEST_FILE
