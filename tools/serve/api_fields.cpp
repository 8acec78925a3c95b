#include "tools/serve/api_fields.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "tools/serve/api_request.h"

namespace metronome {
namespace {

std::string number_text(double number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

// A value as a client sent it, short enough for a message.
std::string shown(const ApiJson& value) {
  constexpr std::size_t kMost = 60;
  std::string text = value.dump(-1, ' ', true, ApiJson::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

}  // namespace

ApiJson parse_body(std::string_view body) {
  // What is printed or compared later recurses, and a client may send what it likes.
  constexpr int kMaxDepth = 64;
  const auto check_depth = [](int depth, ApiJson::parse_event_t, ApiJson&) {
    if (depth > kMaxDepth) {
      throw ApiError(400, "the body is nested more than " + std::to_string(kMaxDepth) + " deep");
    }
    return true;
  };
  ApiJson json;
  try {
    json = ApiJson::parse(body, check_depth);
  } catch (const ApiJson::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ...": without the prefix.
    const std::string_view text = error.what();
    const std::size_t end = text.find("] ");
    throw ApiError(400,
                   "the body is no JSON: " +
                       std::string(end == std::string_view::npos ? text : text.substr(end + 2)));
  }
  if (!json.is_object()) throw ApiError(400, "the body is no JSON object");
  return json;
}

ApiFields::ApiFields(const ApiJson& object, std::string prefix)
    : object_(&object), prefix_(std::move(prefix)) {}

const ApiJson* ApiFields::find(const char* name) const {
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

void ApiFields::fail(const std::string& name, const std::string& message) const {
  throw ApiError(400, prefix_ + name + ": " + message, prefix_ + name);
}

std::optional<std::int64_t> ApiFields::integer(const char* name, std::int64_t min,
                                               std::int64_t max) const {
  const ApiJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::string allowed =
      "; allowed: an integer from " + std::to_string(min) + " to " + std::to_string(max);
  const bool is_too_large =
      value->is_number_unsigned() && value->get<std::uint64_t>() > std::uint64_t{INT64_MAX};
  if (!value->is_number_integer() || is_too_large)
    fail(name, shown(*value) + " is not allowed" + allowed);
  const auto number = value->get<std::int64_t>();
  if (number < min || number > max) fail(name, shown(*value) + " is out of range" + allowed);
  return number;
}

std::optional<double> ApiFields::number(const char* name, double min, double max) const {
  const ApiJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::string allowed =
      "; allowed: a number from " + number_text(min) + " to " + number_text(max);
  if (!value->is_number()) fail(name, shown(*value) + " is no number" + allowed);
  const auto number = value->get<double>();
  if (!(number >= min && number <= max)) fail(name, shown(*value) + " is out of range" + allowed);
  return number;
}

bool ApiFields::truth(const char* name, bool otherwise) const {
  const ApiJson* value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) fail(name, shown(*value) + " is no truth value; allowed: true, false");
  return value->get<bool>();
}

std::optional<std::string> ApiFields::text(const char* name) const {
  const ApiJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(name, shown(*value) + " is no text");
  return value->get<std::string>();
}

std::vector<std::string> ApiFields::texts(const char* name) const {
  const ApiJson* value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  const std::string allowed = "; allowed: a text, or a list of texts";
  if (!value->is_array()) fail(name, shown(*value) + " is not allowed" + allowed);
  std::vector<std::string> texts;
  for (const ApiJson& entry : *value) {
    if (!entry.is_string()) fail(name, shown(entry) + " is not allowed" + allowed);
    texts.push_back(entry.get<std::string>());
  }
  return texts;
}

std::vector<TokenId> ApiFields::token_ids(const char* name, std::int64_t vocab_size) const {
  const ApiJson* value = find(name);
  if (value == nullptr) return {};
  return read_token_ids(*value, vocab_size, prefix_ + name);
}

std::optional<ApiFields> ApiFields::fields(const char* name) const {
  const ApiJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) fail(name, shown(*value) + " is no object");
  return ApiFields(*value, prefix_ + name + ".");
}

void ApiFields::allow_only(const char* name, double neutral) const {
  const ApiJson* value = find(name);
  if (value == nullptr) return;
  if (!value->is_number()) fail(name, shown(*value) + " is no number");
  if (value->get<double>() != neutral) {
    fail(name, shown(*value) + " is not supported; allowed: " + number_text(neutral));
  }
}

std::vector<TokenId> read_token_ids(const ApiJson& list, std::int64_t vocab_size,
                                    const std::string& name) {
  const auto refuse = [&name, vocab_size](const ApiJson& value) {
    throw ApiError(400,
                   name + ": " + shown(value) + " is no token; allowed: integers from 0 to " +
                       std::to_string(vocab_size - 1),
                   name);
  };
  if (!list.is_array()) refuse(list);
  std::vector<TokenId> ids;
  ids.reserve(list.size());
  for (const ApiJson& entry : list) {
    if (!entry.is_number_integer()) refuse(entry);
    const bool is_too_large =
        entry.is_number_unsigned() && entry.get<std::uint64_t>() > std::uint64_t{INT64_MAX};
    const std::int64_t id = is_too_large ? -1 : entry.get<std::int64_t>();
    if (id < 0 || id >= vocab_size) refuse(entry);
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

}  // namespace metronome
