// Conversations as prompts.
#pragma once

#include <span>
#include <string>

#include "core/text/tokenizer.h"

namespace metronome {

struct ChatMessage {
  std::string role;     // system, user, assistant, tool
  std::string content;  // of an assistant of Qwen 3, its reasoning may stand before a </think>
};

struct ChatOptions {
  // The prompt ends where the assistant's answer begins.
  bool add_generation_prompt = true;
  // Qwen 3: false puts an empty <think> block before the answer.
  bool enable_thinking = true;
  // Llama 3: "Today Date" of the system header. The default is that of the published template where
  // nobody tells the time.
  std::string date = "26 Jul 2024";
};

// The prompt, beginning with the text of the token that begins a text where the family has one; to
// be encoded with add_special_tokens = false. The same as the published templates give for messages
// of text, without tools:
//   Llama3   meta-llama/Llama-3.1, 3.2, 3.3: always a system header with dates; contents are
//   trimmed.
//            A tool's content is written as a JSON string.
//   Qwen3    Qwen/Qwen3: ChatML. Reasoning is dropped from answers before the last question of the
//            user; after it, each answer has a <think> block. Tools answer in a turn of the user.
//   Gemma3   google/gemma-3: the system message stands before the first one of the user. Users and
//            assistants ("model") take turns, the user first; there are no tools. Contents are
//            trimmed.
//   None     "role: content" and a line break for each message, then "assistant:".
//
// Throws std::invalid_argument with a sentence for whoever sent the messages: there are none, a
// role that the family does not know, turns out of order. The published templates leave out
// messages with an unknown role, or write any role as it is.
std::string render_chat(ChatFamily family, std::span<const ChatMessage> messages,
                        const ChatOptions& options);

}  // namespace metronome
