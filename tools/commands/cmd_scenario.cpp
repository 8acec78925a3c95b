// SPDX-License-Identifier: Apache-2.0
// `metronome scenario`: the YAML of a server's command, or of a model and a GPU.
#include <iostream>

#include "core/base/files.h"
#include "core/base/names.h"
#include "core/base/wrapped_text.h"
#include "reports/terminal/text.h"
#include "system/file_writer.h"
#include "tools/commands/cli.h"
#include "tools/commands/scenario_choice.h"

namespace metronome {
namespace {

constexpr CommandText kScenarioText = {
    .name = "scenario",
    .arguments = "OPTION...",
    .summary =
        "Prints the scenario that a server's command, or a model on a GPU, means: YAML for\n"
        "`metronome run`, `tune`, `sweep` and `diagnose`, which take these options themselves.\n"
        "Standard error names flags that are passed over, and settings that are not simulated.\n",
    .examples =
        "examples:\n"
        "  metronome scenario --command @start_server.sh --gpu h100 > mine.yaml\n"
        "  metronome scenario --command @docker-compose.yml --gpu h200 --rate 8 --chat\n"
        "  metronome scenario --model llama-3.3-70b --gpu h100 --tp 4 --clients 32 \\\n"
        "      --prompt 1000 --output 250\n"
        "\n"
        "exit codes: 0 done, 2 bad input\n",
    .file_name = "OPTION",
    .file_kind = "command",
    .files = FileCount::None};

}  // namespace

int scenario_command(const Arguments& arguments) {
  std::string out;
  ScenarioOptions scenario;
  OptionList options = {{"out FILE", &out, "write it to a new file instead"}};
  add_scenario_options(scenario, options);
  const auto line = parse_command(kScenarioText, options, arguments);
  if (!line) return kExitDone;
  is_composed(kScenarioText, *line, scenario);
  if (!out.empty() && path_exists(out)) {
    throw UsageError("--out: " + printable(out) + " exists; allowed: a new file");
  }
  const ComposedScenario composed = compose_scenario(scenario.request);
  for (const std::string& note : composed.notes) {
    std::cerr << "note: " << wrapped(printable(note), 6, output_columns());
  }
  if (out.empty()) {
    std::cout << composed.yaml;
  } else {
    replace_file(out, composed.yaml);
    std::cout << "scenario: " << printable(out) << '\n';
  }
  return kExitDone;
}

}  // namespace metronome
