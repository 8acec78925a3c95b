// SPDX-License-Identifier: Apache-2.0
// A sweep for Slurm: the script, the shares of its tasks, and what its jobs run. The script is run
// here with stand-ins for Slurm's commands; tools/check_slurm runs it on a cluster.
#include <cstdlib>
#include <filesystem>

#include "study/sweep/sweep_slurm.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/study/sweep/sweep_place.h"

namespace TEST_FILE {

namespace fs = std::filesystem;
using namespace metronome;
using namespace metronome::testing;

namespace {

// Runs a script's task for every index of the array, the last one first, then the merge.
constexpr const char* kSbatch = R"(#!/bin/bash
set -eu
echo "$*" >>"${0%/*}/submitted"
options=()
while [[ "$1" == --* ]]; do
  case "$1" in
    --array=1-*) tasks=${1#--array=1-} ;;
    --dependency=afterok:7) ;;
  esac
  shift
done
if [[ "$2" == task ]]; then
  for ((i = tasks; i >= 1; --i)); do
    SLURM_ARRAY_TASK_ID=$i bash "$1" task || echo "task $i" >>"${0%/*}/failed"
  done >&2
else
  bash "$1" merge >&2 || echo merge >>"${0%/*}/failed"
fi
echo "7;cluster"
)";

struct Workplace {
  ScratchFolder folder;
  // A name that a shell would take apart.
  std::string scenario = folder.write("it's a $HOME.yaml", kSmallScenario);
  std::string quoted = shell_quoted(scenario);
  std::string script = folder.path() + "/sweep.sh";

  Workplace() { fs::permissions(folder.write("sbatch", kSbatch), fs::perms::owner_all); }
  CommandResult sweep(const std::string& options) const {
    return run_metronome("sweep " + quoted + " " + options);
  }
  std::string out(const std::string& name) const { return folder.path() + "/" + name; }
  bool submit() const {
    const std::string command = "PATH=" + folder.path() + ":$PATH bash " + script +
                                " --partition=all >" + folder.path() + "/stdout 2>" +
                                folder.path() + "/stderr </dev/null";
    return std::system(command.c_str()) == 0;
  }
};

}  // namespace

TEST_CASE("words of a shell", "[sweep]") {
  CHECK(shell_quoted("a_b-c./=:,+@%9") == "a_b-c./=:,+@%9");
  CHECK(shell_quoted("") == "''");
  CHECK(shell_quoted("a b") == "'a b'");
  CHECK(shell_quoted("it's") == "'it'\\''s'");
  CHECK(shell_quoted("[1, 2]$x") == "'[1, 2]$x'");
  CHECK(shell_quoted("~") == "'~'");
}

TEST_CASE("shares cover every run once and differ by one at most", "[sweep]") {
  for (std::size_t num_runs = 1; num_runs < 30; ++num_runs) {
    for (std::size_t num_tasks = 1; num_tasks <= num_runs; ++num_tasks) {
      std::size_t next = 0;
      for (std::size_t task = 1; task <= num_tasks; ++task) {
        const auto [first, last] = task_share(task, num_tasks, num_runs);
        CHECK(first == next);
        CHECK(last - first >= num_runs / num_tasks);
        CHECK(last - first <= (num_runs + num_tasks - 1) / num_tasks);
        next = last;
      }
      CHECK(next == num_runs);
    }
  }
}

TEST_CASE("the tasks of a script and their merge give the bytes of a local sweep", "[sweep]") {
  const Workplace place;
  const std::string sweep = "--over seed=1,2,3 --over 'slo.itl_ms=[]' ";
  // A list is no number: an error even before a script is written.
  CHECK(place.sweep(sweep + "--slurm " + place.script).exit_code == 2);
  CHECK_FALSE(fs::exists(place.script));
  for (const char* options : {"", "--points-per-task 4 "}) {
    // One point of four is no scenario, and one of two models fits on no GPU.
    const std::string good =
        "--over seed=1,2,3,-1 --over model=llama-3.2-1b,llama-3.1-70b "
        "--set 'description=two words' ";
    const CommandResult written =
        place.sweep(good + options + "--slurm " + place.script + " --out " + place.out("slurm"));
    require_done(written);
    CHECK(contains(written.err, "metronome: warning: 2 points are not valid scenarios:\n"));
    CHECK_FALSE(fs::exists(place.out("slurm")));
    INFO(read_text_file(place.script));
    REQUIRE(place.submit());
    INFO(read_text_file(place.folder.path() + "/stderr"));
    const std::string submitted = read_text_file(place.folder.path() + "/submitted");
    CHECK(contains(submitted, "--partition=all --job-name="));
    CHECK(contains(submitted, *options == 0 ? "--array=1-6 " : "--array=1-2 "));
    CHECK(contains(submitted, "--dependency=afterok:7 "));
    CHECK(contains(read_text_file(place.folder.path() + "/stdout"), "as job 7"));
    // Points that cannot be run fail no task, or the merge would not come; the merge says so.
    CHECK(read_text_file(place.folder.path() + "/failed") == "merge\n");
    CHECK(contains(read_text_file(place.folder.path() + "/stderr"), "seed: at the point seed=-1"));
    CHECK(place.sweep(good + "--out " + place.out("local")).exit_code == 1);
    CHECK(folder_content(place.out("slurm")) == folder_content(place.out("local")));
    for (const char* name : {"slurm", "submitted", "failed", "stdout", "stderr"}) {
      fs::remove_all(place.out(name));
    }
  }
}

TEST_CASE("a merge lists what is missing, and a changed sweep is noticed", "[sweep]") {
  const Workplace place;
  const std::string sweep = "--over seed=1,2,3 --out " + place.out("out") + " ";
  require_done(place.sweep(sweep + "--only 2/3"));
  CHECK_FALSE(fs::exists(place.out("out") + "/summary.json"));
  const CommandResult merged = place.sweep(sweep + "--merge");
  CHECK(merged.exit_code == 1);
  CHECK(contains(merged.err, "2 runs of 3 are not done:"));
  CHECK(contains(merged.err, " seed=1: was not run\n"));
  CHECK(contains(merged.err, " seed=3: was not run\n"));
  CHECK_FALSE(contains(merged.err, " seed=2:"));
  require_done(place.sweep(sweep + "--slurm " + place.script));
  place.folder.write("it's a $HOME.yaml", std::string(kSmallScenario) + "slo: {ttft_ms: 100}\n");
  REQUIRE(place.submit());
  CHECK(read_text_file(place.out("failed")) == "task 3\ntask 2\ntask 1\nmerge\n");
  CHECK(contains(read_text_file(place.out("stderr")), "the script is for a different sweep"));
}

TEST_CASE("options of a sweep for Slurm that make no sense are refused", "[sweep]") {
  const Workplace place;
  std::string seeds = "1:3:1";
  const auto refused = [&](const std::string& options, const std::string& message) {
    const CommandResult result =
        place.sweep("--over seed=" + seeds + " --out " + place.out("out") + " " + options);
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, message));
    CHECK_FALSE(fs::exists(place.out("out")));
  };
  refused("--slurm x --merge", "exclude each other");
  refused("--only 1/2 --dry-run", "exclude each other");
  refused("--points-per-task 2", "--points-per-task: has no effect; allowed: with --slurm");
  for (const char* points : {"-1", "0", "1000001"}) {
    refused(
        "--slurm x --points-per-task " + std::string(points),
        "--points-per-task: " + std::string(points) + " is out of range; allowed: 1 to 1000000");
  }
  place.folder.write("notes.txt", "#!/bin/bash\nmine\n");
  refused("--slurm " + place.out("notes.txt"), "is not a script of --slurm");
  for (const char* only : {"0/2", "3/2", "1/", "/2", "1", "1/4", "1/2x", "-1/2", "a/b"}) {
    refused(std::string("--only ") + only, "--only: '" + std::string(only) + "' is not a share");
  }
  seeds = "1:2000:1";
  refused("--slurm " + place.script + " --points-per-task 1",
          "1 makes 2000 tasks; allowed: at least 2");
  // As few points a task as an array takes.
  require_done(place.sweep("--over seed=1:2000:1 --slurm " + place.script));
  CHECK(contains(read_text_file(place.script), "\nnum_tasks=1000\n"));
}

}  // namespace TEST_FILE
