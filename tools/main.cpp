// metronome: the command line.
#include <exception>
#include <iostream>

#include "core/config_reader.h"
#include "core/error.h"
#include "tools/cli.h"

namespace metronome {
namespace {

constexpr Command kCommands[] = {
    {"run", "simulate a scenario and write its results", run_command},
    {"list", "models, hardware, policies, scenarios and scenario keys", list_command},
};

void print_help(std::ostream& out) {
  out << "usage: metronome COMMAND [OPTION...]\n\n"
         "Which scheduler and which prefill chunk size keep the token cadence of an LLM server\n"
         "steady, and at what cost?\n\ncommands:\n";
  for (const Command& command : kCommands) {
    out << "  " << command.name << std::string(8 - command.name.size(), ' ') << command.summary
        << '\n';
  }
  out << "\noptions:\n"
         "  --help     this text; `metronome COMMAND --help` tells about a command\n"
         "  --version  the version\n"
         "\nexamples:\n"
         "  metronome run scenarios/quickstart.yaml\n"
         "  metronome run scenarios/quickstart.yaml --set workload.arrivals.rate=20\n"
         "  metronome list policies\n";
}

int dispatch(const Arguments& arguments) {
  if (arguments.empty()) {
    print_help(std::cerr);
    return kExitBadInput;
  }
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h" || name == "help") {
    print_help(std::cout);
    return kExitDone;
  }
  if (name == "--version") {
    std::cout << "metronome " << METRONOME_VERSION << '\n';
    return kExitDone;
  }
  std::vector<std::string_view> known;
  for (const Command& command : kCommands) {
    if (command.name == name) return command.run({arguments.begin() + 1, arguments.end()});
    known.push_back(command.name);
  }
  throw UsageError("unknown command '" + name + "'" + did_you_mean(name, known) +
                   " (see `metronome --help`)");
}

int report_failure(const std::exception& error, ExitCode code) {
  std::cerr << "metronome: error: " << error.what() << '\n';
  return code;
}

}  // namespace

std::string did_you_mean(std::string_view word, std::span<const std::string_view> known) {
  const std::string_view nearest = nearest_name(word, known);
  if (nearest.empty()) return {};
  return ", did you mean '" + std::string(nearest) + "'?";
}

}  // namespace metronome

int main(int argc, char** argv) {
  using namespace metronome;
  try {
    const int code = dispatch(Arguments(argv + 1, argv + argc));
    std::cout.flush();
    if (!std::cout) throw std::runtime_error("cannot write to standard output");
    return code;
  } catch (const UsageError& error) {
    return report_failure(error, kExitBadInput);
  } catch (const ConfigError& error) {
    return report_failure(error, kExitBadInput);
  } catch (const Interrupted&) {
    std::cerr << "metronome: interrupted, no results written\n";
    return kExitInterrupted;
  } catch (const std::exception& error) {
    return report_failure(error, kExitRunFailed);
  }
}
