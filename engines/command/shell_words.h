// SPDX-License-Identifier: Apache-2.0
// Splits the text of a shell into commands and words, as far as a server's start needs it: quotes,
// continued lines, comments, variables and lists of words that the text itself sets, and
// here-documents. PowerShell and cmd.exe, too. A line that begins with a flag goes on with the
// command before it: reports often lose the backslashes.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace metronome {

struct ShellText {
  // The words of each simple command; redirections are left out.
  std::vector<std::vector<std::string>> commands;
  std::map<std::string, std::string> variables;  // set in the text: NAME=value, export NAME=value
  std::map<std::string, std::string> files;      // written by here-documents: name, content
};

// Throws UsageError, which begins with `origin`, for a quote that does not end.
ShellText split_shell(std::string_view text, const std::string& origin);

}  // namespace metronome
