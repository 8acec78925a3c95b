// SPDX-License-Identifier: Apache-2.0
// A sweep as Slurm jobs: a script that submits an array of tasks, and a job that merges their
// results.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace metronome {

struct SlurmSweep {
  std::string program;                 // absolute path of metronome
  std::vector<std::string> arguments;  // its arguments: "sweep", the scenario, options
  std::string folder;                  // where to run it
  std::string name;                    // of the jobs
  std::string expected;                // the argument of --expect
  std::size_t num_runs = 0;
  std::size_t num_tasks = 0;
};

// Slurm's own limit on the tasks of an array (MaxArraySize 1001).
constexpr std::size_t kMaxSlurmTasks = 1000;

// The second line of the script, after the interpreter line. It marks a script of this program.
constexpr std::string_view kSlurmScriptMark = "# Written by `metronome sweep --slurm`.";

// A bash script. Run by hand it submits both jobs and passes its arguments to sbatch. As a job it
// runs with `task` or `merge`.
std::string slurm_script(const SlurmSweep& sweep);

// The text quoted as one shell word.
std::string shell_quoted(std::string_view text);

// The runs [first, second) of task `task` (from 1) of `num_tasks`. Shares differ by at most one
// run.
std::pair<std::size_t, std::size_t> task_share(std::size_t task, std::size_t num_tasks,
                                               std::size_t num_runs);

}  // namespace metronome
