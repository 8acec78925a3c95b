// SPDX-License-Identifier: Apache-2.0
#include "engines/command/pasted_command.h"

#include <algorithm>
#include <cctype>
#include <fmt/core.h>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/names.h"
#include "core/config/config_node.h"
#include "core/scenario/engine_product.h"
#include "engines/command/shell_words.h"
#include "engines/flags/known_flags.h"
#include "engines/log/log_text.h"

namespace metronome {
namespace {

using Words = std::vector<std::string>;

std::vector<const ServerArguments*> servers() {
  std::vector<const ServerArguments*> all;
  for (const EngineProduct& product : all_engines()) {
    if (product.arguments != nullptr) all.push_back(product.arguments);
  }
  return all;
}

// "0.11.0" of a text that begins with it or with "v" and it; empty: it begins otherwise.
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

// The server's command among these words; nullopt: there is none.
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

// The image's name may stand alone, with its command elsewhere.
bool is_only_image(const PastedCommand& command) { return command.words.empty(); }

// Scripts, lines of a shell, and the shell forms of a Dockerfile.
std::vector<PastedCommand> commands_of_shell(std::string_view text, const std::string& origin,
                                             ShellText& shell) {
  shell = split_shell(text, origin);
  std::vector<PastedCommand> commands;
  for (const Words& words : shell.commands) {
    if (std::optional<PastedCommand> command = command_in(words, origin)) {
      commands.push_back(std::move(*command));
    }
  }
  return commands;
}

Words words_of_json(std::string_view text) {
  Words words;
  try {
    const Json list = Json::parse(text);
    if (!list.is_array()) return {};
    for (const Json& item : list) {
      words.push_back(item.is_string() ? item.get<std::string>() : item.dump());
    }
  } catch (const JsonError&) {
    return {};
  }
  return words;
}

// The lines of a text, those that end in a backslash joined with the next.
std::vector<std::string> joined_lines(std::string_view text) {
  std::vector<std::string> lines(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') continue;
    if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] == '\n') {
      lines.back() += ' ';
      ++i;
    } else if (text[i] == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += text[i];
    }
  }
  return lines;
}

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) {
    text.remove_prefix(1);
  }
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.remove_suffix(1);
  }
  return text;
}

// FROM, ENTRYPOINT and CMD of a Dockerfile in that order; nullopt: it is none.
std::optional<PastedCommand> command_of_dockerfile(std::string_view text,
                                                   const std::string& origin) {
  Words image;
  Words entry;
  Words arguments;
  bool is_dockerfile = false;
  for (const std::string& whole : joined_lines(text)) {
    const std::string_view line = without_blanks(whole);
    const std::string_view keyword = line.substr(0, line.find(' '));
    const std::string name = lower_ascii(keyword);
    const std::string_view rest = without_blanks(line.substr(keyword.size()));
    if (name != "from" && name != "entrypoint" && name != "cmd") continue;
    if (keyword == name) continue;  // Dockerfiles write them in capitals
    is_dockerfile = true;
    Words words = words_of_json(rest);
    if (words.empty()) {
      for (Words& part : split_shell(rest, origin).commands) {
        words.insert(words.end(), part.begin(), part.end());
      }
    }
    (name == "from" ? image : name == "cmd" ? arguments : entry) = std::move(words);
  }
  if (!is_dockerfile) return std::nullopt;
  if (image.size() > 1) image.resize(1);  // AS NAME
  image.insert(image.end(), entry.begin(), entry.end());
  image.insert(image.end(), arguments.begin(), arguments.end());
  return command_in(image, origin);
}

Words words_of_node(const ConfigNode* node, const std::string& origin) {
  if (node == nullptr) return {};
  Words words;
  if (node->kind == ConfigNode::Kind::Sequence) {
    for (const ConfigNode& item : node->items) words.push_back(item.scalar);
    return words;
  }
  for (Words& part : split_shell(node->scalar, origin).commands) {
    words.insert(words.end(), part.begin(), part.end());
  }
  return words;
}

// "$(NAME)" of Kubernetes.
void fill_references(const std::map<std::string, std::string>& variables, std::string& word) {
  for (const auto& [name, value] : variables) {
    const std::string reference = "$(" + name + ")";
    for (std::size_t at = word.find(reference); at != std::string::npos;
         at = word.find(reference, at + value.size())) {
      word.replace(at, reference.size(), value);
    }
  }
}

// "vllm/vllm-openai:v0.11.0" of `image: NAME`, or of the parts `repository` and `tag` that Helm's
// values have in `image` or beside it.
std::string image_of(const ConfigNode& container) {
  const ConfigNode* image = container.find("image");
  if (image != nullptr && image->kind != ConfigNode::Kind::Map) return image->scalar;
  const ConfigNode& parts = image == nullptr ? container : *image;
  const ConfigNode* repository = parts.find("repository");
  if (repository == nullptr && image != nullptr) repository = parts.find("name");
  if (repository == nullptr) return {};
  const ConfigNode* tag = parts.find("tag");
  return repository->scalar + (tag == nullptr ? "" : ":" + tag->scalar);
}

// "--max-model-len" of "maxModelLen".
std::string flag_of_camel(std::string_view key) {
  std::string flag = "--";
  for (const char c : key) {
    const bool is_upper = std::isupper(static_cast<unsigned char>(c)) != 0;
    if (is_upper) flag += '-';
    flag += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return flag;
}

constexpr const char* kMoreArguments[] = {"args", "extraArgs", "additionalArgs"};

// The flags of `vllmConfig` in the values of vLLM's production stack: keys in camel case.
Words words_of_settings(const ConfigNode* settings, const std::string& origin) {
  Words words;
  if (settings == nullptr) return words;
  for (const ConfigNode::Entry& entry : settings->entries) {
    const bool is_list = std::find(std::begin(kMoreArguments), std::end(kMoreArguments),
                                   std::string_view(entry.key)) != std::end(kMoreArguments);
    const std::string& value = entry.value.scalar;
    if (is_list) {
      for (std::string& word : words_of_node(&entry.value, origin)) {
        words.push_back(std::move(word));
      }
    } else if (value == "true" || value == "false") {
      const std::string flag = flag_of_camel(entry.key);
      words.push_back(value == "true" ? flag : "--no-" + flag.substr(2));
    } else if (entry.value.kind == ConfigNode::Kind::Scalar && !value.empty()) {
      words.push_back(flag_of_camel(entry.key));
      words.push_back(value);
    }
  }
  return words;
}

// The words of a container, or of Helm's values for one: its image, its command, and its model
// where a key has it. A list of one word with blanks is a line for a shell.
Words words_of_container(const ConfigNode& node, const std::string& origin) {
  Words words;
  if (std::string image = image_of(node); !image.empty()) words.push_back(std::move(image));
  const ConfigNode* image = node.find("image");
  const auto add = [&words, &origin](const ConfigNode* arguments) {
    for (std::string& word : words_of_node(arguments, origin)) words.push_back(std::move(word));
  };
  for (const char* const key : {"entrypoint", "command"}) {
    if (image != nullptr) add(image->find(key));
    add(node.find(key));
  }
  for (const char* const key : {"modelURL", "storageUri"}) {  // the latter of KServe
    const ConfigNode* model = node.find(key);
    if (model != nullptr) words.insert(words.end(), {"--model", model->scalar});
  }
  for (std::string& word : words_of_settings(node.find("vllmConfig"), origin)) {
    words.push_back(std::move(word));
  }
  for (const char* const key : kMoreArguments) add(node.find(key));
  return words;
}

// The containers of a compose or Kubernetes file, or of Helm's values, at any depth.
void add_containers(const ConfigNode& node, const ServerArguments* expected,
                    const std::string& origin, std::vector<PastedCommand>& commands) {
  for (const ConfigNode& item : node.items) add_containers(item, expected, origin, commands);
  if (node.kind != ConfigNode::Kind::Map) return;
  Words words = words_of_container(node, origin);
  std::optional<PastedCommand> command = command_in(words, origin);
  const bool has_flags = !words.empty() && words.front().starts_with("--");
  if (!command && expected != nullptr && has_flags) {  // arguments, whose image is elsewhere
    command.emplace();
    command->server = expected;
    command->words = std::move(words);
  }
  if (command) {
    for (const char* const key : {"environment", "env"}) {
      const ConfigNode* variables = node.find(key);
      if (variables == nullptr) continue;
      for (const ConfigNode::Entry& entry : variables->entries) {
        command->variables[entry.key] = entry.value.scalar;
      }
      for (const ConfigNode& item : variables->items) {
        const ConfigNode* name = item.find("name");
        const ConfigNode* value = item.find("value");
        const std::size_t equals = item.scalar.find('=');
        if (name != nullptr && value != nullptr) command->variables[name->scalar] = value->scalar;
        if (name != nullptr || equals == std::string::npos) continue;
        command->variables[item.scalar.substr(0, equals)] = item.scalar.substr(equals + 1);
      }
    }
    for (std::string& word : command->words) fill_references(command->variables, word);
    commands.push_back(std::move(*command));
    return;
  }
  for (const ConfigNode::Entry& entry : node.entries) {
    add_containers(entry.value, expected, origin, commands);
  }
}

bool looks_like_yaml(std::string_view text) {
  for (const std::string& whole : joined_lines(text)) {
    std::string_view line = without_blanks(whole);
    if (line.starts_with("- ")) line = without_blanks(line.substr(2));
    for (const std::string_view key : {"command:", "args:", "entrypoint:", "image:", "extraArgs:",
                                       "additionalArgs:", "vllmConfig:"}) {
      if (line.starts_with(key)) return true;
    }
  }
  return false;
}

// The documents of a YAML file, which `---` divides.
std::vector<std::string> documents_of(std::string_view text) {
  std::vector<std::string> documents(1);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (without_blanks(line) == "---") {
      documents.emplace_back();
    } else {
      documents.back() += std::string(line) + "\n";
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return documents;
}

std::vector<PastedCommand> commands_of_yaml(std::string_view text, const ServerArguments* expected,
                                            const std::string& origin) {
  std::vector<PastedCommand> commands;
  for (const std::string& document : documents_of(text)) {
    try {
      add_containers(parse_config_text(document, origin), expected, origin, commands);
    } catch (const ConfigError& error) {
      throw UsageError(error.what());
    }
  }
  return commands;
}

// The arguments that a log says at the server's start.
std::optional<PastedCommand> command_of_log(std::string_view text) {
  for (const ServerArguments* server : servers()) {
    for (const std::string_view marker : server->log_markers) {
      const std::size_t found = text.find(marker);
      if (found == std::string_view::npos) continue;
      const std::string_view rest = text.substr(found + marker.size());
      const bool is_python = rest.starts_with('{') || rest.starts_with("Namespace(") ||
                             rest.starts_with("ServerArgs(");
      if (!is_python) continue;
      const std::string_view line = rest.substr(0, rest.find('\n'));
      auto logged = python_arguments(line);
      if (!logged) {  // cut at its end: what is whole counts
        const std::size_t last = line.rfind(", ");
        if (last != std::string_view::npos) {
          logged = python_arguments(std::string(line.substr(0, last)) +
                                    (line.front() == '{' ? "}" : ")"));
        }
      }
      if (!logged) continue;
      PastedCommand command;
      command.server = server;
      command.logged = std::move(*logged);
      for (const std::string_view before : {"LLM engine (v", "API server version "}) {
        const std::size_t at = text.find(before);
        if (at != std::string_view::npos && command.version.empty()) {
          command.version = leading_version(text.substr(at + before.size()));
        }
      }
      return command;
    }
  }
  return std::nullopt;
}

// Equal commands are one: people paste a command with its log.
PastedCommand only_one(std::vector<PastedCommand> commands, const ServerArguments* expected,
                       const std::string& origin) {
  const bool has_expected =
      std::any_of(commands.begin(), commands.end(),
                  [expected](const PastedCommand& one) { return one.server == expected; });
  if (has_expected) {
    std::erase_if(commands,
                  [expected](const PastedCommand& one) { return one.server != expected; });
  }
  const bool has_whole = std::any_of(commands.begin(), commands.end(),
                                     [](const PastedCommand& one) { return !is_only_image(one); });
  if (has_whole) std::erase_if(commands, is_only_image);
  const bool differ =
      std::any_of(commands.begin(), commands.end(), [&commands](const PastedCommand& one) {
        return one.server != commands.front().server || one.words != commands.front().words;
      });
  if (differ) {
    std::string names;
    for (const PastedCommand& one : commands) {
      names += (names.empty() ? "" : ", ") + std::string(one.server->title);
    }
    throw UsageError(fmt::format(
        "{}: starts {} servers ({}); allowed: the command of one, or --engine where they differ",
        origin, commands.size(), names));
  }
  return std::move(commands.front());
}

}  // namespace

std::string known_starts() {
  std::string text;
  for (const ServerArguments* server : servers()) {
    text += (text.empty() ? "" : ", ") + std::string(server->starts.front().words);
  }
  return text;
}

namespace {

// Whether the server has each flag among the words, under its whole name.
bool has_all_flags(const ServerArguments& server, const Words& words) {
  if (words.empty() || !words.front().starts_with('-')) return false;
  std::size_t num_flags = 0;
  for (const std::string& word : words) {
    if (!word.starts_with("--")) continue;
    const std::string name = word.substr(0, word.find_first_of("=."));
    const KnownFlag* flag = find_flag(server.policy, name);
    if (flag == nullptr) return false;
    std::string dashes = name;
    std::replace(dashes.begin() + 2, dashes.end(), '_', '-');
    const auto is_name = [&](std::string_view known) { return known == name || known == dashes; };
    const bool is_whole = is_name(flag->name) || is_negation(server.policy, name) ||
                          std::any_of(flag->aliases.begin(), flag->aliases.end(), is_name);
    if (!is_whole) return false;
    ++num_flags;
  }
  return num_flags > 0;
}

// Arguments whose start is elsewhere, as under `args:` of a Kubernetes file: of the only server
// that has all of them.
PastedCommand find_by_flags(std::string_view text, const std::string& origin) {
  std::vector<PastedCommand> found;
  for (const ServerArguments* server : servers()) {
    try {
      PastedCommand command = find_command(text, server, origin);
      if (has_all_flags(*server, command.words)) found.push_back(std::move(command));
    } catch (const UsageError&) {  // no flags at all
    }
  }
  if (found.size() == 1) return std::move(found.front());
  if (found.empty()) {
    throw UsageError(origin + ": starts no server that is known; allowed: a text with " +
                     known_starts() + ", or with the arguments in the log of one");
  }
  std::string names;
  for (const PastedCommand& one : found) {
    names += (names.empty() ? "" : ", ") + std::string(one.server->policy);
  }
  throw UsageError(origin + ": has flags of several servers, and starts none; allowed: with " +
                   "--engine: " + names);
}

}  // namespace

PastedCommand find_command(std::string_view text, const ServerArguments* expected,
                           const std::string& origin) {
  if (std::optional<PastedCommand> logged = command_of_log(text)) return std::move(*logged);
  if (looks_like_yaml(text)) {
    std::vector<PastedCommand> commands = commands_of_yaml(text, expected, origin);
    if (!commands.empty()) return only_one(std::move(commands), expected, origin);
  }
  if (std::optional<PastedCommand> docker = command_of_dockerfile(text, origin)) {
    return std::move(*docker);
  }
  ShellText shell;
  std::vector<PastedCommand> commands = commands_of_shell(text, origin, shell);
  if (commands.empty() && without_blanks(text).starts_with('#')) {  // a prompt of root
    std::string_view rest = without_blanks(text);
    rest.remove_prefix(1);
    commands = commands_of_shell(rest, origin, shell);
  }
  PastedCommand command;
  if (!commands.empty()) {
    command = only_one(std::move(commands), expected, origin);
  } else if (expected != nullptr && shell.commands.size() <= 1) {
    command.server = expected;
    if (!shell.commands.empty()) command.words = std::move(shell.commands.front());
  } else if (expected == nullptr) {
    return find_by_flags(text, origin);
  } else {
    throw UsageError(origin + ": starts no server that is known; allowed: a text with " +
                     known_starts() + ", or with the arguments in the log of one");
  }
  command.variables.insert(shell.variables.begin(), shell.variables.end());
  command.files = std::move(shell.files);
  return command;
}

GivenFlags read_flags(const ServerArguments& server, std::string_view text,
                      const std::string& origin) {
  const PastedCommand command = find_command(text, &server, origin);
  if (command.server != &server) {
    throw UsageError(origin + ": is a command of " + std::string(command.server->title) +
                     "; allowed: flags of " + std::string(server.title));
  }
  return flags_of(command, origin);
}

GivenFlags flags_of(const PastedCommand& command, const std::string& origin) {
  const ServerArguments& server = *command.server;
  GivenFlags given = command.logged ? read_logged_arguments(server, *command.logged)
                                    : read_flags(server, command.words, origin, command.files);
  for (const auto& [name, key] : server.variables) {
    const auto found = command.variables.find(std::string(name));
    if (found != command.variables.end()) {
      given.keys.emplace_back("scheduler." + std::string(key), found->second);
    }
  }
  for (const auto& [name, value] : command.variables) {
    const bool is_setting =
        std::any_of(server.variables.begin(), server.variables.end(),
                    [&name = name](const auto& variable) { return variable.first == name; });
    if (is_setting || server.variable_prefix.empty() || !name.starts_with(server.variable_prefix)) {
      continue;
    }
    given.not_modelled.emplace_back(name, "it is an environment variable that is not followed");
  }
  return given;
}

}  // namespace metronome
