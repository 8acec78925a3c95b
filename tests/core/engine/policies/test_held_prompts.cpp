// SPDX-License-Identifier: Apache-2.0
// Whole prompts that wait because the decodes leave them too few tokens of a step.
#include "core/engine/policies/held_prompts.h"
#include "core/workload/workload_arrivals.h"
#include "engines/tensorrt_llm/settings.h"
#include "engines/vllm/settings.h"
#include "tests/catch.h"
#include "tests/engine_harness.h"

namespace metronome::testing::TEST_FILE {
namespace {

// The remark after a run of 20 requests with these prompts, and a budget of 64 tokens a step.
std::string remark(const EngineSetup& setup, std::int32_t num_prompt_tokens) {
  Workload workload;
  workload.requests.assign(20, RequestSpec{0, num_prompt_tokens, 8, 0});
  Bench bench(setup);
  WorkloadArrivals arrivals(workload);
  CHECK(bench.engine.run(arrivals));
  return bench.engine.remark();
}

}  // namespace

TEST_CASE("a run says that whole prompts waited for decodes to end", "[core][policies]") {
  const std::string policy = GENERATE("tensorrt_llm", "vllm");
  CAPTURE(policy);
  EngineSetup setup = make_setup(policy);
  setup.max_num_seqs = 8;
  setup.scheduler.max_num_batched_tokens = 64;
  setup.scheduler.edit<TensorRtLlmConfig>().max_num_tokens = 64;
  setup.scheduler.edit<VllmConfig>().enable_chunked_prefill = false;
  setup.scheduler.edit<TensorRtLlmConfig>().enable_chunked_context = false;
  // One request after the other: a step for each prompt, and seven for the rest of its output.
  const bool is_vllm = policy == "vllm";
  CHECK(remark(setup, 64) ==
        "in 133 of 160 steps a prompt waited only because whole prompts must fit beside the "
        "decodes, as in the engine; set scheduler." +
            std::string(is_vllm ? "enable_chunked_prefill" : "enable_chunked_context") +
            ": true, or scheduler." + (is_vllm ? "max_num_batched_tokens" : "max_num_tokens") +
            " to 71 or more");
  CHECK(remark(setup, 57).empty());
  setup.scheduler.edit<VllmConfig>().enable_chunked_prefill = true;
  setup.scheduler.edit<TensorRtLlmConfig>().enable_chunked_context = true;
  CHECK(remark(setup, 64).empty());
}

TEST_CASE("steps between two plans were like the first", "[core][policies]") {
  HeldPrompts held;
  held.begin_plan(0);
  held.begin_plan(1);
  held.note(30);
  held.begin_plan(10);
  held.begin_plan(1000);
  CHECK(held.remark("budget", "chunks", 4).empty());
  held.note(40);
  held.begin_plan(1001);
  CHECK(held.remark("budget", "chunks", 4) ==
        "in 10 of 1,001 steps a prompt waited only because whole prompts must fit beside the "
        "decodes, as in the engine; set scheduler.chunks: true, or scheduler.budget to 43 or more");
}

}  // namespace metronome::testing::TEST_FILE
