// SPDX-License-Identifier: Apache-2.0
// The scenario of a command: a file, or what options describe without one.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "study/compose/scenario_request.h"
#include "tools/commands/command_options.h"

namespace metronome {

struct ScenarioOptions {
  ScenarioRequest request;
  bool is_chat = false;  // --chat, short for --workload chat
  bool is_rag = false;

  // Whether any of the options is.
  bool is_given() const { return request.is_given() || is_chat || is_rag; }
};

// Appends the options that describe a scenario. A command with an option --engine of its own leaves
// out that one.
void add_scenario_options(ScenarioOptions& scenario, OptionList& options, bool has_engine = true);

// Whether one of these options was given. Reads --command's text where it is @FILE or -. Throws
// UsageError if both a file and options were given, or neither of them.
bool is_composed(const CommandText& text, const CommandLine& line, ScenarioOptions& scenario);

struct ChosenScenario {
  std::string path;                // to load
  std::vector<std::string> notes;  // what the answer must say
  bool is_composed = false;
  std::string engine_version = {};  // the release that the command or an option names; empty: none
};

// The file of the command line, or the composed one, which is written beside the folder of results:
// OUT.yaml, or results/NAME.yaml where `out` is empty.
ChosenScenario choose_scenario(const CommandText& text, const CommandLine& line,
                               ScenarioOptions& scenario, const std::string& out);

// Prints the notes of a composed scenario; nothing for a file of the user's.
void print_choice(std::ostream& out, const ChosenScenario& chosen);

}  // namespace metronome
