// SPDX-License-Identifier: Apache-2.0
// Answers of /generate: a text, or an event with the text and the id of each token.
#include <utility>

#include "serve/server/answer_form.h"

namespace metronome {
namespace {

class GenerateForm final : public AnswerForm {
 public:
  using AnswerForm::AnswerForm;

  void write_token(std::int32_t choice, const AnswerToken& token, const AnswerEnd* end,
                   const AnswerUsage& usage, std::string& out) override;
  void write_end(const AnswerUsage& usage, std::string& out) override;
  std::optional<std::string> body(std::span<const AnswerChoice> choices, const AnswerUsage& usage,
                                  std::size_t most_bytes) override;
};

void GenerateForm::write_token(std::int32_t index, const AnswerToken& token, const AnswerEnd* end,
                               const AnswerUsage&, std::string& out) {
  json_.clear();
  json_.begin_object();
  json_.field("index", index);
  json_.field("token", token.text);
  json_.field("token_id", token.is_token() ? value(token.id) : 0);
  json_.key("finish_reason");
  end == nullptr ? json_.null() : json_.value(end->reason);
  json_.end_object();
  write_data(out);
}

void GenerateForm::write_end(const AnswerUsage& usage, std::string& out) {
  if (request_.wants_usage) {
    add_header("cmpl-", "text_completion");
    json_.key("choices").begin_array();
    json_.end_array();
    add_usage(usage);
    json_.end_object();
    write_data(out);
  }
  out += "data: [DONE]\n\n";
}

std::optional<std::string> GenerateForm::body(std::span<const AnswerChoice> choices,
                                              const AnswerUsage& usage, std::size_t most_bytes) {
  json_.clear();
  json_.begin_object();
  for (const AnswerChoice& choice : choices) {  // one
    json_.field("text", choice.text);
    json_.field("finish_reason", choice.end.reason);
  }
  add_usage(usage);
  json_.end_object();
  if (json_.size() > most_bytes) return std::nullopt;
  return std::string(json_.view());
}

}  // namespace

std::unique_ptr<AnswerForm> make_generate_form(AnswerFacts facts) {
  return std::make_unique<GenerateForm>(std::move(facts));
}

}  // namespace metronome
