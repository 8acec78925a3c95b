// SPDX-License-Identifier: Apache-2.0
#include "study/sweep/sweep_slurm.h"

#include <algorithm>
#include <fmt/core.h>

namespace metronome {
namespace {

// If a node dies, Slurm requeues its task (--requeue), and completed runs stay. A failed point is
// recorded and its task still succeeds. So the merge, which waits until all tasks succeed, can list
// the failure. If a task itself fails, the merge is cancelled; a second submission continues from
// there.
constexpr std::string_view kSubmit =
    R"(case "${1:-}" in
  task)
    exec "${sweep[@]}" --only "$SLURM_ARRAY_TASK_ID/$num_tasks" --quiet \
      --jobs "${SLURM_CPUS_PER_TASK:-1}" ;;
  merge)
    exec "${sweep[@]}" --merge ;;
esac

mkdir -p "$script.logs"
array=$(sbatch --parsable "$@" --job-name="$name" --array="1-$num_tasks" --requeue \
  --open-mode=append --output="$script.logs/%a.log" "$script" task)
array=${array%%;*}
merge=$(sbatch --parsable "$@" --job-name="$name-merge" --dependency="afterok:$array" \
  --kill-on-invalid-dep=yes --requeue --open-mode=append --output="$script.logs/merge.log" \
  "$script" merge)
echo "submitted $num_tasks tasks as job $array, their merge as job ${merge%%;*}"
echo "logs: $script.logs"
)";

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./=:,+@%").find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_quoted(std::string_view text) {
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string slurm_script(const SlurmSweep& sweep) {
  std::string text = fmt::format(
      "#!/bin/bash\n"
      "{}\n"
      "#   bash FILE [SBATCH OPTION...]   submits {} tasks over {} runs, and a job that merges "
      "them.\n"
      "# Every node must see the folders and the program at these paths. To continue after a "
      "failure,\n"
      "# submit again.\n"
      "set -euo pipefail\n"
      "script=$(readlink -f \"$0\")\n"
      "cd {}\nname={}\nnum_tasks={}\nsweep=({}",
      kSlurmScriptMark, sweep.num_tasks, sweep.num_runs, shell_quoted(sweep.folder),
      shell_quoted(sweep.name), sweep.num_tasks, shell_quoted(sweep.program));
  for (const std::string& argument : sweep.arguments) text += " \\\n  " + shell_quoted(argument);
  text += " \\\n  --expect " + shell_quoted(sweep.expected) + ")\n\n";
  return text += kSubmit;
}

std::pair<std::size_t, std::size_t> task_share(std::size_t task, std::size_t num_tasks,
                                               std::size_t num_runs) {
  return {(task - 1) * num_runs / num_tasks, task * num_runs / num_tasks};
}

}  // namespace metronome
