// SPDX-License-Identifier: Apache-2.0
// Conversations as ShareGPT publishes them: a JSON array of objects with a list of `conversations`,
// each with a `value`. Requests are selected as `vllm bench serve --dataset-name sharegpt` does
// (vLLM 0.33, vllm/benchmarks/datasets/datasets.py: ShareGPTDataset, is_valid_sequence).
#include <algorithm>
#include <utility>

#include "core/base/json.h"
#include "core/workload/file_readers.h"
#include "core/workload/python_random.h"
#include "core/workload/workload_trace_parse.h"

namespace metronome {

namespace {

constexpr std::size_t kMinTokens = 4;
constexpr std::size_t kMaxPromptTokens = 1024;
constexpr std::size_t kMaxTotalTokens = 2048;

struct Chat {
  std::string prompt;
  std::string answer;
};

// Collects the first two texts of each conversation that has at least two.
class ChatReader final : public JsonEvents {
 public:
  explicit ChatReader(const TraceLines& lines) : lines_(lines) {}

  std::vector<Chat> take() { return std::move(chats_); }

  void null() override { scalar(); }
  void boolean(bool) override { scalar(); }
  void integer(std::int64_t) override { scalar(); }
  void unsigned_integer(std::uint64_t) override { scalar(); }
  void number(double) override { scalar(); }
  void string(std::string_view value) override {
    if (is_at_value()) {
      if (num_turns_ == 1) chat_.prompt = value;
      if (num_turns_ == 2) chat_.answer = value;
      has_value_ = true;
    } else {
      scalar();
    }
  }
  void key(std::string_view name) override {
    if (depth_ == kEntry) {
      is_in_turns_ = name == "conversations";
      if (is_in_turns_ && std::exchange(has_turns_, true)) {
        fail("conversations appears twice; allowed: once");
      }
    }
    if (depth_ == kTurn) {
      is_value_ = name == "value";
      if (is_at_value() && has_value_) {
        fail("the value of turn " + std::to_string(num_turns_) + " appears twice; allowed: once");
      }
    }
  }
  void begin_object() override {
    if (depth_ == kTurns && is_in_turns_) {
      ++num_turns_;
      has_value_ = is_value_ = false;
    } else {
      scalar();
    }
    if (depth_ == kArray) {
      num_turns_ = 0;
      has_turns_ = false;
      is_in_turns_ = false;
    }
    ++depth_;
  }
  void end_object() override {
    --depth_;
    const bool is_turn = depth_ == kTurns && is_in_turns_;
    if (is_turn && num_turns_ <= 2 && !has_value_) {
      fail("turn " + std::to_string(num_turns_) + " has no value; allowed: {\"value\": TEXT}");
    }
    if (depth_ != kArray) return;
    if (num_turns_ >= 2) chats_.push_back(std::exchange(chat_, {}));
    ++num_entries_;
  }
  void begin_array() override {
    if (depth_ != kEntry || !is_in_turns_) scalar();
    ++depth_;
  }
  void end_array() override { --depth_; }

 private:
  // Depths inside of which something begins: the file's array, an entry, its turns, one turn.
  static constexpr int kArray = 1;
  static constexpr int kEntry = 2;
  static constexpr int kTurns = 3;
  static constexpr int kTurn = 4;

  bool is_at_value() const {
    return depth_ == kTurn && is_in_turns_ && is_value_ && num_turns_ <= 2;
  }
  // A value that is not the expected text or structure.
  void scalar() {
    if (is_at_value()) {
      fail("the value of turn " + std::to_string(num_turns_) + " is not a text; allowed: a string");
    }
  }
  [[noreturn]] void fail(const std::string& problem) const {
    lines_.fail("conversation " + std::to_string(num_entries_), problem);
  }

  const TraceLines& lines_;
  std::vector<Chat> chats_;
  Chat chat_;
  std::size_t num_entries_ = 0;  // complete ones
  int depth_ = 0;
  std::size_t num_turns_ = 0;  // of the current entry
  bool has_turns_ = false;     // of the current entry: the key `conversations` has come
  bool is_in_turns_ = false;   // after the key `conversations`
  bool is_value_ = false;      // after the key `value` of a turn
  bool has_value_ = false;
};

std::vector<Chat> read_chats(std::string_view text, const TraceLines& lines) {
  ChatReader reader(lines);
  try {
    parse_json(text, reader);
  } catch (const JsonError& error) {
    lines.fail("conversations", std::string("not JSON: ") + error.what() +
                                    "; allowed: an array of {\"conversations\": [{\"value\": "
                                    "TEXT}, ...]}");
  }
  return reader.take();
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
  const TextEncoder encode =
      workload_readers(config.where, "workload.trace.tokenizer").read_tokenizer(config.tokenizer);
  std::vector<Chat> chats = read_chats(text, lines);
  PythonRandom(seed).shuffle(chats);
  const auto limit = config.limit > 0 ? static_cast<std::size_t>(config.limit) : SIZE_MAX;
  for (const Chat& chat : chats) {
    if (workload.requests.size() == limit) break;
    const std::vector<TokenId> prompt = encode(chat.prompt);
    const std::size_t output = config.output_len ? static_cast<std::size_t>(*config.output_len)
                                                 : encode(chat.answer).size();
    const bool is_too_short =
        prompt.size() < kMinTokens || (!config.output_len && output < kMinTokens);
    const bool is_too_long =
        prompt.size() > kMaxPromptTokens || prompt.size() + output > kMaxTotalTokens;
    if (!is_too_short && !is_too_long) append_request(prompt, output, workload);
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
