// SPDX-License-Identifier: Apache-2.0
// Which changes count, the flags that they are, and sentences that their replays bear out.
#include <algorithm>

#include "core/base/number_text.h"
#include "core/model/model_catalogue.h"
#include "engines/sglang/settings.h"
#include "sim/fitted/fitted_file.h"
#include "study/what_if/replays.h"
#include "study/what_if/what_if.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/expected.h"
#include "tests/sim/fitted/fitted_lab.h"
#include "tests/study/what_if/what_if_place.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

TEST_CASE("vLLM's budget is no multiple of its blocks", "[tools][whatif]") {
  const Place place;
  for (const char* block : {"16", "128", "528"}) {
    const StoredRun recorded =
        place.run(std::string(kLongPrompts) +
                  "--set scheduler.policy=vllm --set scheduler.max_num_batched_tokens=4096 "
                  "--set kv_cache.num_blocks=900 --set kv_cache.block_size=" +
                  block);
    int num_odd = 0;
    for (const double target : {11.2, 11.6, 12.0, 12.4}) {
      const WhatIf what_if = find(recorded, target);
      INFO(block << ", " << target);
      REQUIRE(what_if.chosen.has_value());
      const Trial& chosen = what_if.trials[*what_if.chosen];
      const std::int64_t budget = *chosen.scenario.scheduler.max_num_batched_tokens;
      CHECK(what_if.next_failing == budget + 64);
      CHECK(what_if.failing_text == "it does not");
      num_odd += budget % 128 == 64 ? 1 : 0;
    }
    CHECK(num_odd > 0);
  }
}

TEST_CASE("SGLang's chunk is a multiple of its page", "[tools][whatif]") {
  const Place place;
  const StoredRun recorded =
      place.run(std::string(kLongPrompts) +
                "--set scheduler.policy=sglang --set scheduler.chunked_prefill_size=4080 "
                "--set kv_cache.block_size=48 --set kv_cache.num_blocks=3000");
  const WhatIf what_if = find(recorded, 12);
  int num_chunks = 0;
  for (const Trial& trial : what_if.trials) {
    const std::int64_t chunk =
        trial.scenario.scheduler.settings<SglangConfig>().chunked_prefill_size;
    CHECK(chunk % 48 == 0);
    num_chunks += chunk < 4080 ? 1 : 0;
  }
  CHECK(num_chunks > 0);
}

TEST_CASE("a change that spends what was not given does not count", "[cli][whatif]") {
  const Place place;
  const std::string options =
      std::string(kLongPrompts) +
      "--set scheduler.policy=vllm --set engine.max_num_seqs=64 --set "
      "scheduler.max_num_batched_tokens=4096 --set workload.arrivals.rate=40 ";
  // Without limits: at most twice as late as in the run, and a tenth of the throughput.
  const StoredRun free_run = place.run(options);
  const Summary& base = free_run.result.summary;
  const WhatIf free_search = find(free_run, 3);
  INFO(what_if_text(free_search, 1000));
  for (const Trial& trial : free_search.trials) {
    if (!trial.counts()) continue;
    CHECK(trial.summary.ttft.p99_ms <= 2 * base.ttft.p99_ms);
    CHECK(trial.summary.output_throughput >= 0.9 * base.output_throughput);
  }
  // With one that no short gap keeps: the nearest is named with what it breaks.
  const double limit = 1.05 * base.ttft.p99_ms;
  const StoredRun run =
      place.run(options + "--set slo.itl_ms=3 --set slo.ttft_ms=" + std::to_string(limit));
  const WhatIf search = find(run, WhatIfOptions());
  const std::string text = what_if_text(search, 1000);
  INFO(text);
  REQUIRE(search.goals.size() == 2);
  // The advice keeps the limit that the run keeps; a nearer change is named as no advice.
  if (search.chosen) CHECK(search.trials[*search.chosen].summary.ttft.p99_ms <= limit);
  for (const std::size_t point : search.front) {
    CHECK(search.trials[point].counts());
    CHECK(search.trials[point].summary.ttft.p99_ms <= limit);
  }
  CHECK(search.front.size() <= 3);
  if (search.nearest) {
    CHECK(search.nearest->summary.ttft.p99_ms > limit);
    CHECK(
        contains(text, "The nearest change is not advised: " + search.nearest->changes[0].text()));
    CHECK(contains(text, ", which the run keeps"));
  }
  CHECK(contains(text, "No tried change"));
  CHECK(contains(text, "keeps every gap within 3 ms and the p99 TTFT within "));
  // Nothing is printed that the loader refuses: a budget below the number of sequences is.
  for (const Trial& trial : search.trials) {
    CHECK(trial.scenario.scheduler.policy == "vllm");
    CHECK(token_budget(trial.scenario.scheduler) >= trial.scenario.engine.max_num_seqs);
  }
}

TEST_CASE("chunking that is off is tried on", "[cli][whatif]") {
  const Place place;
  struct Case {
    const char* options;
    const char* change;
    const char* flag;
  };
  for (const Case& one :
       {Case{"--set scheduler.policy=tensorrt_llm --set scheduler.max_num_tokens=8192 --set "
             "scheduler.enable_chunked_context=false",
             "scheduler.enable_chunked_context=true",
             "change enable_chunked_prefill: false to enable_chunked_prefill: true"},
        Case{"--set scheduler.policy=vllm --set scheduler.max_num_batched_tokens=8192 --set "
             "scheduler.enable_chunked_prefill=false --set kv_cache.enable_prefix_caching=false",
             "scheduler.enable_chunked_prefill=true", ""},
        Case{"--set scheduler.policy=sglang --set scheduler.chunked_prefill_size=-1",
             "scheduler.enable_mixed_chunk=true", "change --chunked-prefill-size -1 to "}}) {
    const StoredRun run = place.run(std::string(kLongPrompts) + one.options);
    const WhatIf what_if = find(run, 11);
    INFO(what_if_text(what_if, 1000));
    CHECK(std::any_of(what_if.trials.begin(), what_if.trials.end(), [&one](const Trial& trial) {
      return trial.changes[0].text() == one.change && trial.changes.size() == 2 && trial.keeps_all;
    }));
    CHECK(contains(what_if_text(what_if, 1000), one.flag));
  }
}

TEST_CASE("a number of blocks below what memory gives can be dropped", "[cli][whatif]") {
  const Place place;
  const StoredRun small = place.run(std::string(kLongAnswers) + "--set kv_cache.num_blocks=200");
  REQUIRE(small.result.summary.num_preemptions > 0);
  const StoredRun whole = place.run(kLongAnswers, "whole");
  const WhatIf what_if = find(small, 20);
  const std::string text = what_if_text(what_if, 1000);
  INFO(text);
  CHECK(what_if.cache.default_blocks == whole.result.info.num_blocks);
  CHECK(contains(text, "or drop --num-gpu-blocks-override: without it the memory gives " +
                           grouped_text(whole.result.info.num_blocks) + " KV blocks.\n"));
  CHECK_FALSE(contains(text, "need more memory"));
  // Where memory gives less, it is more memory that is needed.
  WhatIf scarce = what_if;
  scarce.cache.default_blocks = 210;
  CHECK(contains(what_if_text(scarce, 1000),
                 " need more memory than the 210 that it gives without --num-gpu-blocks-override: "
                 "a higher --gpu-memory-utilization, or more GPUs"));
}

TEST_CASE("a setting with the figures of the run has no row", "[cli][whatif]") {
  const Place place;
  const StoredRun run =
      place.run(std::string(kLongPrompts) +
                "--set scheduler.policy=vllm --set "
                "scheduler.max_num_batched_tokens=4096 --set workload.num_requests=1");
  const WhatIf what_if = find(run, 1e-3);
  for (const Trial& trial : what_if.trials) {
    const bool is_same = trial.summary.itl.max_ms == what_if.baseline.summary.itl.max_ms &&
                         trial.summary.itl.p99_ms == what_if.baseline.summary.itl.p99_ms &&
                         trial.summary.ttft.p99_ms == what_if.baseline.summary.ttft.p99_ms;
    CHECK_FALSE(is_same);
  }
}

TEST_CASE("changes are flags of the run's own engine", "[cli][whatif]") {
  const Place place;
  struct Case {
    const char* options;
    const char* engine;
    const char* flag;
  };
  for (const Case& one :
       {Case{"--set scheduler.policy=llama_cpp --set scheduler.n_batch=4096", "llama-server",
             "change -b 4096 to -b "},
        Case{"--set scheduler.policy=tensorrt_llm --set scheduler.max_num_tokens=4096",
             "trtllm-serve", "change max_num_tokens: 4096 to max_num_tokens: "}}) {
    const StoredRun run =
        place.run(std::string(kLongPrompts) + "--set slo.itl_ms=12 " + one.options);
    const std::string text = run_metronome("diagnose '" + run.folder + "'").out;
    INFO(text);
    CHECK(contains(text, std::string("current settings\n  ") + one.engine + "\n    " + one.flag));
    CHECK(contains(text, "  for comparison, vLLM\n"));
    CHECK_FALSE(contains(text, "\n  vLLM\n"));
  }
}

TEST_CASE("sentences about KV blocks are those of their replays", "[cli][whatif]") {
  const Place place;
  const StoredRun run = place.run(std::string(kLongAnswers) + "--set kv_cache.num_blocks=100");
  REQUIRE(run.result.summary.num_preemptions > 0);
  const WhatIf what_if = find(run, 1e-3);
  const std::string text = what_if_text(what_if, 1000);
  INFO(text);
  int num_sizes = 0;
  for (const Trial& trial : what_if.trials) {
    if (trial.changes.size() != 1 || !trial.changes[0].text().starts_with(kNumBlocksKey)) continue;
    ++num_sizes;
    CHECK(*trial.scenario.kv_cache.num_blocks <= what_if.cache.most_blocks);
    if (trial.summary.num_preemptions == 0) {
      CHECK(contains(text, trial.changes[0].text() + " ends preemption"));
    }
  }
  CHECK(num_sizes > 0);
  CHECK(contains(run_metronome("diagnose '" + run.folder + "' --target-itl 0.001").out,
                 "full: The KV cache is full: it holds "));
}

TEST_CASE("a pool that nobody set is changed by its share of memory", "[cli][whatif]") {
  const Place place;
  const StoredRun run = place.run(
      std::string(kLongAnswers) +
      "--set hardware=l4 --set model=llama-3.1-8b --set cost_model.gpu_memory_utilization=0.8 "
      "--set engine.max_num_seqs=64 --set workload.num_requests=60 --set slo.ttft_ms=600000");
  INFO(run.result.info.num_blocks << " blocks, " << run.result.summary.num_preemptions);
  REQUIRE(run.result.summary.num_preemptions > 0);
  const WhatIf what_if = find(run, run.result.summary.itl.p99_ms);
  for (const FlagChanges& flags : chosen_flags(what_if)) {
    for (const auto& [before, after] : flags.changed) {
      INFO(after);
      CHECK_FALSE((contains(after, "blocks-override") || contains(after, "max-total-tokens")));
    }
  }
}

TEST_CASE("more KV blocks are tried where nobody knows the memory", "[whatif]") {
  // Step times of a machine that no catalogue has, as a log gives them.
  const Place place;
  CostModelFile file;
  file.kind = "fitted";
  file.hardware = "mine";
  file.model = "llama-3.2-1b";
  file.body =
      std::make_shared<const Json>(fitted_body(known_model(), find_model("llama-3.2-1b", {})));
  place.scratch.write("mine.json", file.to_json());
  const StoredRun run =
      place.run(std::string(kLongAnswers) +
                "--set hardware='\"\"' --set kv_cache.num_blocks=100 --set cost_model.file='" +
                place.scratch.path() + "/mine.json'");
  REQUIRE(run.result.summary.num_preemptions > 0);
  const WhatIf what_if =
      find(run, {.goals = {.ttft_ms = 0.5 * run.result.summary.ttft.p99_ms}, .hardware = ""});
  CHECK(what_if.cache.most_blocks == 0);
  const bool is_tried =
      std::any_of(what_if.trials.begin(), what_if.trials.end(), [](const Trial& trial) {
        return trial.changes.size() == 1 &&
               trial.changes[0].text().starts_with("kv_cache.num_blocks=");
      });
  CHECK(is_tried);
}

}  // namespace TEST_FILE
