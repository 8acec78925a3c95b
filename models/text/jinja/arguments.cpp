// SPDX-License-Identifier: Apache-2.0
#include "models/text/jinja/arguments.h"

#include <algorithm>
#include <fmt/core.h>

namespace metronome::jinja {

void Arguments::bind(std::string_view function, std::initializer_list<std::string_view> parameters,
                     std::size_t num_required) {
  const std::string name(function);
  function_ = function;
  if (positional.size() > parameters.size()) {
    fail(fmt::format("{}() takes at most {} arguments, not {}", name, parameters.size(),
                     positional.size()));
  }
  bound_.assign(parameters.size(), std::nullopt);
  std::copy(positional.begin(), positional.end(), bound_.begin());
  for (const auto& [key, value] : named) {
    const auto* const found = std::find(parameters.begin(), parameters.end(), key);
    if (found == parameters.end()) fail(name + "() has no argument '" + key + "'");
    std::optional<Value>& slot = bound_[static_cast<std::size_t>(found - parameters.begin())];
    if (slot) fail(name + "() has two values for '" + key + "'");
    slot = value;
  }
  for (std::size_t i = 0; i < num_required; ++i) {
    if (!bound_[i]) {
      fail(name + "() misses its argument '" + std::string(parameters.begin()[i]) + "'");
    }
  }
}

bool Arguments::truth(std::size_t parameter, bool otherwise) const {
  const Value* value = find(parameter);
  return value == nullptr ? otherwise : is_true(*value);
}

std::int64_t Arguments::integer(std::size_t parameter, std::int64_t otherwise) const {
  const Value* value = find(parameter);
  if (value == nullptr) return otherwise;
  require_defined(*value);
  if (!value->is_integral()) {
    fail(fmt::format("{}() needs an integer, not '{}'", function_, type_name(*value)));
  }
  return value->integer();
}

const std::string& Arguments::text(std::size_t parameter) const {
  const Value& value = at(parameter);
  require_defined(value);
  if (!value.is_string()) {
    fail(std::string(function_) + "() needs a text, not '" + std::string(type_name(value)) + "'");
  }
  return value.text();
}

}  // namespace metronome::jinja
