// SPDX-License-Identifier: Apache-2.0
#include "python/command_call.h"

#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
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
    {"list", "", list_command},
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

// Guards the streams and the given scenario.
std::unique_ptr<std::mutex>& one_call() {
  static auto mutex = std::make_unique<std::mutex>();
  return mutex;
}

// The only call of a command while it exists. `answer` gets what was printed, at its end.
class Call {
 public:
  Call(const std::optional<ScenarioSource>& given, CommandAnswer& answer)
      : lock_(*one_call()),
        given_(given),
        output_(std::cout, answer.output),
        errors_(std::cerr, answer.errors) {}

 private:
  std::lock_guard<std::mutex> lock_;
  Given given_;
  Capture output_, errors_;
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

void forget_calls_of_parent() {
  (void)one_call().release();  // a thread of the parent may have it
  one_call() = std::make_unique<std::mutex>();
}

void call_command(const std::string& name, const std::vector<std::string>& arguments,
                  const std::optional<ScenarioSource>& given, CommandAnswer& answer) {
  const auto command = std::find_if(std::begin(kCommands), std::end(kCommands),
                                    [&](const Command& one) { return one.name == name; });
  METRONOME_CHECK(command != std::end(kCommands), "the package calls these commands alone");
  const Call call(given, answer);
  answer.exit_code = command->run(arguments);
}

void call_tune(const std::vector<std::string>& arguments,
               const std::optional<ScenarioSource>& given, const TrialElsewhere& elsewhere,
               CommandAnswer& answer) {
  const Call call(given, answer);
  answer.exit_code = tune_command(arguments, elsewhere);
}

std::unique_ptr<TuneTrials> tune_trials(const std::vector<std::string>& arguments,
                                        const std::optional<ScenarioSource>& given) {
  CommandAnswer printed;
  const Call call(given, printed);
  return std::make_unique<TuneTrials>(arguments);
}

void call_serve(const std::vector<std::string>& arguments,
                const std::optional<ScenarioSource>& given, ServerHost& host,
                const std::function<void(std::uint16_t port)>& on_ready, CommandAnswer& answer) {
  std::optional<Call> starting(std::in_place, given, answer);
  host.on_ready = [&](std::uint16_t port) {
    starting.reset();
    on_ready(port);
  };
  answer.exit_code = serve_command(arguments, host);
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
