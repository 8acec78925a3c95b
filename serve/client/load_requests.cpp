// SPDX-License-Identifier: Apache-2.0
#include "serve/client/load_requests.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/core.h>
#include <utility>

#include "core/base/error.h"
#include "core/base/json_text.h"

namespace metronome {
namespace {

// Common words, most of which are one token in current vocabularies.
constexpr std::array<std::string_view, 64> kWords = {
    "time",  "year",  "people", "way",   "day",   "man",   "thing", "woman", "life",  "child",
    "world", "work",  "hand",   "part",  "place", "case",  "week",  "point", "home",  "water",
    "room",  "money", "story",  "fact",  "month", "lot",   "right", "study", "book",  "eye",
    "job",   "word",  "side",   "kind",  "head",  "house", "page",  "night", "power", "hour",
    "game",  "line",  "end",    "group", "law",   "car",   "city",  "name",  "team",  "minute",
    "idea",  "body",  "back",   "face",  "level", "door",  "art",   "war",   "party", "result",
    "air",   "food",  "ground", "force"};

void append_number(std::int64_t number, std::string& text) {
  char digits[24];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, number);
  text.append(digits, end);
}

std::vector<TokenId> prompt_ids(const Workload& workload, std::size_t i,
                                const LoadRequestOptions& options) {
  std::vector<TokenId> ids;
  const bool is_given = !workload.token_begin.empty();
  const std::int64_t edge = is_given ? 0 : options.vocab_size / 32;
  workload.prompt_token_ids(i, options.seed, options.vocab_size - 2 * edge, ids);
  if (edge > 0) {
    for (TokenId& id : ids) id = TokenId(static_cast<std::int32_t>(value(id) + edge));
  }
  return ids;
}

std::string json_text_of(std::string_view text) {
  JsonText json;
  json.value(text);
  return std::string(json.view());
}

std::string body_text(const Workload& workload, std::size_t i, const LoadRequestOptions& options) {
  const std::vector<TokenId> ids = prompt_ids(workload, i, options);
  const bool is_chat = options.endpoint == LoadEndpoint::Chat;
  std::string body = "{\"model\":" + json_text_of(options.model);
  body.reserve(body.size() + 8 * ids.size() + 256);
  body += is_chat ? ",\"messages\":[{\"role\":\"user\",\"content\":\"" : ",\"prompt\":[";
  for (std::size_t k = 0; k < ids.size(); ++k) {
    if (k > 0) body += is_chat ? ' ' : ',';
    if (is_chat) {
      body += kWords[static_cast<std::size_t>(value(ids[k])) % kWords.size()];
    } else {
      append_number(value(ids[k]), body);
    }
  }
  body += is_chat ? "\"}],\"max_completion_tokens\":" : "],\"max_tokens\":";
  append_number(workload.requests[i].max_output_tokens, body);
  body +=
      ",\"temperature\":0,\"ignore_eos\":true,\"stream\":true,"
      "\"stream_options\":{\"include_usage\":true}}";
  return body;
}

}  // namespace

std::string_view path_of(LoadEndpoint endpoint) {
  return endpoint == LoadEndpoint::Chat ? "/v1/chat/completions" : "/v1/completions";
}

std::string load_request_text(const Workload& workload, std::size_t i,
                              const LoadRequestOptions& options) {
  const std::string body = body_text(workload, i, options);
  std::string text = "POST " + options.url.prefix + std::string(path_of(options.endpoint)) +
                     " HTTP/1.1\r\nHost: " + options.url.authority() +
                     "\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\n";
  for (const std::string& header : options.headers) text += header + "\r\n";
  text += fmt::format("Content-Length: {}\r\n\r\n", body.size());
  return text + body;
}

LoadRequestQueue::LoadRequestQueue(std::size_t num_requests,
                                   std::function<std::string(std::size_t)> make,
                                   const std::function<void()>& poll, std::size_t max_bytes)
    : make_(std::move(make)), max_bytes_(max_bytes), texts_(num_requests), is_taken_(num_requests) {
  while (num_made_ < texts_.size() && num_bytes_ < max_bytes_) {
    refill();
    poll();
  }
}

std::string LoadRequestQueue::take(std::size_t i) {
  METRONOME_CHECK(i < texts_.size() && !is_taken_[i], "a request is taken once");
  is_taken_[i] = true;
  if (texts_[i].empty()) return make_(i);  // not made ahead of time
  num_bytes_ -= texts_[i].size();
  return std::exchange(texts_[i], {});
}

void LoadRequestQueue::refill() {
  while (num_made_ < texts_.size() && is_taken_[num_made_]) ++num_made_;
  if (num_made_ == texts_.size() || num_bytes_ >= max_bytes_) return;
  texts_[num_made_] = make_(num_made_);
  num_bytes_ += texts_[num_made_].size();
  ++num_made_;
}

}  // namespace metronome
