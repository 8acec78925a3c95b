// SPDX-License-Identifier: Apache-2.0
// A run of another simulated GPU as a measured one, and a GPU that was not measured.
#pragma once

#include <cstdint>
#include <fstream>
#include <iomanip>
#include <string>
#include <utility>
#include <vector>

#include "core/scenario/scenario.h"
#include "reports/compare/observed_run.h"
#include "tests/catch.h"
#include "tests/command_line.h"

namespace metronome::testing {

// A GPU whose steps take some per cent longer than an H200's, and not all by the same share.
inline constexpr const char* kSlower = R"(
slower: {peak_flops: 989.4e12, peak_bandwidth: 4.8e12, memory_bytes: 149250113536,
         matmul_efficiency: 0.62, attention_efficiency: 0.5, bandwidth_efficiency: 0.74,
         launch_overhead_us: 90, kernel_overhead_us: 14, host_gap_us: 300}
)";

inline std::string scenario_text(std::uint64_t seed, int async_depth) {
  return "seed: " + std::to_string(seed) + R"(
model: llama-3.1-8b
hardware: h200
engine: {max_num_seqs: 12, max_model_len: 4096, async_depth: )" +
         std::to_string(async_depth) + R"(}
scheduler: {policy: vllm, max_num_batched_tokens: 512}
workload:
  num_requests: 120
  arrivals: {process: poisson, rate: 18}
  prompt_tokens: {distribution: uniform, min: 20, max: 1500}
  output_tokens: {distribution: uniform, min: 3, max: 120}
)";
}

struct MeasuredRun {
  ScratchFolder folder;
  ObservedRun seen;

  // `extra` is more of the scenario.
  MeasuredRun(std::uint64_t seed, int async_depth, const std::string& extra = "") {
    const std::string path =
        folder.write("measured.yaml", scenario_text(seed, async_depth) + extra);
    folder.write("slower.yaml", kSlower);
    const std::string out = folder.path() + "/out";
    REQUIRE(run_metronome("run '" + path + "' -q --out '" + out + "'").exit_code == 0);
    seen = read_observed_run(out, {.from_queue = true});
  }
  // With the step times of a GPU that was not measured.
  Scenario scenario_with(std::vector<Setting> changes) const {
    changes.push_back({"hardware", folder.path() + "/slower.yaml"});
    return scenario_of(*seen.stored).with(changes);
  }
  // The run as the request log of a server whose clock began somewhere.
  std::string request_log() const {
    constexpr double kClock = 479748.25;
    std::ofstream file(folder.path() + "/requests.jsonl");
    file << std::fixed << std::setprecision(9);
    for (const ObservedRequest& request : seen.requests) {
      const auto seconds = [&](TimeNs ns) { return kClock + static_cast<double>(ns) * 1e-9; };
      file << "{\"input_toks\": " << request.num_prompt_tokens
           << ", \"output_toks\": " << request.num_output_tokens
           << ", \"queued_ts\": " << seconds(request.begin)
           << ", \"scheduled_ts\": " << seconds(request.begin)
           << ", \"first_token_ts\": " << seconds(request.first_token)
           << ", \"last_token_ts\": " << seconds(request.last_token) << "}\n";
    }
    return folder.path() + "/requests.jsonl";
  }
};

}  // namespace metronome::testing
