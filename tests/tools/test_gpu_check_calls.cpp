// SPDX-License-Identifier: Apache-2.0
// tools/gpu_check from call to call: the plan, what is carried, what comes back, which GPU it is.
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/tools/fake_gpu_build.h"

namespace TEST_FILE {
using namespace metronome::testing;
namespace fs = std::filesystem;

namespace {

CommandResult gpu_check(const std::string& arguments) {
  return run_program("tools/gpu_check", arguments);
}

void check_refusal(const std::string& arguments, const std::string& expected) {
  const CommandResult result = gpu_check(arguments);
  INFO(arguments << ": " << result.err);
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  CHECK(result.err.starts_with("gpu_check: " + expected));
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
}

// Without what every call says anew.
std::map<std::string, std::string> results_in(const std::string& folder) {
  std::map<std::string, std::string> files = folder_content(folder);
  std::erase_if(files, [](const auto& file) { return file.first.ends_with("progress.log"); });
  return files;
}

}  // namespace

TEST_CASE("gpu_check plans calls that are within a machine's limits", "[tools][gpu_check][slow]") {
  const CommandResult plan = gpu_check("plan");
  REQUIRE(plan.exit_code == 0);
  CHECK(contains(plan.out, "Call 1, on an H100 or an H200: "));
  CHECK(contains(plan.out, "Call 3, on an H200: "));
  std::istringstream lines(plan.out);
  std::string line;
  int num_calls = 0;
  while (std::getline(lines, line)) {
    if (!line.starts_with("  command  ")) continue;
    ++num_calls;
    CHECK(line.size() < 2000);
    CHECK(contains(line, "--build build/gpu_check.tar.xz --out results/gpu_check "));
    CHECK(contains(line, " --archive \"$OUT\" "));
    CHECK(contains(line, " --budget 480"));
    CHECK(contains(line, "--resume") == (num_calls > 1));
  }
  CHECK(num_calls == 3);
}

TEST_CASE("gpu_check plans as many calls as a machine has time for", "[tools][gpu_check][slow]") {
  const CommandResult plan = gpu_check("plan --minutes 15");
  REQUIRE(plan.exit_code == 0);
  CHECK(contains(plan.out, " --budget 480\n"));
  CHECK(contains(plan.out, " --resume results/call1 "));
  // 15 * 60 s - 90 s until the first command - 480 s of call 1 - 90 s behind each call
  CHECK(contains(plan.out, " --budget 150\n"));
  CHECK_FALSE(contains(plan.out, "Call 3, on"));
  CHECK(contains(plan.out, "15 minutes end call 2 early."));
  CHECK(contains(plan.out, "Calls after call 2 need another machine"));
  CHECK(gpu_check("plan --minutes 30").out == gpu_check("plan").out);
  const std::string shorter = gpu_check("plan --minutes 29.9").out;
  CHECK(contains(shorter, "Call 3, on"));
  CHECK(contains(shorter, " --budget 474\n"));
  CHECK(contains(shorter, "29.9 minutes end call 3 early."));
  const std::string one = gpu_check("plan --minutes 11").out;
  CHECK(contains(one, " --budget 480\n"));
  CHECK_FALSE(contains(one, "Call 2, on"));
  CHECK_FALSE(contains(one, "early"));
  CHECK(contains(one, "Calls after call 1 need another machine"));
  check_refusal("plan --minutes 4", "--minutes: 4 is out of range; allowed: at least 5\n");
  check_refusal("plan --minutes nan", "--minutes: nan is out of range; allowed: at least 5\n");
}

TEST_CASE("gpu_check takes a GPU for what it is", "[tools][gpu_check][slow]") {
  const auto check_card = [](const char* name, const char* hardware) {
    FakeGpuBuild place;
    place.install(name, hardware);
    const std::string models = "--models tiny-llama";
    CHECK(place.check("machine,calibrate,decisions,published", "", models).exit_code == 0);
    CHECK(contains(place.text("README.md"), name));
    CHECK(contains(place.text("calibrate.log"), std::string("--hardware ") + hardware));
    for (const char* log : {"decisions.runs.log", "published.runs.log"}) {
      CHECK(contains(place.text(log), std::string("--set hardware=") + hardware));
    }
    CHECK(contains(place.text("state.json"), std::string("\"gpu\": \"") + name + "\""));
  };
  check_card("NVIDIA H200", "h200");
  check_card("NVIDIA H100 80GB HBM3", "h100-sxm");
}

TEST_CASE("a GPU that the catalogue does not know has no hardware's name",
          "[tools][gpu_check][slow]") {
  FakeGpuBuild place;
  place.install("NVIDIA H100 PCIe", "NVIDIA_H100_PCIe");
  CHECK(place.check("machine,calibrate,published", "", "--models tiny-llama").exit_code == 1);
  CHECK_FALSE(contains(place.text("calibrate.log"), "--hardware"));
  CHECK(contains(place.text("README.md"),
                 "| published | failed: tiny-llama chunked_prefill: NVIDIA H100 PCIe is not in the "
                 "catalogue, and there is no calibrated model to simulate it | "));
}

TEST_CASE("a later call does what an earlier one had no models for", "[tools][gpu_check][slow]") {
  FakeGpuBuild place;
  place.install("NVIDIA H200", "h200");
  const std::string only = "bench,products,decisions,published";
  CHECK(place.check(only, "", "--models tiny-llama").exit_code == 0);
  const std::string before = place.text("decisions.runs.log");
  CHECK(place.check(only, "", "--models tiny-llama,tiny-gemma3 --resume").exit_code == 0);
  CHECK(place.text("decisions.runs.log").starts_with(before));
  for (const char* name : {"bench.tiny-gemma3.chunk.json", "products.tiny-gemma3.json",
                           "published/tiny-gemma3/baseline/validation.json"}) {
    CHECK(fs::exists(place.out + "/h200/" + name));
  }
  const std::string log = place.text("bench.log");
  CHECK(log.find("bench tiny-llama --invariance chunk") ==
        log.rfind("bench tiny-llama --invariance chunk"));
}

TEST_CASE("a card that nvidia-smi does not name ends the call", "[tools][gpu_check][slow]") {
  FakeGpuBuild place;
  place.write_program("bin/nvidia-smi", "#!/bin/bash\nexit 9\n");
  CHECK(place.check("start", "").exit_code == 1);
  CHECK(contains(place.text("README.md"), "| machine | failed: nvidia-smi finds no GPU | "));
  CHECK(contains(place.text("README.md"),
                 "| start | waiting: not started: nvidia-smi finds no GPU |"));
}

TEST_CASE("two GPUs have results of their own in one archive", "[tools][gpu_check][slow]") {
  FakeGpuBuild place;
  place.install("NVIDIA H100 80GB HBM3", "h100-sxm");
  CHECK(place.check("machine,start", "").exit_code == 0);
  place.install("NVIDIA H200", "h200");
  CHECK(place.check("machine,start", "", "--resume").exit_code == 0);
  CHECK(contains(place.text("progress.log"), "start: passed"));
  place.gpu = "h100-sxm";
  CHECK(contains(place.text("state.json"), "\"gpu\": \"NVIDIA H100 80GB HBM3\""));
}

TEST_CASE("gpu_check goes on from an archive as from the folder", "[tools][gpu_check][slow]") {
  const FakeGpuBuild place;
  const std::string kept = place.scratch.path() + "/kept";
  const std::string option = "--archive '" + kept + "' --models llama-3.2-3b ";
  CHECK(place.check("start,bench,decisions", "", option).exit_code == 0);
  // Few files, none of them large.
  std::size_t num_files = 0;
  for (const auto& entry : fs::directory_iterator(kept)) {
    ++num_files;
    CHECK(entry.file_size() <= 10 << 20);
    CHECK(entry.path().filename().string().find_first_not_of(
              "abcdefghijklmnopqrstuvwxyz0123456789._-") == std::string::npos);
  }
  CHECK(num_files == 2);
  const auto before = results_in(place.out);
  REQUIRE(before.size() > 50);
  CHECK(gpu_check("unpack '" + kept + "' --out '" + place.scratch.path() + "/again'").exit_code ==
        0);
  CHECK(results_in(place.scratch.path() + "/again") == before);

  fs::rename(kept, place.scratch.path() + "/call1");
  fs::remove_all(place.out);
  const CommandResult next = place.check("start,bench,decisions", "",
                                         option + "--resume '" + place.scratch.path() + "/call1'");
  INFO(next.out << next.err);
  CHECK(next.exit_code == 0);
  // Stages that passed have not run again.
  CHECK(place.text("bench.log") == before.at("unknown/bench.log"));
  CHECK(place.text("decisions.runs.log") == before.at("unknown/decisions.runs.log"));
}

TEST_CASE("gpu_check refuses an archive that is damaged", "[tools][gpu_check][slow]") {
  const FakeGpuBuild place;
  const std::string kept = place.scratch.path() + "/kept";
  CHECK(place.check("start", "", "--archive '" + kept + "'").exit_code == 0);
  std::string part;
  for (const auto& entry : fs::directory_iterator(kept)) {
    if (contains(entry.path().filename().string(), ".tar.gz.")) part = entry.path().string();
  }
  REQUIRE(!part.empty());
  std::string bytes = read_text_file(part);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  std::ofstream(part, std::ios::binary) << bytes;
  const std::string out = place.scratch.path() + "/new";
  check_refusal("unpack '" + kept + "' --out '" + out + "'",
                kept + ": its parts do not match results.json");
  CHECK(!fs::exists(out));
  check_refusal("unpack '" + place.scratch.path() + "' --out '" + out + "'",
                place.scratch.path() + ": is not an archive of results (");
  check_refusal("unpack '" + kept + "' --out '" + kept + "'", "--out: " + kept + " exists already");
}

TEST_CASE("an archive is carried in the place of a build", "[tools][gpu_check][slow]") {
  const FakeGpuBuild place;
  const std::string build = place.scratch.path() + "/build";
  const std::string packed = place.scratch.path() + "/carried/gpu_check.tar.xz";
  const CommandResult pack = gpu_check("pack --build '" + build + "' --to '" + packed + "'");
  INFO(pack.err);
  CHECK(pack.exit_code == 0);
  CHECK(contains(pack.out, "wrote " + packed + ", "));
  CHECK(fs::directory_iterator(place.scratch.path() + "/carried")->path().string() == packed);
  const CommandResult result =
      run_program("tools/gpu_check", "--build '" + packed + "' --out '" + place.out +
                                         "' --only tests --models tiny-llama");
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  CHECK(contains(place.text("tests.log"), "ran [#test_gpu_norm]~[slow]\n"));

  check_refusal("--out '" + place.out + "2'",
                "--build is missing; allowed: a build folder with CUDA, or the archive that");
  check_refusal("--out '" + place.out + "2' --build '" + place.scratch.path() + "'",
                "--build: " + place.scratch.path() + " has no metronome; allowed: ");
  check_refusal("--out '" + place.out + "2' --build '" + build + "/metronome'",
                build + "/metronome: is not an archive of programs (");
  check_refusal("pack --build '" + place.out + "'", place.out + " has no metronome; allowed: ");
  check_refusal("--build x --only nothing", "--only: 'nothing' is not a stage; allowed: machine, ");
  CHECK(!fs::exists(place.out + "2"));
}

}  // namespace TEST_FILE
