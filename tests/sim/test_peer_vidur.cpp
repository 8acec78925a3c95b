// SPDX-License-Identifier: Apache-2.0
// A run of Vidur, another simulator, with its own profile: the same steps under its step times, and
// about the same latencies under ours.
#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "core/engine/engine.h"
#include "core/run/run.h"
#include "core/scenario/scenario.h"
#include "core/workload/workload_config.h"
#include "reports/files/result_reader.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/shared_data.h"

namespace metronome::testing::TEST_FILE {
namespace {

struct PeerStep {
  TimeNs ns = 0;
  std::int32_t num_tokens = 0;
  std::size_t num_sequences = 0;
};

// Steps take the peer's times; counts those that compute something else than the peer's.
class PeerExecutor final : public Executor {
 public:
  explicit PeerExecutor(const std::vector<PeerStep>& steps) : steps_(steps) {}

  void launch(const StepPlan& plan, const RequestTable&, TimeNs now) override {
    const std::size_t i = num_launched++;
    const PeerStep peer = i < steps_.size() ? steps_[i] : PeerStep{};
    if (peer.num_tokens != plan.num_tokens() || peer.num_sequences != plan.chunks.size()) {
      if (num_different++ == 0) first_different = i;
    }
    StepResult& result = results_[i % results_.size()];
    result.step_index = plan.step_index;
    result.started_at = now;
    result.finished_at = now + peer.ns;
  }
  const StepResult& collect() override { return results_[num_collected_++ % results_.size()]; }

  std::size_t num_launched = 0;
  std::size_t num_different = 0;
  std::size_t first_different = 0;

 private:
  const std::vector<PeerStep>& steps_;
  std::array<StepResult, 2> results_;
  std::size_t num_collected_ = 0;
};

std::vector<PeerStep> read_steps(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  REQUIRE(line == "batch_time_s,num_tokens,batch_size");
  std::vector<PeerStep> steps;
  while (std::getline(file, line)) {
    double seconds = 0;
    PeerStep step;
    REQUIRE(std::sscanf(line.c_str(), "%lf,%d,%zu", &seconds, &step.num_tokens,
                        &step.num_sequences) == 3);
    step.ns = std::llround(seconds * 1e9);
    steps.push_back(step);
  }
  return steps;
}

// The peer's settings; its trace with the names that its own format has.
struct PeerRun {
  ScratchFolder folder;
  std::string scenario;

  explicit PeerRun(const std::string& path) {
    const std::string rows = read_text_file(path + "/trace.csv");
    const std::string header = "arrival_s,prompt_tokens,output_tokens";
    REQUIRE(rows.starts_with(header));
    folder.write("trace.csv",
                 "arrived_at,num_prefill_tokens,num_decode_tokens" + rows.substr(header.size()));
    scenario = folder.write("vidur.yaml", R"(
model: llama-2-7b
hardware: a100-80gb
engine: {max_num_seqs: 128, max_model_len: 4096}
kv_cache: {block_size: 16}
scheduler: {policy: sarathi, chunk_size: 512}
cost_model: {host_gap_us: 0}
workload: {trace: {file: trace.csv, format: vidur}}
)");
  }
};

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

}  // namespace

TEST_CASE("the steps of a peer simulator", "[policies][peer]") {
  const auto path = shared_path("data/peer_vidur/sarathi512_poisson3_4096");
  if (!path) return;
  const PeerRun peer(*path);
  const std::vector<PeerStep> steps = read_steps(*path + "/batches.csv");
  const ScenarioFile file = load_scenario(peer.scenario, {}, std::nullopt);
  const Scenario& scenario = file.variants.front();
  const Simulation simulation = prepare_simulation(scenario);
  PeerExecutor executor(steps);
  VirtualClock clock;
  run_workload(simulation.setup, executor, clock, make_workload(scenario.workload, 0), {}, {},
               1024);
  INFO("first different step " << executor.first_different);
  CHECK(steps.size() == 58895);
  CHECK(executor.num_launched == steps.size());
  CHECK(executor.num_different == 0);
}

TEST_CASE("the latencies of a peer simulator, with its profile", "[cli][peer]") {
  const auto path = shared_path("data/peer_vidur/sarathi512_poisson3_4096");
  const auto profile = shared_path("data/profiles/vidur_a100_llama-2-7b");
  if (!path || !profile) return;
  const PeerRun peer(*path);
  const std::string folder = peer.folder.path();
  REQUIRE(run_metronome("calibrate --import '" + *profile +
                        "' --hardware a100-80gb --model llama-2-7b --out '" + folder +
                        "/vidur.json'")
              .exit_code == 0);
  REQUIRE(run_metronome("run '" + peer.scenario + "' -q --set cost_model.file='" + folder +
                        "/vidur.json' --out '" + folder + "/out'")
              .exit_code == 0);
  const StoredRun run = read_result(folder + "/out");
  std::vector<double> theirs;
  std::ifstream requests(*path + "/requests.csv");
  std::string line;
  std::getline(requests, line);
  while (std::getline(requests, line)) {
    std::istringstream fields(line);
    std::string field;
    for (int i = 0; i < 8; ++i) std::getline(fields, field, ',');  // ttft_s
    theirs.push_back(1e3 * std::stod(field));
  }
  std::vector<double> ours;
  for (const RequestRecord& request : run.record.requests) {
    ours.push_back(static_cast<double>(request.ttft_ns()) / 1e6);
  }
  REQUIRE(ours.size() == theirs.size());
  for (const double share : {0.5, 0.9, 0.99}) {
    INFO("TTFT at " << share);
    CHECK(quantile(ours, share) == Approx(quantile(theirs, share)).epsilon(0.08));
  }
  // Of its summary.json.
  const Summary& summary = run.result.summary;
  CHECK(summary.itl.p50_ms == Approx(16.642).epsilon(0.05));
  CHECK(summary.itl.p90_ms == Approx(57.601).epsilon(0.05));
  CHECK(summary.itl.p99_ms == Approx(65.308).epsilon(0.05));
}

}  // namespace metronome::testing::TEST_FILE
