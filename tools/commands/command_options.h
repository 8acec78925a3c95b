// SPDX-License-Identifier: Apache-2.0
// Parses the command line of a command: its options and files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tools/commands/cli.h"

namespace metronome {

// Files are the arguments that do not belong to an option.
enum class FileCount { None, AtMostOne, One, OneOrMore };

struct CommandText {
  std::string_view name;         // "run"
  std::string_view arguments;    // "SCENARIO [OPTION...]", after the name in the usage line
  std::string_view summary;      // lines for --help
  std::string_view examples;     // lines for --help
  std::string_view file_name{};  // "SCENARIO"
  std::string_view file_kind{};  // "scenario file"
  FileCount files = FileCount::One;
};

// The variable that receives an option's value. A bool option has no value. A vector option may be
// given several times. An optional stays empty unless its option is given.
using OptionVariable =
    std::variant<bool*, std::int32_t*, std::int64_t*, std::optional<std::int64_t>*, std::size_t*,
                 double*, std::optional<double>*, std::string*, std::optional<std::string>*,
                 std::vector<std::string>*>;

// Whether a text may be empty. Where it may not, an empty shell variable is a mistake that would
// pass for an option that is not given.
enum class EmptyText { Refused, Allowed };

// The numbers that an option takes. A value that is not given need not be one of them.
struct WholeRange {
  std::int64_t least;
  std::int64_t most;
};
struct RealRange {
  double least;
  double most;
  std::string_view unit{};  // "seconds", for the error
  bool excludes_least = false;
  bool is_share = false;  // a percentage is a likely mistake
};
using NumberRange = std::variant<std::monostate, WholeRange, RealRange>;

constexpr WholeRange kJobs = {1, 1024};  // of --jobs

struct CommandOption {
  std::string_view syntax;  // "jobs,j N" for --jobs N and -j N; "quiet" for --quiet
  OptionVariable variable;  // keeps its value unless the option is given
  const char* help;
  EmptyText empty = EmptyText::Refused;
  NumberRange range = {};
};
// In the order of --help. The option --help itself is built in.
using OptionList = std::vector<CommandOption>;

// The content of a command line, except the values of its options.
struct CommandLine {
  std::vector<std::string> files;    // none is empty
  std::vector<std::string> options;  // names of the given options, each once, in alphabetical order

  const std::string& file() const { return files.front(); }
  bool has(std::string_view option) const;
};

// Reads `arguments` into the variables of `options`. nullopt if --help was given and printed.
// Throws UsageError.
std::optional<CommandLine> parse_command(const CommandText& text, const OptionList& options,
                                         const Arguments& arguments);

}  // namespace metronome
