// What the subcommands of `metronome` share: their table, exit codes and errors.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace metronome {

enum ExitCode : int {
  kExitDone = 0,
  kExitRunFailed = 1,
  kExitBadInput = 2,
  kExitSignal = 128,  // + the number of the signal, as shells report it
};

// A command line that cannot be understood. what() is one line.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The user pressed Ctrl-C, or another signal asked the program to end.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

// Standard output takes no more text.
class OutputFailed : public std::runtime_error {
 public:
  OutputFailed() : std::runtime_error("cannot write to standard output") {}
};

using Arguments = std::vector<std::string>;

struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(const Arguments& arguments);  // without the command's own name
};

int run_command(const Arguments& arguments);
int sweep_command(const Arguments& arguments);
int tune_command(const Arguments& arguments);
int serve_command(const Arguments& arguments);
int bench_command(const Arguments& arguments);
int bench_serve_command(const Arguments& arguments);
int calibrate_command(const Arguments& arguments);
int validate_command(const Arguments& arguments);
int report_command(const Arguments& arguments);
int list_command(const Arguments& arguments);
int diagnose_command(const Arguments& arguments);
int decisions_command(const Arguments& arguments);

// `, did you mean 'x'?` for the known word nearest to `word`, or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> known);

}  // namespace metronome
