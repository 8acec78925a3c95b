// SPDX-License-Identifier: Apache-2.0
// The logs of a real server as scenarios: `metronome diagnose LOG` without --scenario.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "core/base/json.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/places.h"
#include "tests/scratch_folder.h"
#include "tests/shared_data.h"

namespace metronome::testing::TEST_FILE {
namespace {

// The real logs are packed.
std::optional<std::string> unpacked(const std::string& file, const ScratchFolder& scratch) {
  const std::optional<std::string> packed = shared_path("data/real_vllm/" + file + ".xz");
  if (!packed) return std::nullopt;
  std::string path = scratch.path() + "/" + file;
  std::replace(path.begin() + static_cast<std::ptrdiff_t>(scratch.path().size()) + 1, path.end(),
               '/', '_');
  const std::string command = "xz -dc '" + *packed + "' > '" + path + "'";
  REQUIRE(std::system(command.c_str()) == 0);
  return path;
}

Json workload_of(const std::string& arguments) {
  const CommandResult result = run_metronome("diagnose " + arguments + " --json");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  return Json::parse(result.out).at(0).at("workload");
}

double figure(const Json& workload, const char* run, const char* name) {
  return workload.at(run).at(name).get<double>();
}

bool is_near(double value, double truth, double share) {
  return std::abs(value - truth) <= share * truth;
}

// p99 ITL and p50, p99 TTFT that the benchmark's client saw at each budget
// (shared/data/real_vllm/*/bench.json), in milliseconds.
struct Measured {
  const char* folder;
  const char* iterations;  // those of bench.json
  int budget;
  double itl_p99, ttft_p50, ttft_p99;
};
constexpr Measured kMeasured[] = {{"A2048", "120:", 2048, 1540.2, 462.9, 2141.3},
                                  {"B512", "0:560", 512, 539.3, 455.2, 2352.3}};

}  // namespace

TEST_CASE("a real log predicts gaps at the other's budget", "[study][rebuilt]") {
  const ScratchFolder scratch;
  for (std::size_t i = 0; i < 2; ++i) {
    const Measured& from = kMeasured[i];
    const Measured& to = kMeasured[1 - i];
    INFO(from.folder);
    const auto log = unpacked(std::string(from.folder) + "/server.log", scratch);
    if (!log) return;
    const std::string base = "'" + *log + "' --iterations " + from.iterations +
                             " --flags '--max-num-batched-tokens " + std::to_string(to.budget) +
                             "'";
    const Json own = workload_of(base);
    CHECK(own.at("requests") == 60);
    CHECK(own.at("exact").get<int>() >= 35);
    CHECK(is_near(figure(own, "as_logged", "p99_itl_ms"), from.itl_p99, 0.1));
    CHECK(is_near(figure(own, "with_flags", "p99_itl_ms"), to.itl_p99, 0.1));
    const auto bench = unpacked(std::string(from.folder) + "/bench.json", scratch);
    REQUIRE(bench.has_value());
    const Json exact = workload_of(base + " --requests '" + *bench + "'");
    CHECK(exact.at("of_client") == 60);
    CHECK(exact.at("exact").get<int>() >= 55);
    CHECK(is_near(figure(exact, "with_flags", "p99_itl_ms"), to.itl_p99, 0.1));
    CHECK(is_near(figure(exact, "with_flags", "p50_ttft_ms"), to.ttft_p50, 0.25));
    CHECK(is_near(figure(exact, "with_flags", "p99_ttft_ms"), to.ttft_p99, 0.25));
  }
}

TEST_CASE("the scenario of a log runs by itself", "[cli][rebuilt]") {
  const ScratchFolder scratch;
  const std::string folder = scratch.path() + "/as scenario";
  const std::string log = "tests/expected/logs/vllm.log";
  const CommandResult made = run_metronome("diagnose " + log + " --save '" + folder + "'");
  INFO(made.err << made.out);
  REQUIRE(made.exit_code == 0);
  CHECK(made.out.find("requests rebuilt from the log") != std::string::npos);
  CHECK(made.out.find("what if: the log's requests with other settings") != std::string::npos);
  const CommandResult run =
      run_metronome("run '" + folder + "/scenario.yaml' -q --out '" + scratch.path() + "/out'");
  INFO(run.err);
  CHECK(run.exit_code == 0);
  // The same folder again; but no other scenario is replaced.
  CHECK(run_metronome("diagnose " + log + " --save '" + folder + "'").exit_code == 0);
  const std::string mine = scratch.write("scenario.yaml", "mine: 1\n");
  const CommandResult refused =
      run_metronome("diagnose " + log + " --save '" + scratch.path() + "'");
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("scenario.yaml exists and is not of a log") != std::string::npos);
  CHECK(read_text_file(mine) == "mine: 1\n");
}

TEST_CASE("flags that a log has no step times or pool for", "[cli][rebuilt]") {
  const std::string log = "diagnose tests/expected/logs/vllm.log --flags ";
  const CommandResult size = run_metronome(log + "'--tensor-parallel-size 4'");
  CHECK(size.exit_code == 2);
  CHECK(size.err.find("--flags: the log has step times for a tensor parallel size of ") !=
        std::string::npos);
  const CommandResult pool = run_metronome(log + "'--gpu-memory-utilization 0.4'");
  INFO(pool.err);
  CHECK(pool.exit_code == 0);
  CHECK(pool.out.find("The replays keep the KV cache of the log") != std::string::npos);
}

TEST_CASE("a log with odd numbers is still diagnosed", "[cli][rebuilt]") {
  const ScratchFolder scratch;
  std::string text = read_text_file(source_dir() + "/tests/expected/logs/vllm.log");
  const std::string key = "'max_num_batched_tokens'";
  const std::size_t at = text.find(key);
  REQUIRE(at != std::string::npos);
  text.insert(at, "'block_size': 0, ");
  const CommandResult result = run_metronome("diagnose '" + scratch.write("odd.log", text) + "'");
  INFO(result.err << result.out.substr(0, 2000));
  CHECK((result.exit_code == 0 || result.exit_code == 2));
}

TEST_CASE("a log that is too short for a fit needs a GPU", "[cli][rebuilt]") {
  const ScratchFolder scratch;
  const std::string log = "tests/expected/logs/vllm.log --iterations 0:30";
  const CommandResult none = run_metronome("diagnose " + log);
  CHECK(none.exit_code == 0);
  CHECK(none.out.find("Not replayed with other settings: the log has") != std::string::npos);
  const CommandResult with = run_metronome("diagnose " + log + " --gpu h100-sxm --tp 2");
  INFO(with.err << with.out);
  CHECK(with.exit_code == 0);
  CHECK(with.out.find("are estimates for h100-sxm") != std::string::npos);
  CHECK(with.out.find("what if") != std::string::npos);
  const CommandResult other =
      run_metronome("diagnose tests/expected/logs/sglang.log --no-replay --requests some.json");
  CHECK(other.exit_code == 2);
  CHECK(other.err.find("--requests: has no effect") != std::string::npos);
}

}  // namespace metronome::testing::TEST_FILE
