// SPDX-License-Identifier: Apache-2.0
// OpenAI's /v1/embeddings in simulation: a prompt is read, and has a vector that its tokens choose.
#include <cmath>
#include <cstring>
#include <utility>

#include "core/base/base64.h"
#include "core/base/rng.h"
#include "serve/server/answer_form.h"
#include "serve/server/api_fields.h"
#include "serve/server/api_known_fields.h"
#include "serve/server/translated_body.h"

namespace metronome {
namespace {

constexpr std::int64_t kMaxDimensions = 65536;

class EmbeddingsForm final : public AnswerForm {
 public:
  using AnswerForm::AnswerForm;

  // There are no streams of vectors.
  void write_token(std::int32_t, const AnswerToken&, const AnswerEnd*, const AnswerUsage&,
                   std::string&) override {}
  void write_end(const AnswerUsage&, std::string&) override {}
  std::optional<std::string> body(std::span<const AnswerChoice> choices, const AnswerUsage& usage,
                                  std::size_t most_bytes) override;

 private:
  std::vector<float> vector_of(const std::vector<TokenId>& prompt) const;
};

// Of length 1, as models normalise theirs.
std::vector<float> EmbeddingsForm::vector_of(const std::vector<TokenId>& prompt) const {
  std::uint64_t bits = 0;
  for (const TokenId id : prompt) bits = mix64(bits ^ static_cast<std::uint64_t>(value(id)));
  std::vector<double> entries;
  double sum = 0;
  for (std::int32_t i = 0; i < request_.num_dimensions; ++i) {
    entries.push_back(unit_of(mix64(bits + static_cast<std::uint64_t>(i))) - 0.5);
    sum += entries.back() * entries.back();
  }
  const double length = std::sqrt(sum);
  std::vector<float> vector;
  for (const double entry : entries) {
    vector.push_back(static_cast<float>(length > 0 ? entry / length : 1));
  }
  return vector;
}

std::optional<std::string> EmbeddingsForm::body(std::span<const AnswerChoice> choices,
                                                const AnswerUsage& usage, std::size_t most_bytes) {
  json_.clear();
  json_.begin_object();
  json_.field("id", "embd-" + facts_.id);
  json_.field("object", "list");
  json_.field("created", facts_.created);
  json_.field("model", model_.name);
  json_.key("data").begin_array();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const std::vector<float> vector = vector_of(request_.shown_prompts[i]);
    json_.begin_object();
    json_.field("object", "embedding");
    json_.field("index", static_cast<std::int64_t>(i));
    json_.key("embedding");
    if (request_.is_base64) {
      std::string bytes(vector.size() * sizeof(float), '\0');
      std::memcpy(bytes.data(), vector.data(), bytes.size());
      json_.value(encode_base64(bytes));
    } else {
      json_.begin_array();
      for (const float entry : vector) json_.value(static_cast<double>(entry));
      json_.end_array();
    }
    json_.end_object();
    if (json_.size() > most_bytes) return std::nullopt;
  }
  json_.end_array();
  add_usage(usage);
  json_.end_object();
  if (json_.size() > most_bytes) return std::nullopt;
  return std::string(json_.view());
}

}  // namespace

TranslatedBody completion_of_embeddings(const Json& body, const ServedModel& model) {
  const ApiFields fields(body);
  if (model.computes) {
    throw ApiError(404,
                   "/v1/embeddings: this server's model generates text; allowed: "
                   "/v1/completions, /v1/chat/completions, /v1/responses, /v1/messages");
  }
  refuse_ignored_fields(ApiKind::Embeddings, body, {.computes = false});
  TranslatedBody result;
  const Json* input = fields.find("input");
  if (input == nullptr) fields.fail("input", "is missing; allowed: a text, or a list of texts");
  // The token that is sampled is not shown.
  result.body = Json{{"prompt", *input}, {"max_tokens", 1}, {"ignore_eos", true}};
  result.num_dimensions = static_cast<std::int32_t>(
      fields.integer("dimensions", 1, kMaxDimensions).value_or(model.hidden_dim));
  const std::string encoding = fields.name("encoding_format").value_or("float");
  if (encoding != "float" && encoding != "base64") {
    fields.fail("encoding_format",
                shown_text(encoding) + " is not supported; allowed: float, base64");
  }
  result.is_base64 = encoding == "base64";
  result.names = {{"prompt", "input"}, {"max_tokens", "input"}};
  return result;
}

std::unique_ptr<AnswerForm> make_embeddings_form(AnswerFacts facts) {
  return std::make_unique<EmbeddingsForm>(std::move(facts));
}

}  // namespace metronome
