// SPDX-License-Identifier: Apache-2.0
#include "models/text/chat_template.h"

#include <algorithm>
#include <fmt/core.h>
#include <initializer_list>
#include <stdexcept>
#include <string_view>

#include "core/base/json.h"
#include "models/text/utf8.h"

namespace metronome {
namespace {

// The characters that Python's str.strip removes: white space, and the separators U+001C to U+001F.
bool is_trimmed(char32_t c) { return is_white_space(c) || (c >= 0x1c && c <= 0x1f); }

std::string_view trimmed(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char first = read_utf8(text);
    if (!is_trimmed(first.code_point)) break;
    text.remove_prefix(first.num_bytes);
  }
  while (!text.empty()) {
    std::size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
    if (!is_trimmed(read_utf8(text.substr(begin)).code_point)) break;
    text = text.substr(0, begin);
  }
  return text;
}

std::string_view without_leading_breaks(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

std::string_view without_trailing_breaks(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

std::string shown_role(std::string_view role) {
  constexpr std::size_t kMaxShown = 40;
  std::string text;
  append_replaced(role.substr(0, kMaxShown), text);
  return "\"" + text + (role.size() > kMaxShown ? "...\"" : "\"");
}

void check_roles(std::span<const ChatMessage> messages,
                 std::initializer_list<std::string_view> roles) {
  if (messages.empty()) throw std::invalid_argument("messages must have at least one message");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (std::find(roles.begin(), roles.end(), messages[i].role) != roles.end()) continue;
    std::string names;
    for (const std::string_view role : roles) names.append(names.empty() ? "" : ", ").append(role);
    throw std::invalid_argument(
        fmt::format("messages[{}].role is {}; this model's chat template supports {}", i,
                    shown_role(messages[i].role), names));
  }
}

std::string render_plain(std::span<const ChatMessage> messages, const ChatOptions& options) {
  check_roles(messages, {"system", "user", "assistant", "tool"});
  std::string prompt;
  for (const ChatMessage& message : messages) {
    prompt.append(message.role).append(": ").append(message.content).append("\n");
  }
  if (options.add_generation_prompt) prompt += "assistant:";
  return prompt;
}

void add_llama3_header(std::string_view role, std::string& prompt) {
  prompt.append("<|start_header_id|>").append(role).append("<|end_header_id|>\n\n");
}

std::string render_llama3(std::span<const ChatMessage> messages, const ChatOptions& options) {
  check_roles(messages, {"system", "user", "assistant", "tool", "ipython"});
  std::string prompt = "<|begin_of_text|>";
  add_llama3_header("system", prompt);
  prompt.append("Cutting Knowledge Date: December 2023\nToday Date: ");
  prompt.append(options.date).append("\n\n");
  if (messages.front().role == "system") {
    prompt.append(trimmed(messages.front().content));
    messages = messages.subspan(1);
  }
  prompt += "<|eot_id|>";
  for (const ChatMessage& message : messages) {
    if (message.role == "tool" || message.role == "ipython") {
      add_llama3_header("ipython", prompt);
      prompt += Json(message.content).dump({.replaces_bad_utf8 = true});
    } else {
      add_llama3_header(message.role, prompt);
      prompt += trimmed(message.content);
    }
    prompt += "<|eot_id|>";
  }
  if (options.add_generation_prompt) add_llama3_header("assistant", prompt);
  return prompt;
}

// The index of the last user question. The answers after it belong to the current question.
std::size_t last_question(std::span<const ChatMessage> messages) {
  for (std::size_t i = messages.size(); i-- > 0;) {
    const std::string& content = messages[i].content;
    const bool is_tool_response =
        content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
    if (messages[i].role == "user" && !is_tool_response) return i;
  }
  return messages.size() - 1;
}

void add_qwen3_answer(std::string_view content, bool is_current, bool is_last,
                      std::string& prompt) {
  constexpr std::string_view kBegin = "<think>", kEnd = "</think>";
  std::string_view reasoning;
  if (const std::size_t first = content.find(kEnd); first != content.npos) {
    reasoning = without_trailing_breaks(content.substr(0, first));
    if (const std::size_t begin = reasoning.rfind(kBegin); begin != reasoning.npos) {
      reasoning.remove_prefix(begin + kBegin.size());
    }
    reasoning = without_leading_breaks(reasoning);
    content.remove_prefix(content.rfind(kEnd) + kEnd.size());
    content = without_leading_breaks(content);
  }
  prompt += "<|im_start|>assistant\n";
  if (is_current && (is_last || !reasoning.empty())) {
    prompt.append("<think>\n").append(without_trailing_breaks(reasoning));
    prompt.append("\n</think>\n\n").append(without_leading_breaks(content));
  } else {
    prompt += content;
  }
  prompt += "<|im_end|>\n";
}

std::string render_qwen3(std::span<const ChatMessage> messages, const ChatOptions& options) {
  check_roles(messages, {"system", "user", "assistant", "tool"});
  const std::size_t question = last_question(messages);
  std::string prompt;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    const bool is_last = i + 1 == messages.size();
    if (message.role == "assistant") {
      add_qwen3_answer(message.content, i > question, is_last, prompt);
    } else if (message.role == "tool") {
      if (i == 0 || messages[i - 1].role != "tool") prompt += "<|im_start|>user";
      prompt.append("\n<tool_response>\n").append(message.content).append("\n</tool_response>");
      if (is_last || messages[i + 1].role != "tool") prompt += "<|im_end|>\n";
    } else {
      prompt.append("<|im_start|>").append(message.role).append("\n");
      prompt.append(message.content).append("<|im_end|>\n");
    }
  }
  if (options.add_generation_prompt) {
    prompt += "<|im_start|>assistant\n";
    if (!options.enable_thinking) prompt += "<think>\n\n</think>\n\n";
  }
  return prompt;
}

std::string render_gemma3(std::span<const ChatMessage> messages, const ChatOptions& options) {
  check_roles(messages, {"system", "user", "assistant"});
  std::string system;
  if (messages.front().role == "system") {
    system = messages.front().content + "\n\n";
    messages = messages.subspan(1);
    // The template would drop the system message silently.
    if (messages.empty()) {
      throw std::invalid_argument("a user message must follow the system message");
    }
  }
  std::string prompt = "<bos>";
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const bool is_user = i % 2 == 0;
    if (messages[i].role != (is_user ? "user" : "assistant")) {
      throw std::invalid_argument(
          "roles must alternate user, assistant, user, ... after an optional system message");
    }
    prompt.append("<start_of_turn>").append(is_user ? "user" : "model").append("\n");
    if (i == 0) prompt += system;
    prompt.append(trimmed(messages[i].content)).append("<end_of_turn>\n");
  }
  if (options.add_generation_prompt) prompt += "<start_of_turn>model\n";
  return prompt;
}

}  // namespace

std::string render_chat(ChatFamily family, std::span<const ChatMessage> messages,
                        const ChatOptions& options) {
  switch (family) {
    case ChatFamily::Llama3: return render_llama3(messages, options);
    case ChatFamily::Qwen3: return render_qwen3(messages, options);
    case ChatFamily::Gemma3: return render_gemma3(messages, options);
    case ChatFamily::None: break;
  }
  return render_plain(messages, options);
}

}  // namespace metronome
