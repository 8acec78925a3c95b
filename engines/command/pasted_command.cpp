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
#include "engines/command/command_words.h"
#include "engines/command/shell_words.h"
#include "engines/flags/known_flags.h"
#include "engines/log/log_text.h"

namespace metronome {
namespace {

using Words = std::vector<std::string>;

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
