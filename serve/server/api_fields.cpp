// SPDX-License-Identifier: Apache-2.0
#include "serve/server/api_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/core.h>
#include <set>
#include <span>
#include <sstream>
#include <utility>

#include "core/base/clip.h"
#include "core/base/json.h"
#include "core/base/names.h"
#include "core/base/python_json.h"
#include "serve/server/api_request.h"

namespace metronome {
namespace {

std::string number_text(double number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

// JSON Schema's integer: a number without a fraction, written as 8 or as 8.0. nullopt: anything
// else, or too large.
std::optional<std::int64_t> integer_of(const Json& value) {
  constexpr double kMostExact = 9007199254740992;  // 2^53: beyond it a double is no exact integer
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX}) {
    return std::nullopt;
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number()) return std::nullopt;
  const auto number = value.get<double>();
  if (!(std::abs(number) <= kMostExact) || std::trunc(number) != number) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

// A client's value, shortened for a message.
std::string shown(const Json& value) { return clipped(python_json_line(value)); }

std::string too_many(std::size_t count, const char* things, std::size_t most) {
  return fmt::format("{} {} are too many; allowed: up to {}", count, things, most);
}

// How many strings, lists and objects a JSON text has. Each takes far more memory than a number.
std::size_t num_parts(std::string_view text) {
  std::size_t count = 0;
  bool is_in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_in_string && c == '\\') {
      ++i;
    } else if (c == '"') {
      is_in_string = !is_in_string;
      count += is_in_string ? 1 : 0;
    } else if (!is_in_string && (c == '[' || c == '{')) {
      ++count;
    }
  }
  return count;
}

}  // namespace

std::string shown_text(std::string_view text) { return clipped(printable(std::string(text))); }

Json parse_body(std::string_view body) {
  // Limits the depth, as later printing and comparing are recursive and clients may send anything.
  constexpr std::size_t kMaxDepth = 64;
  if (num_parts(body) > kMaxBodyParts) {
    throw ApiError(
        400, fmt::format("the body has more than {} strings, lists and objects", kMaxBodyParts));
  }
  Json json;
  try {
    json = parse_python_json(body, {.max_depth = kMaxDepth, .keys_once = true});
  } catch (const JsonError& error) {
    if (error.reason() == JsonError::Reason::KeyTwice) {
      const std::string field = clipped(error.key());
      throw ApiError(400, field + ": appears twice; allowed: every key once", field);
    }
    if (error.reason() == JsonError::Reason::TooDeep) {
      throw ApiError(400, fmt::format("the body is nested more than {} levels deep", kMaxDepth));
    }
    throw ApiError(400, std::string("the body is not JSON: ") + error.what());
  }
  if (!json.is_object()) throw ApiError(400, "the body is not a JSON object");
  return json;
}

ApiFields::ApiFields(const Json& object, std::string prefix)
    : object_(&object), prefix_(std::move(prefix)) {}

const Json* ApiFields::find(const char* name) const {
  const Json* found = object_->find(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

void ApiFields::fail(const std::string& name, const std::string& message) const {
  throw ApiError(400, prefix_ + name + ": " + message, prefix_ + name);
}

std::optional<std::int64_t> ApiFields::integer(const char* name, std::int64_t min,
                                               std::int64_t max) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::string allowed = fmt::format("; allowed: an integer from {} to {}", min, max);
  const std::optional<std::int64_t> number = integer_of(*value);
  if (!number) fail(name, shown(*value) + " is not allowed" + allowed);
  if (*number < min || *number > max) fail(name, shown(*value) + " is out of range" + allowed);
  return number;
}

std::optional<double> ApiFields::number(const char* name, double min, double max) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::string allowed =
      "; allowed: a number from " + number_text(min) + " to " + number_text(max);
  if (!value->is_number()) fail(name, shown(*value) + " is not a number" + allowed);
  const auto number = value->get<double>();
  if (!(number >= min && number <= max)) fail(name, shown(*value) + " is out of range" + allowed);
  return number;
}

std::optional<double> ApiFields::number_above_0(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !(value->get<double>() > 0) || std::isinf(value->get<double>())) {
    fail(name, shown(*value) + " is not allowed; allowed: a number above 0");
  }
  return value->get<double>();
}

bool ApiFields::truth(const char* name, bool otherwise) const {
  const Json* value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) fail(name, shown(*value) + " is not a boolean; allowed: true, false");
  return value->get<bool>();
}

std::optional<std::string> ApiFields::text(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(name, shown(*value) + " is not a string");
  return value->get<std::string>();
}

std::optional<std::string> ApiFields::name(const char* name) const {
  std::optional<std::string> found = text(name);
  if (found && found->size() > kMaxNameBytes) {
    fail(name, too_many(found->size(), "bytes", kMaxNameBytes));
  }
  return found;
}

std::vector<std::string> ApiFields::texts(const char* name, std::size_t max_count,
                                          std::size_t max_bytes) const {
  const Json* value = find(name);
  if (value == nullptr) return {};
  std::vector<std::string> texts;
  std::size_t num_bytes = 0;
  const auto add = [&](const std::string& text) {
    num_bytes += text.size();
    if (num_bytes > max_bytes) {
      fail(name, fmt::format("has more than {} bytes; allowed: up to these", max_bytes));
    }
    texts.push_back(text);
  };
  if (value->is_string()) {
    add(value->string());
    return texts;
  }
  const std::string allowed = "; allowed: a string, or a list of strings";
  if (!value->is_array()) fail(name, shown(*value) + " is not allowed" + allowed);
  list(name, max_count);
  for (const Json& entry : *value) {
    if (!entry.is_string()) fail(name, shown(entry) + " is not allowed" + allowed);
    add(entry.string());
  }
  return texts;
}

const Json* ApiFields::list(const char* name, std::size_t max_count) const {
  const Json* value = find(name);
  if (value == nullptr || !value->is_array()) return nullptr;
  if (value->size() > max_count) fail(name, too_many(value->size(), "entries", max_count));
  return value;
}

std::vector<TokenId> ApiFields::token_ids(const char* name, std::int64_t vocab_size,
                                          std::size_t max_count) const {
  const Json* value = find(name);
  if (value == nullptr) return {};
  return read_token_ids(*value, vocab_size, max_count, prefix_ + name);
}

std::vector<std::pair<TokenId, double>> ApiFields::token_numbers(const char* name,
                                                                 std::int64_t vocab_size,
                                                                 std::size_t max_count) const {
  const std::optional<ApiFields> numbers = fields(name);
  if (!numbers) return {};
  const std::string allowed = fmt::format("; allowed: integers from 0 to {}", vocab_size - 1);
  std::vector<std::pair<TokenId, double>> result;
  std::set<std::int32_t> seen;
  if (numbers->object_->size() > max_count) {
    fail(name, too_many(numbers->object_->size(), "tokens", max_count));
  }
  for (const Json::Member& member : numbers->object_->items()) {
    const std::string& key = member.key;
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab_size) {
      fail(name, shown(Json(key)) + " is not a token id" + allowed);
    }
    if (!seen.insert(id).second) fail(name, shown(Json(key)) + " names a token twice");
    if (!member.value.is_number()) fail(name, shown(member.value) + " is not a number");
    if (!std::isfinite(member.value.get<double>())) {
      fail(name, shown(member.value) + " is not a finite number");
    }
    result.emplace_back(TokenId{id}, member.value.get<double>());
  }
  return result;
}

std::optional<ApiFields> ApiFields::fields(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) fail(name, shown(*value) + " is not an object");
  return ApiFields(*value, prefix_ + name + ".");
}

void ApiFields::allow_only(const char* name, double neutral) const {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_number()) fail(name, shown(*value) + " is not a number");
  if (value->get<double>() != neutral) {
    fail(name, shown(*value) + " is not supported; allowed: " + number_text(neutral));
  }
}

void ApiFields::allow_names(std::initializer_list<std::string_view> names) const {
  for (const Json::Member& member : object_->items()) {
    const bool is_known = std::find(names.begin(), names.end(), member.key) != names.end();
    if (is_known || member.value.is_null()) continue;
    fail(clipped(printable(member.key)),
         "is not supported; allowed: " + join_names(std::span(names.begin(), names.size())));
  }
}

std::vector<TokenId> read_token_ids(const Json& list, std::int64_t vocab_size,
                                    std::size_t max_count, const std::string& name) {
  const auto refuse = [&name, vocab_size](const Json& value) {
    throw ApiError(400,
                   fmt::format("{}: {} is not a token id; allowed: integers from 0 to {}", name,
                               shown(value), vocab_size - 1),
                   name);
  };
  if (!list.is_array()) refuse(list);
  if (list.size() > max_count) {
    throw ApiError(400, name + ": " + too_many(list.size(), "token ids", max_count), name);
  }
  std::vector<TokenId> ids;
  ids.reserve(list.size());
  for (const Json& entry : list) {
    const std::int64_t id = integer_of(entry).value_or(-1);
    if (id < 0 || id >= vocab_size) refuse(entry);
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

}  // namespace metronome
