// SPDX-License-Identifier: Apache-2.0
// Commands of the program, called inside this process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "python/variant_results.h"
#include "study/compose/scenario_request.h"
#include "tools/commands/server_host.h"
#include "tools/commands/tune_trials.h"

namespace metronome::python {

struct CommandAnswer {
  int exit_code = 0;
  std::string output;  // of standard output
  std::string errors;  // of standard error
};

// Called in a process that was forked: a call that its parent makes is none of its own.
void forget_calls_of_parent();

// The commands that call_command() knows.
std::vector<std::string> callable_commands();

// Calls the command with these arguments. Nothing reaches the process's own streams. One call at a
// time: another thread's waits. `given`: what a scenario's name among the arguments stands for.
// Throws as the command does; then `answer` has what it printed before.
void call_command(const std::string& name, const std::vector<std::string>& arguments,
                  const std::optional<ScenarioSource>& given, CommandAnswer& answer);

// As call_command("tune"), with trials that other processes run.
void call_tune(const std::vector<std::string>& arguments,
               const std::optional<ScenarioSource>& given, const TrialElsewhere& elsewhere,
               CommandAnswer& answer);

// The trials of such a search, for a process that runs them. Throws as `tune` does.
std::unique_ptr<TuneTrials> tune_trials(const std::vector<std::string>& arguments,
                                        const std::optional<ScenarioSource>& given);

// Serves until the host stops it. Other calls wait until clients may connect; then `on_ready` gets
// the port, and `answer` has what was printed so far. Throws as `serve` does.
void call_serve(const std::vector<std::string>& arguments,
                const std::optional<ScenarioSource>& given, ServerHost& host,
                const std::function<void(std::uint16_t port)>& on_ready, CommandAnswer& answer);

// The scenario that options of the command line describe, such as --command and --gpu. Throws as
// the commands do.
ComposedScenario compose(const std::vector<std::string>& arguments);

}  // namespace metronome::python
