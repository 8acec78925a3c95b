// The command line of a command: what it takes, and what stood on it.
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

// Files are what stands on the command line without an option.
enum class FileCount { None, One, OneOrMore };

struct CommandText {
  std::string_view name;         // "run"
  std::string_view arguments;    // "SCENARIO [OPTION...]", behind the name in the usage line
  std::string_view summary;      // lines for --help
  std::string_view examples;     // lines for --help
  std::string_view file_name{};  // "SCENARIO"
  std::string_view file_kind{};  // "scenario file"
  FileCount files = FileCount::One;
};

// Where the value of an option goes. An option of a bool has no value. An option of a vector may be
// given several times. An optional stays empty unless its option is given.
using OptionVariable =
    std::variant<bool*, std::int32_t*, std::int64_t*, std::size_t*, double*, std::optional<double>*,
                 std::string*, std::optional<std::string>*, std::vector<std::string>*>;

struct CommandOption {
  std::string_view syntax;  // "jobs,j N" for --jobs N and -j N; "quiet" for --quiet
  OptionVariable variable;  // keeps its value unless the option is given
  const char* help;
};
// In the order of --help. The option --help itself is understood.
using OptionList = std::vector<CommandOption>;

// What stood on a command line, beside the values of its options.
struct CommandLine {
  std::vector<std::string> files;    // none is empty
  std::vector<std::string> options;  // names of the options, each once, in order of the alphabet

  const std::string& file() const { return files.front(); }
  bool has(std::string_view option) const;
};

// Reads `arguments` into the variables of `options`. Nothing when --help was asked for and printed.
// Throws UsageError.
std::optional<CommandLine> parse_command(const CommandText& text, const OptionList& options,
                                         const Arguments& arguments);

}  // namespace metronome
