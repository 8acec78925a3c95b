// SPDX-License-Identifier: Apache-2.0
// Commands of the program, called inside this process.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "python/variant_results.h"
#include "study/compose/scenario_request.h"

namespace metronome::python {

struct CommandAnswer {
  int exit_code = 0;
  std::string output;  // of standard output
  std::string errors;  // of standard error
};

// The commands that call_command() knows.
std::vector<std::string> callable_commands();

// Calls the command with these arguments. Nothing reaches the process's own streams. One call at a
// time: another thread's waits. `given`: what a scenario's name among the arguments stands for.
// Throws as the command does; then `answer` has what it printed before.
void call_command(const std::string& name, const std::vector<std::string>& arguments,
                  const std::optional<ScenarioSource>& given, CommandAnswer& answer);

// The scenario that options of the command line describe, such as --command and --gpu. Throws as
// the commands do.
ComposedScenario compose(const std::vector<std::string>& arguments);

}  // namespace metronome::python
