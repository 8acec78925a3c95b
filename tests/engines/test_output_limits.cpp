// SPDX-License-Identifier: Apache-2.0
// Engines that reserve the limit of a request, and one that does not.
#include <cstdint>
#include <string>

#include "core/metrics/run_record.h"
#include "core/metrics/summary.h"
#include "core/scenario/scenario.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "tests/catch.h"
#include "tests/scratch_folder.h"

namespace metronome::testing::TEST_FILE {
namespace {

// The most requests that ran at once.
std::int64_t peak_running(const std::string& policy, const std::string& limit) {
  const ScratchFolder folder;
  const std::string path =
      folder.write("s.yaml",
                   "model: llama-3.1-8b\nhardware: h100-sxm\nengine: {max_num_seqs: 64, "
                   "max_model_len: 8192}\nkv_cache: {num_blocks: 1000}\nscheduler: {policy: " +
                       policy +
                       "}\nworkload: {num_requests: 60, arrivals: {process: burst}, prompt_tokens: "
                       "200, output_tokens: 100, max_tokens: " +
                       limit + "}\n");
  const Scenario scenario = load_scenario(path, {}, {}).variants.front();
  Simulation simulation = prepare_simulation(scenario);
  const Workload workload = make_workload(scenario);
  VirtualClock clock;
  RunRecorder recorder(workload.requests.size());
  EventSink* sinks[] = {&recorder};
  simulation.run(workload, clock, sinks);
  const Summary summary = summarize(recorder.finish(), {});
  CHECK(summary.completed == 60);
  CHECK(summary.total_output_tokens == 6000);
  return summary.peak_running;
}

TEST_CASE("a limit above the answer is reserved by the engines that do", "[engine][workload]") {
  CHECK(peak_running("tensorrt_llm", "null") > 40);
  CHECK(peak_running("tensorrt_llm", "3000") == 5);
  CHECK(peak_running("vllm", "3000") == peak_running("vllm", "null"));
  CHECK(peak_running("sglang", "3000") < peak_running("sglang", "null"));
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
