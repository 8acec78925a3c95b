// SPDX-License-Identifier: Apache-2.0
// Causes that a record shows, each in a run that has it and not in one without; and that the parts
// of every first token add up.
#include <algorithm>

#include "core/metrics/first_tokens.h"
#include "study/what_if/causes.h"
#include "tests/error_of.h"
#include "tests/study/what_if/what_if_place.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

std::vector<Cause> causes_of(const StoredRun& run) {
  const Scenario scenario = scenario_of(run);
  return find_causes({.record = &run.record,
                      .summary = &run.result.summary,
                      .scenario = &scenario,
                      .num_blocks = run.result.info.num_blocks,
                      .is_simulated = true});
}

std::string text_of(const StoredRun& run, std::string_view name) {
  for (const Cause& cause : causes_of(run)) {
    if (cause.name == name) return cause.text;
  }
  return {};
}

TEST_CASE("the parts of every first token add up to it", "[cli][whatif]") {
  const Place place;
  for (const char* options :
       {"--set scheduler.policy=vllm --set engine.async_depth=2",
        "--set scheduler.policy=sglang --set workload.arrivals.rate=80",
        "--set scheduler.policy=llama_cpp --set engine.max_num_seqs=2",
        "--set scheduler.policy=tensorrt_llm --set kv_cache.num_blocks=300 "
        "--set workload.arrivals.rate=60",
        "--set scheduler.policy=vllm --set kv_cache.num_blocks=200 "
        "--set workload.output_tokens.value=200 --set workload.arrivals.rate=60",
        "--set scheduler.policy=vllm --set cost_model.frontend.fixed_ms=3"}) {
    INFO(options);
    const StoredRun run = place.run(std::string("--set workload.num_requests=80 ") + options);
    const FirstTokens tokens(run.record, {8, run.result.info.num_blocks, 16});
    FirstTokenParts sum;
    std::int64_t num = 0;
    for (std::size_t i = 0; i < run.record.requests.size(); ++i) {
      if (!tokens.has_first_token(i)) continue;
      ++num;
      INFO(i);
      CHECK(tokens.parts()[i].total_ns() == run.record.requests[i].ttft_ns());
      for (const TimeNs part : tokens.parts()[i].ns) CHECK(part >= 0);
    }
    CHECK(tokens.beyond(-1, sum) == num);
    CHECK(num > 0);
  }
}

TEST_CASE("steps beyond the captured graphs are counted", "[cli][whatif]") {
  const Place place;
  const std::string options =
      "--set scheduler.policy=vllm --set engine.max_num_seqs=64 --set "
      "workload.arrivals.process=burst --set workload.num_requests=64 "
      "--set workload.output_tokens.value=100 --set scheduler.max_num_batched_tokens=2048 ";
  const StoredRun run = place.run(options + "--set cost_model.max_graph_tokens=16");
  const std::string text = text_of(run, "graphs");
  INFO(text);
  CHECK(contains(text, " of the decode steps ("));
  CHECK(contains(text, "up to 64 tokens, and the largest graph has 16."));
  CHECK(contains(text, "--max-cudagraph-capture-size"));
  CHECK(text_of(place.run(options + "--set cost_model.max_graph_tokens=64"), "graphs").empty());
}

TEST_CASE("a queue that grows is told from one that does not", "[cli][whatif]") {
  const Place place;
  const std::string options =
      "--set scheduler.policy=vllm --set workload.num_requests=400 "
      "--set engine.max_num_seqs=4 --set workload.output_tokens.value=100 ";
  const StoredRun over = place.run(options + "--set workload.arrivals.rate=60");
  INFO(text_of(over, "queue"));
  CHECK(contains(text_of(over, "queue"), "The queue grows until requests stop coming: "));
  CHECK(text_of(place.run(options + "--set workload.arrivals.rate=2"), "queue").empty());
}

TEST_CASE("waits for one of the running requests to end are named", "[cli][whatif]") {
  const Place place;
  const std::string options =
      "--set scheduler.policy=vllm --set workload.num_requests=200 "
      "--set workload.output_tokens.value=100 --set workload.arrivals.rate=20 ";
  const std::string few = text_of(place.run(options + "--set engine.max_num_seqs=4"), "slots");
  INFO(few);
  CHECK(contains(few, "4 requests run, as many as may: "));
  CHECK(contains(few, "--max-num-seqs"));
  CHECK(text_of(place.run(options + "--set engine.max_num_seqs=256"), "slots").empty());
}

TEST_CASE("urgent requests that wait for others are named", "[cli][whatif]") {
  const Place place;
  const std::string options =
      "--set scheduler.policy=vllm --set workload.num_requests=200 --set engine.max_num_seqs=4 "
      "--set workload.output_tokens.value=100 --set workload.arrivals.rate=40 "
      "--set 'workload.priority={values: [0, 10], weights: [1, 9]}' ";
  const std::string fcfs = text_of(place.run(options), "priority");
  INFO(fcfs);
  CHECK(contains(fcfs, "Priority inversion: "));
  CHECK(contains(fcfs, "--scheduling-policy fcfs"));
  const std::string ordered =
      text_of(place.run(options + "--set scheduler.scheduling_policy=priority"), "priority");
  INFO(ordered);
  CHECK(contains(ordered, "vLLM preempts nobody where requests wait for a slot"));
}

TEST_CASE("drafts that cost more than they bring are named", "[cli][whatif]") {
  const Place place;
  const std::string options =
      "--set scheduler.policy=vllm --set engine.max_num_seqs=64 --set "
      "workload.arrivals.process=burst --set workload.num_requests=64 "
      "--set speculative.method=eagle --set speculative.num_speculative_tokens=4 ";
  const std::string poor = text_of(
      place.run(options + "--set 'speculative.acceptance={kind: rate, rate: [0.2]}'"), "drafts");
  INFO(poor);
  CHECK(contains(poor, " draft tokens were rejected. "));
  CHECK(text_of(place.run(options + "--set 'speculative.acceptance={kind: rate, rate: [0.95]}'"),
                "drafts")
            .empty());
}

TEST_CASE("prompts in steps of their own are named for SGLang", "[cli][whatif]") {
  const Place place;
  const std::string options = std::string(kLongPrompts) + "--set scheduler.policy=sglang ";
  const std::string apart = text_of(place.run(options), "apart");
  INFO(apart);
  CHECK(contains(apart, "Prompts are computed in steps of their own: "));
  CHECK(contains(apart, "--enable-mixed-chunk"));
  CHECK(text_of(place.run(options + "--set scheduler.enable_mixed_chunk=true"), "apart").empty());
}

TEST_CASE("a prefix cache that is too small has a working set", "[cli][whatif]") {
  const Place place;
  const std::string options =
      "--set scheduler.policy=vllm --set workload.num_requests=120 "
      "--set workload.prefix.kind=groups --set workload.prefix.num_groups=12 --set "
      "workload.prefix.prefix_tokens=1500 --set workload.arrivals.rate=10 ";
  const StoredRun run = place.run(options + "--set kv_cache.num_blocks=400");
  const WhatIf what_if = find(run, {.goals = {.ttft_ms = 5}});
  const std::string text = what_if_text(what_if, 1000);
  INFO(text);
  REQUIRE(what_if.misses.has_value());
  REQUIRE(what_if.misses->working_set > 400);
  CHECK(what_if.misses->possible_tokens > what_if.misses->hit_tokens);
  CHECK(contains(text, "The prefix cache is too small: "));
  // A run with that many blocks finds nearly all.
  const StoredRun large = place.run(
      options + "--set kv_cache.num_blocks=" + std::to_string(what_if.misses->working_set), "l");
  std::int64_t hits = 0;
  for (const RequestRecord& request : large.record.requests) hits += request.num_prefix_hit_tokens;
  CHECK(static_cast<double>(hits) >= 0.99 * static_cast<double>(what_if.misses->possible_tokens));
}

TEST_CASE("prefixes that share no whole block are told from those never seen", "[cli][whatif]") {
  const Place place;
  // 1,500 tokens are 11 blocks of 128 and 92 more.
  const StoredRun run = place.run(
      "--set scheduler.policy=vllm --set workload.num_requests=60 --set kv_cache.block_size=128 "
      "--set workload.prefix.kind=groups --set workload.prefix.num_groups=4 --set "
      "workload.prefix.prefix_tokens=1500 --set workload.arrivals.rate=1 "
      "--set kv_cache.num_blocks=4000");
  const WhatIf what_if = find(run, {.goals = {.ttft_ms = 5}});
  REQUIRE(what_if.misses.has_value());
  const PrefixMisses& misses = *what_if.misses;
  std::int64_t num_hits = 0;
  for (const RequestRecord& request : run.record.requests) {
    num_hits += request.num_prefix_hit_tokens > 0 ? 1 : 0;
  }
  REQUIRE(num_hits > 30);
  CHECK(misses.possible_tokens == misses.hit_tokens);
  CHECK(misses.hit_tokens == num_hits * 11 * 128);
  CHECK(misses.cut_tokens == num_hits * 92);
  CHECK((misses.cut_ms > 0 && misses.cut_ms < misses.own_prefill_ms));
  CHECK(misses.evicted_ms == 0);
  CHECK(contains(what_if_text(what_if, 1000), "that share no whole block of 128 tokens"));
}

}  // namespace TEST_FILE
