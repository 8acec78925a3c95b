// The command line of a command that works on one file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli.h"

namespace boost::program_options {
class options_description;
class variables_map;
}  // namespace boost::program_options

namespace metronome {

struct CommandText {
  std::string_view name;       // "run"
  std::string_view arguments;  // "SCENARIO [OPTION...]", behind the name in the usage line
  std::string_view summary;    // lines for --help
  std::string_view examples;   // lines for --help
  std::string_view file_name;  // "SCENARIO"
  std::string_view file_kind;  // "scenario file"
};

// As parse_command, for a command that takes one or more files. Returns them, none empty.
std::optional<std::vector<std::string>> parse_command_with_files(
    const CommandText& text, const boost::program_options::options_description& options,
    const Arguments& arguments, boost::program_options::variables_map& values);

// Reads `arguments` into the variables that `options` names, and into `values`. Returns the file,
// which is not empty; nothing when --help was asked for and printed. Throws UsageError.
std::optional<std::string> parse_command(const CommandText& text,
                                         const boost::program_options::options_description& options,
                                         const Arguments& arguments,
                                         boost::program_options::variables_map& values);

}  // namespace metronome
