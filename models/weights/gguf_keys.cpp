// SPDX-License-Identifier: Apache-2.0
#include "models/weights/gguf_keys.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <vector>

#include "core/base/number_chars.h"

namespace metronome {

double as_written(double number) {
  char text[32];
  const auto end = write_number(text, text + sizeof text, static_cast<float>(number)).ptr;
  double written = 0;
  return read_number(text, end, written).ec == std::errc() ? written : number;
}

void GgufKeys::fail(std::string_view key, const std::string& message) const {
  file_.fail(full(key), message);
}

std::optional<std::int64_t> GgufKeys::integer(std::string_view key) const {
  const GgufValue* value = file_.find(full(key));
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::Array) return in_range(key, *file_.integer(full(key)));
  const std::vector<std::int64_t> numbers = file_.integers(full(key));
  const auto differs = [&](std::int64_t number) { return number != numbers.front(); };
  if (numbers.empty() || std::any_of(numbers.begin(), numbers.end(), differs)) {
    fail(key, "differs from layer to layer; allowed: one number for all");
  }
  return in_range(key, numbers.front());
}

std::int64_t GgufKeys::required(std::string_view key) const {
  const std::optional<std::int64_t> value = integer(key);
  if (!value) fail(key, "is missing; allowed: an integer");
  return *value;
}

std::optional<double> GgufKeys::number(std::string_view key) const {
  const std::optional<double> value = file_.number(full(key));
  if (!value) return std::nullopt;
  // shape_error() checks the limits of finite numbers.
  if (!std::isfinite(*value)) fail(key, "is not finite; allowed: a number");
  return as_written(*value);
}

double GgufKeys::required_number(std::string_view key) const {
  const std::optional<double> value = number(key);
  if (!value) fail(key, "is missing; allowed: a number");
  return *value;
}

std::string GgufKeys::text_or(std::string_view key, std::string_view otherwise) const {
  return std::string(file_.text(full(key)).value_or(otherwise));
}

std::int64_t GgufKeys::in_range(std::string_view key, std::int64_t value) const {
  constexpr std::int64_t kMax = std::int64_t{1} << 40;  // shape_error() checks the real limits
  if (value < 0 || value > kMax) {
    fail(key, fmt::format("is {}; allowed: 0 to 2^40", value));
  }
  return value;
}

}  // namespace metronome
