// SPDX-License-Identifier: Apache-2.0
#include "python/command_call.h"

#include <algorithm>
#include <iostream>
#include <iterator>
#include <mutex>
#include <sstream>

#include "core/base/error.h"
#include "core/scenario/unplaced_scenario.h"
#include "tools/commands/cli.h"
#include "tools/commands/scenario_choice.h"

namespace metronome::python {
namespace {

constexpr Command kCommands[] = {
    {"sweep", "", sweep_command},         {"tune", "", tune_command},
    {"diagnose", "", diagnose_command},   {"validate", "", validate_command},
    {"calibrate", "", calibrate_command}, {"report", "", report_command},
};

// Takes what is written to a stream, and gives it away at its own end.
class Capture {
 public:
  Capture(std::ostream& stream, std::string& text)
      : taken_(text), stream_(stream), own_(stream.rdbuf(buffer_.rdbuf())) {}
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    stream_.rdbuf(own_);
    stream_.clear();
    taken_ = buffer_.str();
  }

 private:
  std::ostringstream buffer_;
  std::string& taken_;
  std::ostream& stream_;
  std::streambuf* own_;
};

class Given {
 public:
  explicit Given(const std::optional<ScenarioSource>& given) {
    if (given) set_given_scenario({given->name, given->text, given->has_lines});
  }
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;
  ~Given() { set_given_scenario({}); }
};

constexpr CommandText kComposeText = {.name = "scenario",
                                      .arguments = "OPTION...",
                                      .summary = "",
                                      .examples = "",
                                      .file_name = "OPTION",
                                      .file_kind = "command",
                                      .files = FileCount::None};

}  // namespace

std::vector<std::string> callable_commands() {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  return names;
}

void call_command(const std::string& name, const std::vector<std::string>& arguments,
                  const std::optional<ScenarioSource>& given, CommandAnswer& answer) {
  const auto command = std::find_if(std::begin(kCommands), std::end(kCommands),
                                    [&](const Command& one) { return one.name == name; });
  METRONOME_CHECK(command != std::end(kCommands), "the package calls these commands alone");
  static std::mutex mutex;  // guards the streams and the given scenario
  const std::lock_guard lock(mutex);
  const Given scenario(given);
  const Capture output(std::cout, answer.output);
  const Capture errors(std::cerr, answer.errors);
  answer.exit_code = command->run(arguments);
}

ComposedScenario compose(const std::vector<std::string>& arguments) {
  ScenarioOptions scenario;
  OptionList options;
  add_scenario_options(scenario, options);
  const auto line = parse_command(kComposeText, options, arguments);
  METRONOME_CHECK(line.has_value(), "the package asks for no help");
  is_composed(kComposeText, *line, scenario);
  return compose_scenario(scenario.request);
}

}  // namespace metronome::python
