// SPDX-License-Identifier: Apache-2.0
// Shared by the subcommands of `metronome`: their table and exit codes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/command_errors.h"

namespace metronome {

enum ExitCode : int {
  kExitDone = 0,
  kExitRunFailed = 1,
  kExitBadInput = 2,
  kExitNotKept = 3,   // `verify`: a promise; `advise`: a goal
  kExitSignal = 128,  // + the number of the signal, as shells report it
};

using Arguments = std::vector<std::string>;

struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(const Arguments& arguments);  // without the command's name
};

int run_command(const Arguments& arguments);
int init_command(const Arguments& arguments);
int scenario_command(const Arguments& arguments);
int workload_command(const Arguments& arguments);
int sweep_command(const Arguments& arguments);
int tune_command(const Arguments& arguments);
int serve_command(const Arguments& arguments);
int chat_command(const Arguments& arguments);
int bench_command(const Arguments& arguments);
int bench_serve_command(const Arguments& arguments);
int calibrate_command(const Arguments& arguments);
int validate_command(const Arguments& arguments);
int verify_command(const Arguments& arguments);
int report_command(const Arguments& arguments);
int list_command(const Arguments& arguments);
int advise_command(const Arguments& arguments);
int diagnose_command(const Arguments& arguments);
int decisions_command(const Arguments& arguments);

}  // namespace metronome
