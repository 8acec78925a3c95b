// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "models/text/tokenizer.h"
#include "models/text/utf8.h"
#include "reports/terminal/text.h"
#include "serve/server/engine_thread.h"
#include "serve/server/local_client.h"
#include "study/run/variant_run.h"
#include "system/progress.h"
#include "tools/commands/chat_demo.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"
#include "tools/commands/local_engine.h"
#include "tools/commands/local_model.h"
#include "tools/commands/run_choice.h"

namespace metronome {
namespace {

constexpr double kTemperature = 0.7;  // where neither the user nor the model names one

struct ChatOptions {
  std::string model;
  std::vector<std::string> assignments;
  LocalModelChoice choice = {.backend = "cpu"};
  std::string system;
  std::optional<std::string> prompt;
  std::int64_t max_tokens = 512;
  std::optional<double> temperature;
  std::string seed;
  bool runs_demo = false;
};

constexpr CommandText kChatText = {
    .name = "chat",
    .arguments = "MODEL [OPTION...]",
    .summary =
        "Talks to a model in the terminal. MODEL is a name, a GGUF file or a folder\n"
        "(`tools/model smollm2` fetches a small one), or a scenario (.yaml), whose scheduler and\n"
        "settings then hold. Beneath each answer stand its time to the first token and the gaps\n"
        "between tokens. An empty line or /quit ends the chat, /new forgets what was said.\n",
    .examples =
        "examples:\n"
        "  tools/model smollm2\n"
        "  metronome chat smollm2\n"
        "  metronome chat smollm2 --prompt \"Why is the sky blue?\" --temperature 0\n"
        "  metronome chat smollm2 --demo\n"
        "  metronome chat smollm2 --set scheduler.max_num_batched_tokens=32\n"
        "\n"
        "exit codes: 0 done, 1 the engine failed, 2 bad input\n",
    .file_name = "MODEL",
    .file_kind = "model"};

OptionList option_list(ChatOptions& options) {
  return {
      {"prompt TEXT", &options.prompt, "ask this, print the answer and end", EmptyText::Allowed},
      {"system TEXT", &options.system, "the system message", EmptyText::Allowed},
      {"max-tokens N", &options.max_tokens, "longest answer (default: 512)", EmptyText::Refused,
       WholeRange{1, 1'000'000}},
      {"temperature T", &options.temperature,
       "0: always the likeliest token (default: that of generation_config.json, else 0.7)",
       EmptyText::Refused, RealRange{0, 2}},
      {"seed N", &options.seed, "of the answers' random choices (default: the scenario's)"},
      {"demo", &options.runs_demo,
       "let a long prompt arrive while a short one is answered, in one step and in chunks; print "
       "steps and gaps"},
      {"chat-template FILE", &options.choice.chat_template,
       "a Jinja template that writes conversations as prompts (default: the model's own)"},
      {"tokenizer FILE", &options.choice.tokenizer,
       "a tokenizer.json or a GGUF file (default: the model's own)"},
      {"generation-config SOURCE", &options.choice.generation_config,
       "sampling defaults: of the model's generation_config.json (auto, the default), none "
       "(vllm), or of the file in a folder"},
      {"backend NAME", &options.choice.backend,
       "cpu (the default), cuda, or sim, which needs --set hardware=NAME for a MODEL that is no "
       "scenario"},
      {"variant NAME", &options.choice.variant, "of a scenario with several"},
      {"set KEY=VALUE", &options.assignments,
       "override a key of the scenario (see `metronome list keys`); repeatable"},
  };
}

void check_text(const char* option, std::string_view text) {
  if (is_utf8(text)) return;
  throw UsageError(std::string(option) + ": is not UTF-8; allowed: a text in UTF-8");
}

void check(const ChatOptions& options) {
  check_backend(options.choice.backend);
  check_text("--system", options.system);
  if (options.prompt) check_text("--prompt", *options.prompt);
  if (!options.seed.empty()) parse_seed(options.seed);
}

// `content` is UTF-8.
Json message(const char* role, std::string_view content) {
  Json json = Json::object();
  json["role"] = role;
  json["content"] = std::string(content);
  return json;
}

// "first token 61.2 ms (34 prompt tokens, 0 of them cached); then 86 tokens, gaps p50 14.8 ms,
// longest 22.4 ms, 65.1 tokens/s (cut at 87 tokens)".
std::string times_text(const LocalAnswer& answer) {
  std::string text =
      fmt::format("first token {} ({}, {} of them cached)", shown_ms(answer.ttft()),
                  count_text(answer.num_prompt_tokens, "prompt token"), answer.num_cached_tokens);
  std::string cut;
  if (answer.reason == EndReason::Length) {
    cut = " (cut at " + count_text(answer.token_times.size(), "token") + ")";
  }
  std::vector<TimeNs> gaps = answer.gaps();
  if (gaps.empty()) return text + cut;
  std::sort(gaps.begin(), gaps.end());
  const double seconds =
      static_cast<double>(answer.token_times.back() - answer.token_times.front()) * 1e-9;
  return text + "; then " + count_text(gaps.size(), "token") + ", gaps p50 " +
         shown_ms(gaps[gaps.size() / 2]) + ", longest " + shown_ms(gaps.back()) + ", " +
         fixed_text(static_cast<double>(gaps.size()) / seconds, 1) + " tokens/s" + cut;
}

// Line breaks and tabs stay. Other control characters, which could move the cursor, are escaped.
std::string printable_lines(std::string_view text) {
  std::string lines;
  while (true) {
    const std::size_t end = text.find_first_of("\n\t");
    lines += printable(text.substr(0, end));
    if (end == text.npos) return lines;
    lines += text[end];
    text.remove_prefix(end + 1);
  }
}

class Chat {
 public:
  Chat(const ChatOptions& options, const ServedModel& model, LocalClient& client)
      : options_(options), model_(model), client_(client) {
    reset();
  }

  void reset() {
    messages_ = Json::array();
    if (!options_.system.empty()) messages_.push_back(message("system", options_.system));
  }

  // Asks, prints the answer as it comes, and remembers both. Returns why the engine failed to
  // answer; empty: it answered. Throws ApiError where nothing could be asked. `text` is UTF-8.
  std::string say_and_answer(const std::string& text) {
    Json body = Json::object();
    body["messages"] = messages_;
    body["messages"].push_back(message("user", text));
    body["temperature"] =
        options_.temperature.value_or(model_.sampling.temperature.value_or(kTemperature));
    const std::int64_t room = model_.max_model_len;
    body["max_tokens"] = std::min(options_.max_tokens, room);
    if (!options_.seed.empty()) body["seed"] = parse_seed(options_.seed);
    const std::uint64_t number = ask_within(body);
    const LocalAnswer answer = client_.finish(number, [](std::uint64_t, std::string_view piece) {
      std::cout << printable_lines(piece) << std::flush;
    });
    if (!answer.token_times.empty()) {
      std::cout << (answer.text.ends_with('\n') ? "" : "\n") << dim(times_text(answer)) << "\n"
                << std::flush;
    }
    if (!answer.error.empty()) return answer.error;
    messages_.push_back(message("user", text));
    messages_.push_back(message("assistant", answer.text));
    return "";
  }

 private:
  // With as many output tokens as the context has room for, if it has less than asked.
  std::uint64_t ask_within(Json& body) {
    try {
      return client_.ask(body);
    } catch (const ApiError&) {
      body["max_tokens"] = Json();
      return client_.ask(body);
    }
  }

  static std::string dim(const std::string& text) {
    return is_capable_terminal(STDOUT_FILENO) ? "\033[2m" + text + "\033[0m" : text;
  }

  const ChatOptions& options_;
  const ServedModel& model_;
  LocalClient& client_;
  Json messages_;
};

// A line of the chat.
void say_line(Chat& chat, std::string_view line) {
  std::string text;
  append_replaced(line, text);
  try {
    const std::string error = chat.say_and_answer(text);
    if (!error.empty()) std::cout << "(" << one_line(error) << ")\n" << std::flush;
  } catch (const ApiError& error) {
    std::cout << "(not asked: " << one_line(error.what()) << "; /new begins a new chat)\n"
              << std::flush;
  }
}

// The only question of a command. Returns an exit code.
int say_prompt(Chat& chat, const std::string& prompt) {
  try {
    const std::string error = chat.say_and_answer(prompt);
    if (error.empty()) return kExitDone;
    std::cerr << "metronome: error: " << one_line(error) << '\n';
    return kExitRunFailed;
  } catch (const ApiError& error) {
    throw UsageError(std::string("--prompt: ") + error.what());
  }
}

// Reads lines until the end, an empty line or /quit.
void converse(Chat& chat) {
  const bool is_typed = isatty(STDIN_FILENO) != 0;
  std::string line;
  while (true) {
    if (is_typed) std::cout << "> " << std::flush;
    if (!std::getline(std::cin, line)) break;
    if (line.ends_with('\r')) line.pop_back();  // of a file with Windows' line ends
    throw_if_interrupted();
    if (line.empty() || line == "/quit") break;
    if (line == "/new") {
      chat.reset();
    } else {
      say_line(chat, line);
    }
  }
  throw_if_interrupted();
}

int chat(const ChatOptions& options) {
  // The scheduler of the demonstration is not that of a scenario.
  if (options.runs_demo && is_scenario_name(options.model)) {
    throw UsageError("--demo: needs a model; " + printable(options.model) +
                     " is a scenario; allowed: a name, a GGUF file or a folder");
  }
  LocalModel local(options.model, options.assignments, options.choice);
  if (options.runs_demo) return run_chat_demo(local);
  local.run().load([] { throw_if_interrupted(); });
  LocalEngine here(local);
  LocalClient& client = here.client;
  if (options.prompt) {
    for (const std::string& warning : local.warnings()) {
      std::cerr << "warning: " << one_line(warning) << '\n';
    }
  } else {
    local.print_header();
  }
  catch_signals();
  EngineThread thread(here.engine, here.clock, {},
                      [&](const std::string& error) { client.fail(error); });
  Chat session(options, local.served(), client);
  if (options.prompt) return say_prompt(session, *options.prompt);
  converse(session);
  return kExitDone;
}

}  // namespace

int chat_command(const Arguments& arguments) {
  ChatOptions options;
  const auto line = parse_command(kChatText, option_list(options), arguments);
  if (!line) return kExitDone;
  options.model = line->file();
  check(options);
  for (const char* name : {"prompt", "system", "max-tokens", "temperature", "seed"}) {
    if (!options.runs_demo || !line->has(name)) continue;
    throw UsageError("--demo: has prompts and settings of its own; allowed: without --" +
                     std::string(name));
  }
  return chat(options);
}

}  // namespace metronome
