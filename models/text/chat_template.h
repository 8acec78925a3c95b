// SPDX-License-Identifier: Apache-2.0
// Renders conversations as prompts.
#pragma once

#include <span>
#include <string>

#include "models/text/tokenizer.h"

namespace metronome {

struct ChatMessage {
  std::string role;     // system, user, assistant, tool
  std::string content;  // Qwen 3: an assistant's reasoning may come before a </think>
};

struct ChatOptions {
  // The prompt ends where the assistant's answer begins.
  bool add_generation_prompt = true;
  // Qwen 3: false puts an empty <think> block before the answer.
  bool enable_thinking = true;
  // Llama 3: "Today Date" of the system header. The default is the published template's default
  // date.
  std::string date = "26 Jul 2024";
};

// The prompt, to be encoded with add_special_tokens = false. It begins with the text of the
// begin-of-text token if the family has one. It equals the output of the published templates for
// text messages without tools:
//   Llama3   meta-llama/Llama-3.1, 3.2, 3.3: always a system header with dates; contents are
//            trimmed. A tool's content is written as a JSON string.
//   Qwen3    Qwen/Qwen3: ChatML. Answers before the user's last question lose their reasoning.
//            Each answer after it has a <think> block. Tools answer in a user turn.
//   Gemma3   google/gemma-3: the system message comes before the first user message. Users and
//            assistants ("model") alternate, the user first; there are no tools. Contents are
//            trimmed.
//   None     "role: content" and a line break for each message, then "assistant:".
//
// Throws std::invalid_argument if there are no messages, a role is unknown to the family, or turns
// are out of order. what() is a sentence for the sender. The published templates instead omit
// messages with an unknown role, or write any role unchanged.
std::string render_chat(ChatFamily family, std::span<const ChatMessage> messages,
                        const ChatOptions& options);

}  // namespace metronome
