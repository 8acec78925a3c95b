// SPDX-License-Identifier: Apache-2.0
// Conversations as ShareGPT and others publish them: objects in a JSON array or in JSON lines, each
// with a list of turns; and prompts with a number of output tokens. Requests are selected as `vllm
// bench serve --dataset-name sharegpt` does (vLLM 0.33, vllm/benchmarks/datasets/datasets.py:
// ShareGPTDataset, is_valid_sequence).
#include <algorithm>
#include <fmt/core.h>
#include <optional>
#include <string>
#include <utility>

#include "core/base/json.h"
#include "core/workload/file_readers.h"
#include "core/workload/python_random.h"
#include "core/workload/trace_payloads.h"
#include "core/workload/workload_trace_parse.h"

namespace metronome {

namespace {

constexpr std::size_t kMinTokens = 4;
constexpr std::size_t kMaxPromptTokens = 1024;
constexpr std::size_t kMaxTotalTokens = 2048;

struct Chat {
  std::string prompt;
  std::string answer;
  bool has_answer = false;                    // an empty one, too
  std::optional<std::int64_t> output_tokens;  // instead of an answer
};

struct ChatTexts {
  std::vector<Chat> chats;
  std::size_t num_conversations = 0;  // also those without a prompt and an answer
  bool is_in_order = false;           // of a client, which sent them in this order
};

// Collects the first prompt and answer of each entry. An entry is a conversation, with a list of
// turns, or has a prompt itself:
//   {"conversations": [{"from": ..., "value": TEXT}, ...]}  its first two turns
//   {"conversation": [...]}, {"conversations": [{"role": ..., "content": TEXT}, ...]}  alike
//   {"messages": [{"role": ..., "content": TEXT or parts}, ...]}  all texts before the first answer
//   {"prompt": TEXT, "output_tokens": N}  without an answer; with one: {"completion": TEXT}, or
//   {"instruction": TEXT, "input": TEXT, "output": TEXT}
//   {"body": {"messages": ..., "max_tokens": N}}  a line of a batch: the entry is in its body
class ChatReader final : public JsonEvents {
 public:
  // `entries_depth` is the depth inside of which entries begin: 1 in an array.
  ChatReader(const TraceLines& lines, int entries_depth) : lines_(lines), entries_(entries_depth) {}

  ChatTexts take() { return {std::move(chats_), num_conversations_}; }

  void null() override { scalar(); }
  void boolean(bool) override { scalar(); }
  void integer(std::int64_t) override { scalar(); }
  void unsigned_integer(std::uint64_t value) override {
    if (depth_ == entry() && is_output_key_ && value <= std::uint64_t{kMaxLengthTokens}) {
      chat_.output_tokens = static_cast<std::int64_t>(value);
    } else {
      scalar();
    }
  }
  void number(double) override { scalar(); }
  void string(std::string_view value) override {
    const bool is_part = parts_depth_ > 0 && depth_ == parts_depth_ + 1 && is_part_text_;
    if (is_at_value() || is_part) {
      add_text(value);
    } else if (depth_ == turn() && is_in_turns_ && is_role_) {
      is_answer_ = value == "assistant" || value == "gpt";
    } else if (depth_ == entry() && is_prompt_key_) {
      chat_.prompt = value;
      has_prompt_ = true;
    } else if (depth_ == entry() && is_input_key_ && has_prompt_ && !value.empty()) {
      chat_.prompt += fmt::format("\n{}", value);
    } else if (depth_ == entry() && is_answer_key_ && has_prompt_) {
      chat_.answer = value;
      has_answer_ = true;
    } else {
      scalar();
    }
  }
  void key(std::string_view name) override {
    if (depth_ == entry()) {
      is_messages_ = name == "messages";
      is_in_turns_ = name == "conversations" || name == "conversation" || is_messages_;
      is_prompt_key_ = name == "prompt" || name == "instruction";
      is_input_key_ = name == "input";
      is_answer_key_ = name == "output" || name == "completion" || name == "response";
      is_output_key_ = name == "output_tokens" || name == "output_tokens_count" ||
                       name == "max_tokens" || name == "max_completion_tokens";
      is_body_key_ = !is_in_body_ && name == "body";
      if (is_in_turns_ && std::exchange(has_turns_, true)) {
        fail(std::string(name) + " appears twice; allowed: once");
      }
    }
    if (depth_ == turn()) {
      is_value_ = name == "value" || name == "content";
      is_role_ = is_messages_ && name == "role";
      if (is_at_value() && has_value_) {
        fail(fmt::format("the value of turn {} appears twice; allowed: once", num_turns_));
      }
    }
    if (parts_depth_ > 0 && depth_ == parts_depth_ + 1) is_part_text_ = name == "text";
  }
  void begin_object() override {
    if (depth_ == turns() && is_in_turns_) {
      ++num_turns_;
      has_value_ = is_value_ = is_role_ = is_answer_ = false;
      text_.clear();
    } else if (depth_ != parts_depth_ || parts_depth_ == 0) {
      scalar();
    }
    if (depth_ == entries_) {
      num_turns_ = 0;
      has_turns_ = is_in_turns_ = is_messages_ = is_prompt_key_ = is_output_key_ = false;
      is_input_key_ = is_answer_key_ = false;
      is_body_key_ = is_in_body_ = false;
      has_prompt_ = has_answer_ = false;
      chat_ = {};
    }
    const bool is_body = depth_ == entry() && std::exchange(is_body_key_, false);
    ++depth_;
    if (is_body) is_in_body_ = true;
  }
  void end_object() override {
    --depth_;
    if (is_in_body_ && depth_ == entries_ + 1) is_in_body_ = false;
    if (depth_ == turns() && is_in_turns_) end_turn();
    if (depth_ != entries_) return;
    num_conversations_ += has_turns_ || has_prompt_ ? 1 : 0;
    chat_.has_answer = has_answer_;
    if (has_answer_ || has_prompt_) chats_.push_back(std::exchange(chat_, {}));
    ++num_entries_;
  }
  void begin_array() override {
    if (is_at_value()) {
      parts_depth_ = depth_ + 1;
      has_value_ = true;
    } else if (depth_ != entry() || !is_in_turns_) {
      scalar();
    }
    ++depth_;
  }
  void end_array() override {
    if (depth_ == parts_depth_) parts_depth_ = 0;
    --depth_;
  }

 private:
  // Depths inside of which something begins: an entry's keys, its turns, one turn.
  int entry() const { return entries_ + (is_in_body_ ? 2 : 1); }
  int turns() const { return entry() + 1; }
  int turn() const { return entry() + 2; }

  bool is_wanted_turn() const { return is_messages_ ? !has_answer_ : num_turns_ <= 2; }
  bool is_at_value() const {
    return depth_ == turn() && is_in_turns_ && is_value_ && is_wanted_turn();
  }
  void add_text(std::string_view value) {
    text_ += value;
    has_value_ = true;
  }
  void end_turn() {
    if (!is_wanted_turn()) return;
    if (!has_value_ && !is_messages_) {
      fail(
          fmt::format("turn {} has no value; allowed: {{\"value\": TEXT}} or {{\"content\": TEXT}}",
                      num_turns_));
    }
    // Messages: what comes before the first answer is the prompt, as with a system's text.
    const bool is_answer = is_messages_ ? is_answer_ && !chat_.prompt.empty() : num_turns_ == 2;
    if (is_answer) {
      chat_.answer = text_;
      has_answer_ = true;
    } else {
      chat_.prompt += (chat_.prompt.empty() ? "" : "\n") + text_;
      has_prompt_ = has_prompt_ || is_messages_;
    }
  }
  // A value that is not the expected text or structure.
  void scalar() {
    if (is_at_value() && !is_messages_) {
      fail(fmt::format("the value of turn {} is not a text; allowed: a string", num_turns_));
    }
  }
  [[noreturn]] void fail(const std::string& problem) const {
    lines_.fail(fmt::format("conversation {}", num_entries_), problem);
  }

  const TraceLines& lines_;
  const int entries_;
  std::vector<Chat> chats_;
  std::size_t num_conversations_ = 0;  // with an answer or not
  Chat chat_;
  std::string text_;             // of the current turn
  std::size_t num_entries_ = 0;  // complete ones
  int depth_ = 0;
  int parts_depth_ = 0;        // inside of which the parts of a content begin; 0: no parts
  std::size_t num_turns_ = 0;  // of the current entry
  bool has_turns_ = false;     // of the current entry: the key of its turns has come
  bool is_in_turns_ = false;   // after that key
  bool is_messages_ = false;   // the key is `messages`
  bool has_prompt_ = false;    // the entry has a prompt that needs no answer
  bool has_answer_ = false;
  bool is_prompt_key_ = false, is_output_key_ = false;  // after these keys of the entry
  bool is_input_key_ = false, is_answer_key_ = false;
  bool is_body_key_ = false;  // after the key `body` of the entry
  bool is_in_body_ = false;
  bool is_value_ = false;   // after the key `value` or `content` of a turn
  bool is_role_ = false;    // after the key `role`
  bool is_answer_ = false;  // the turn is one of the assistant
  bool is_part_text_ = false;
  bool has_value_ = false;
};

void parse_entries(std::string_view text, const TraceLines& lines, ChatReader& reader) {
  try {
    parse_json(text, reader);
  } catch (const JsonError& error) {
    lines.fail("conversations", std::string("not JSON: ") + error.what() +
                                    "; allowed: objects with {\"conversations\": [{\"value\": "
                                    "TEXT}, ...]}");
  }
}

ChatTexts sent_chats(std::vector<Payload> payloads, const TraceLines& lines,
                     const TraceConfig& config) {
  ChatTexts texts;
  texts.is_in_order = true;
  for (Payload& payload : payloads) {
    if (!payload.output_tokens && !config.output_len) {
      lines.fail("payloads", fmt::format("number {} has no max_tokens; allowed: one that has, or "
                                         "workload.trace.output_len",
                                         texts.chats.size()));
    }
    Chat& chat = texts.chats.emplace_back();
    chat.prompt = std::move(payload.prompt);
    chat.output_tokens = payload.output_tokens;
  }
  texts.num_conversations = texts.chats.size();
  return texts;
}

// Reads an array of entries, or entries one after the other.
ChatTexts read_chats(std::string_view text, TraceLines lines, const TraceConfig& config,
                     Workload& workload) {
  if (is_payload_document(text)) return sent_chats(read_payloads(text, lines), lines, config);
  if (is_prompt_record(first_json(text))) {
    return sent_chats(read_prompt_records(lines.with_objects(), workload.unused_fields), lines,
                      config);
  }
  const bool is_array = text.starts_with('[');
  ChatReader reader(lines, is_array ? 1 : 0);
  if (is_array) {
    parse_entries(text, lines, reader);
  } else {
    lines = lines.with_objects();
    while (lines.next()) parse_entries(lines.line(), lines, reader);
  }
  return reader.take();
}

// Tokens of so many characters each. Texts that begin alike have the same tokens at the beginning;
// their ids are small, so that every vocabulary has them.
TextEncoder encoder_by_characters(double characters_per_token) {
  return [characters_per_token](std::string_view text) {
    constexpr std::uint32_t kFirstHash = 2166136261U;  // FNV-1a
    constexpr std::uint32_t kHashFactor = 16777619U;
    constexpr std::uint32_t kNumIds = 256;
    std::vector<TokenId> tokens;
    double num_characters = 0;
    std::uint32_t hash = kFirstHash;
    const auto end_token = [&] {
      tokens.push_back(static_cast<TokenId>(hash % kNumIds));
      hash = kFirstHash;
    };
    for (std::size_t i = 0; i < text.size(); ++i) {
      hash = (hash ^ static_cast<unsigned char>(text[i])) * kHashFactor;
      const bool is_inside =  // of a character in UTF-8
          i + 1 < text.size() && (static_cast<unsigned char>(text[i + 1]) & 0xC0U) == 0x80U;
      if (is_inside) continue;
      ++num_characters;
      const auto is_due = [&] {
        return num_characters >= characters_per_token * static_cast<double>(tokens.size() + 1);
      };
      while (is_due()) end_token();
    }
    if (hash != kFirstHash) end_token();
    return tokens;
  };
}

void append_request(const std::vector<TokenId>& prompt, std::size_t output_tokens,
                    Workload& workload) {
  RequestSpec request;
  request.num_prompt_tokens = static_cast<std::int32_t>(prompt.size());
  request.max_output_tokens = static_cast<std::int32_t>(output_tokens);
  workload.requests.push_back(request);
  workload.token_begin.push_back(workload.token_ids.size());
  workload.token_ids.insert(workload.token_ids.end(), prompt.begin(), prompt.end());
}

// Appends `count` requests, chosen among those that there are.
void oversample(std::size_t count, std::uint64_t seed, Workload& workload) {
  PythonRandom random(seed);
  const auto num_own = static_cast<std::uint32_t>(workload.requests.size());
  while (workload.requests.size() < count) {
    const std::uint32_t i = random.below(num_own);
    const std::vector<TokenId> prompt(
        workload.token_ids.begin() + static_cast<std::ptrdiff_t>(workload.token_begin[i]),
        workload.token_ids.begin() + static_cast<std::ptrdiff_t>(workload.token_begin[i]) +
            workload.requests[i].num_prompt_tokens);
    append_request(prompt, static_cast<std::size_t>(workload.requests[i].max_output_tokens),
                   workload);
  }
}

}  // namespace

void parse_chats(std::string_view text, const TraceLines& lines, const TraceConfig& config,
                 std::uint64_t seed, Workload& workload) {
  const TextEncoder encode = config.characters_per_token
                                 ? encoder_by_characters(*config.characters_per_token)
                                 : workload_readers(config.where, "workload.trace.tokenizer")
                                       .read_tokenizer(config.tokenizer);
  ChatTexts texts = read_chats(text, lines, config, workload);
  if (texts.num_conversations == 0) {
    lines.fail("conversations",
               "there are none; allowed: objects with a list called conversations, conversation or "
               "messages, or with a prompt");
  }
  if (!texts.is_in_order) PythonRandom(seed).shuffle(texts.chats);
  const auto limit = config.limit > 0 ? static_cast<std::size_t>(config.limit) : SIZE_MAX;
  for (const Chat& chat : texts.chats) {
    if (workload.requests.size() == limit) break;
    const std::vector<TokenId> prompt = encode(chat.prompt);
    const std::optional<std::int64_t> given =
        config.output_len ? config.output_len : chat.output_tokens;
    const std::size_t output =
        given ? static_cast<std::size_t>(*given) : encode(chat.answer).size();
    const bool is_own_set = !chat.has_answer && given;  // whose lengths are as they are
    const bool is_too_short = prompt.size() < kMinTokens || (!given && output < kMinTokens);
    const bool is_too_long =
        prompt.size() > kMaxPromptTokens || prompt.size() + output > kMaxTotalTokens;
    const bool fits = is_own_set ? !prompt.empty() && output > 0 : !is_too_short && !is_too_long;
    if (fits) append_request(prompt, output, workload);
  }
  if (workload.requests.empty()) {
    lines.fail("conversations",
               "none has a prompt and an answer of at least 4 tokens, at most 1024 of the prompt "
               "and 2048 together; allowed: at least one");
  }
  if (config.limit > 0) oversample(limit, seed, workload);
  workload.token_begin.push_back(workload.token_ids.size());
}

}  // namespace metronome
