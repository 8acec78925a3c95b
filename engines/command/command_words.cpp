// SPDX-License-Identifier: Apache-2.0
#include "engines/command/command_words.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "core/scenario/engine_product.h"
#include "engines/command/shell_words.h"

namespace metronome {
namespace {

using Words = std::vector<std::string>;

// The program of "/opt/venv/bin/vllm", "C:\\llama\\llama-server.exe", or "[vllm" of a printed list.
std::string_view program_of(std::string_view word) {
  const std::size_t list = word.rfind('[');
  if (list != std::string_view::npos) word.remove_prefix(list + 1);
  word.remove_prefix(std::min(word.find_first_not_of("'\"`"), word.size()));
  const std::size_t end = word.find_last_not_of("',\"`");
  word = word.substr(0, end == std::string_view::npos ? 0 : end + 1);
  constexpr std::string_view kProgram = ".exe";
  if (word.ends_with(kProgram)) word.remove_suffix(kProgram.size());
  return word;
}

// The number of words from `at` on that are this start; 0: they are not.
std::size_t matched_words(const Words& words, std::size_t at, std::string_view start) {
  std::size_t count = 0;
  while (!start.empty()) {
    const std::string_view part = start.substr(0, start.find(' '));
    start.remove_prefix(std::min(part.size() + 1, start.size()));
    if (at + count >= words.size()) return 0;
    const std::string_view word = program_of(words[at + count]);
    const char before = word.size() > part.size() ? word[word.size() - part.size() - 1] : ' ';
    const bool is_path = word.ends_with(part) && (before == '/' || before == '\\');
    if (word != part && !is_path) return 0;
    ++count;
  }
  return count;
}

// Whether a word is this image: "docker.io/vllm/vllm-openai:v0.11.0",
// "vllm/vllm-openai@sha256:...".
bool is_image(std::string_view word, std::string_view image, std::string& version) {
  const std::size_t found = word.find(image);
  if (found == std::string_view::npos) return false;
  if (found > 0 && word[found - 1] != '/') return false;
  std::string_view rest = word.substr(found + image.size());
  if (!rest.empty() && rest.front() != ':' && rest.front() != '@' && rest.front() != '-') {
    return false;
  }
  if (rest.starts_with(':')) version = leading_version(rest.substr(1));
  return true;
}

struct Match {
  const ServerArguments* server = nullptr;
  std::size_t end = 0;  // of the start's words
};

// The first program among the words, or else the first image.
Match find_start(const Words& words, bool wants_image, std::string& version) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    for (const ServerArguments* server : servers()) {
      for (const ServerStart& start : server->starts) {
        if (start.is_image != wants_image) continue;
        if (wants_image) {
          if (!is_image(words[i], start.words, version)) continue;
          if (!start.has_versions) version.clear();
          return {server, i + 1};
        } else if (const std::size_t count = matched_words(words, i, start.words); count > 0) {
          return {server, i + count};
        }
      }
    }
  }
  return {};
}

// Words that hold a command of their own, as behind `bash -c` and `ssh HOST`, come apart.
Words without_shells(const Words& words, const std::string& origin) {
  Words flat;
  std::string no_version;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool is_script =
        i > 0 && words[i].find_first_of(" \n") != std::string::npos && words[i].front() != '{';
    ShellText shell;
    if (is_script) shell = split_shell(words[i], origin);
    Words inner;
    for (Words& command : shell.commands) {
      if (find_start(command, false, no_version).server == nullptr) continue;
      inner = std::move(command);
      break;
    }
    if (inner.empty()) {
      flat.push_back(words[i]);
    } else {
      flat.insert(flat.end(), inner.begin(), inner.end());
    }
  }
  return flat;
}

// Variables of `docker run -e NAME=value` and of `env NAME=value`, before the server.
void add_variables(const Words& words, std::size_t end, PastedCommand& command) {
  for (std::size_t i = 0; i < end && i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    if (equals == std::string::npos || words[i].front() == '-') continue;
    command.variables.emplace(words[i].substr(0, equals), words[i].substr(equals + 1));
  }
}

// Whether a start is the beginning of a list that a program printed, "[vllm serve MODEL]" or
// "['vllm', 'serve', 'MODEL']", whose quotes are gone.
bool is_printed_list(const Words& words, std::size_t end) {
  const auto begins = words.begin() + static_cast<std::ptrdiff_t>(end);
  return std::any_of(words.begin(), begins,
                     [](const std::string& word) { return word.find('[') != word.npos; });
}

void trim_printed_list(Words& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string& word = words[i];
    const std::size_t end = word.find('[') == word.npos ? word.find(']') : word.npos;
    if (end != word.npos) {
      word.resize(end);
    } else if (word.ends_with(',')) {
      word.pop_back();
    }
    if (end == word.npos) continue;
    words.resize(i + 1);
    if (words.back().empty()) words.pop_back();
    return;
  }
}

}  // namespace

std::vector<const ServerArguments*> servers() {
  std::vector<const ServerArguments*> all;
  for (const EngineProduct& product : all_engines()) {
    if (product.arguments != nullptr) all.push_back(product.arguments);
  }
  return all;
}

std::string leading_version(std::string_view text) {
  if (text.starts_with('v')) text.remove_prefix(1);
  const auto is_digit = [&text](std::size_t at) {
    return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0;
  };
  std::size_t end = 0;
  while (is_digit(end)) ++end;
  if (end == 0 || end >= text.size() || text[end] != '.' || !is_digit(end + 1)) return {};
  while (end < text.size() &&
         (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '.')) {
    ++end;
  }
  return std::string(text.substr(0, end));
}

std::optional<PastedCommand> command_in(const Words& given, const std::string& origin) {
  const Words words = without_shells(given, origin);
  PastedCommand command;
  const Match image = find_start(words, true, command.version);
  std::string no_version;
  Match match = find_start(words, false, no_version);
  if (match.server == nullptr) match = image;
  if (match.server == nullptr) return std::nullopt;
  command.server = match.server;
  command.words.assign(words.begin() + static_cast<std::ptrdiff_t>(match.end), words.end());
  if (is_printed_list(words, match.end)) trim_printed_list(command.words);
  if (image.server != nullptr && image.server != match.server) command.version.clear();
  add_variables(words, match.end, command);
  return command;
}

}  // namespace metronome
