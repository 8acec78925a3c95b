// SPDX-License-Identifier: Apache-2.0
// metronome: the command line program.
#include <csignal>
#include <exception>
#include <filesystem>
#include <fmt/core.h>
#include <iostream>
#include <new>

#include "core/base/clip.h"
#include "core/base/error.h"
#include "core/config/config_reader.h"
#include "core/model/model_catalogue.h"
#include "engines/engines.h"
#include "models/models.h"
#include "system/parallel.h"
#include "system/progress.h"
#include "tools/commands/cli.h"
#include "tools/commands/run_choice.h"

namespace metronome {
namespace {

constexpr Command kCommands[] = {
    {"run", "run a scenario, simulated or for real, and write its results", run_command},
    {"init", "write a commented scenario to start from", init_command},
    {"scenario", "print the scenario that a server's command means", scenario_command},
    {"workload", "describe a scenario's workload and its load on the engine", workload_command},
    {"sweep", "run a scenario at every point of a grid or a list of settings", sweep_command},
    {"tune", "find the settings that carry the highest load within an SLO", tune_command},
    {"serve", "serve a scenario's model and engine with an OpenAI-compatible API", serve_command},
    {"chat", "chat with a model in the terminal, and see TTFT and ITL", chat_command},
    {"bench", "time a model's steps on this GPU, beside their lower bounds", bench_command},
    {"bench-serve", "send a scenario's load to an OpenAI-compatible server, and measure it",
     bench_serve_command},
    {"diagnose", "find why a run's tokens came late, and which prefill delayed them",
     diagnose_command},
    {"advise", "watch a running server: its load, broken goals, causes, and flags that help",
     advise_command},
    {"calibrate", "make a cost model from measured times", calibrate_command},
    {"validate", "compare a simulated run with a measured one", validate_command},
    {"verify", "say whether a change of a server's settings did what was promised", verify_command},
    {"report", "write report.html from one or more result folders", report_command},
    {"list", "list models, hardware, policies, scenarios and scenario keys", list_command},
    {"decisions", "compare scheduling decisions with logs of real engines", decisions_command},
};

void print_help(std::ostream& out) {
  out << "usage: metronome COMMAND [OPTION...]\n\n"
         "Which scheduler and prefill chunk size keep the inter-token latency of an LLM server\n"
         "low, and at what cost?\n\ncommands:\n";
  for (const Command& command : kCommands) {
    out << "  " << command.name << std::string(13 - command.name.size(), ' ') << command.summary
        << '\n';
  }
  out << "\noptions:\n"
         "  --help     this text; `metronome COMMAND --help` describes a command\n"
         "  --version  the version\n"
         "\nexamples:\n"
         "  metronome run quickstart\n"
         "  metronome run quickstart --set workload.arrivals.rate=20\n"
         "  metronome init mine.yaml --model Qwen/Qwen3-8B --hardware h200\n";
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

int report_failure(std::string_view message, ExitCode code) {
  std::cerr << "metronome: error: " << printable(bounded_message(message)) << '\n';
  return code;
}

// A stack that has to grow where memory has ended is a segmentation fault. So its pages are taken
// before.
[[gnu::noinline]] void touch_stack_pages() {
  constexpr std::size_t kTaken = 320 * 1024;
  constexpr std::size_t kPage = 4096;
  [[maybe_unused]] volatile char pages[kTaken];
  for (std::size_t i = 0; i < kTaken; i += kPage) pages[i] = 0;
}

// Deep calls would end the program without a word.
void require_stack() {
  constexpr std::size_t kLeast = 512 * 1024;
  const std::size_t size = prepare_stacks();
  if (size >= kLeast) return touch_stack_pages();
  throw UsageError(fmt::format(
      "the stack is limited to {} KiB; allowed: at least 512 KiB (ulimit -s)", size / 1024));
}

}  // namespace

}  // namespace metronome

int main(int argc, char** argv) {
  using namespace metronome;
  try {
    require_stack();
    std::signal(SIGXFSZ, SIG_IGN);  // a write beyond ulimit -f then fails as on a full disk
    register_engines();
    register_models();
    register_backends();
    set_models_folder(fetched_models_folder());
    const int code = dispatch(Arguments(argv + 1, argv + argc));
    std::cout.flush();
    // A reader that closes the pipe has seen enough; that is not an error.
    if (!std::cout && !is_reader_gone()) throw OutputFailed();
    return code;
  } catch (const UsageError& error) {
    return report_failure(error.what(), kExitBadInput);
  } catch (const ConfigError& error) {
    return report_failure(error.what(), kExitBadInput);
  } catch (const Interrupted&) {
    std::cerr.clear();  // the signal may have interrupted a write
    std::cerr << "metronome: interrupted, no results written\n";
    return kExitSignal + interrupting_signal();
  } catch (const OutputFailed& error) {
    return is_reader_gone() ? kExitRunFailed : report_failure(error.what(), kExitRunFailed);
  } catch (const std::bad_alloc&) {
    return report_failure("out of memory", kExitRunFailed);
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string& path = error.path1().native();
    return report_failure((path.empty() ? "" : path + ": ") + error.code().message(),
                          kExitRunFailed);
  } catch (const std::exception& error) {
    return report_failure(error.what(), kExitRunFailed);
  }
}
