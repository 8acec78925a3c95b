// SPDX-License-Identifier: Apache-2.0
// Causes that a record shows, each in a run that has it and not in one without; and that the parts
// of every first token add up.
#include <algorithm>

#include "core/metrics/first_tokens.h"
#include "study/what_if/causes.h"
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
  REQUIRE(what_if.thrash.has_value());
  REQUIRE(what_if.thrash->working_set > 400);
  CHECK(what_if.thrash->possible_tokens > what_if.thrash->hit_tokens);
  CHECK(contains(text, "The prefix cache is too small: "));
  // A run with that many blocks finds nearly all.
  const StoredRun large = place.run(
      options + "--set kv_cache.num_blocks=" + std::to_string(what_if.thrash->working_set), "l");
  std::int64_t hits = 0;
  for (const RequestRecord& request : large.record.requests) hits += request.num_prefix_hit_tokens;
  CHECK(static_cast<double>(hits) >= 0.99 * static_cast<double>(what_if.thrash->possible_tokens));
}

}  // namespace TEST_FILE
