// SPDX-License-Identifier: Apache-2.0
#include "core/model/any_keys.h"

#include <algorithm>
#include <fmt/core.h>

#include "core/base/names.h"

namespace metronome {

AnyKeys::AnyKeys(const JsonSection& text) : text_(text) {
  for (const char* name : {"attn_config", "ffn_config"}) {
    const Json* const inner = text.find(name);
    if (inner != nullptr && inner->is_object()) inner_.push_back(*text.section(name));
  }
}

const JsonSection& AnyKeys::section_of(const char* name) const {
  if (overlay_ && overlay_->find(name) != nullptr) return *overlay_;
  if (text_.find(name) != nullptr) return text_;
  const auto found = std::find_if(inner_.begin(), inner_.end(), [name](const JsonSection& inner) {
    return inner.find(name) != nullptr;
  });
  return found == inner_.end() ? text_ : *found;
}

const char* AnyKeys::find(Names names) const {
  const auto found = std::find_if(names.begin(), names.end(), [this](const char* name) {
    return section_of(name).find(name) != nullptr;
  });
  return found == names.end() ? nullptr : *found;
}

void AnyKeys::remember(const char* name) {
  const std::string dotted = text_.dotted(name);
  const std::string padded = ", " + read_ + ",";
  if (padded.find(", " + dotted + ",") != std::string::npos) return;
  read_ += (read_.empty() ? "" : ", ") + dotted;
}

std::int64_t AnyKeys::number(Names names, std::int64_t otherwise) {
  const char* const name = find(names);
  if (name == nullptr) return otherwise;
  remember(name);
  const JsonSection& section = section_of(name);
  const Json& found = *section.find(name);
  const bool is_list = found.is_array() && !found.empty() && found.front().is_number_unsigned();
  const std::int64_t value =
      is_list ? static_cast<std::int64_t>(std::min<std::uint64_t>(
                    found.front().get<std::uint64_t>(), std::uint64_t{kMaxDim} + 1))
              : *section.integer(name);
  if (value > kMaxDim) {
    section.fail(name, fmt::format("{} is out of range; allowed: 0 to {}", value, kMaxDim));
  }
  return value;
}

std::int64_t AnyKeys::required(Names names) {
  if (!has(names)) text_.fail_absent(names.front(), fmt::format("1 to {}", kMaxDim));
  const std::int64_t value = number(names);
  if (value < 1) {
    text_.fail(find(names), fmt::format("is 0; allowed: 1 to {}", kMaxDim));
  }
  return value;
}

const Json* AnyKeys::list(const char* name) {
  const Json* const value = text_.find(name);
  if (value == nullptr || !value->is_array() || value->empty()) return nullptr;
  return value;
}

std::vector<std::int64_t> AnyKeys::per_layer(const char* name, std::int64_t n_layers) {
  const Json* const values = list(name);
  if (values == nullptr || static_cast<std::int64_t>(values->size()) < n_layers) return {};
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < n_layers; ++i) {
    const Json& value = (*values)[static_cast<std::size_t>(i)];
    if (value.is_boolean()) {
      numbers.push_back(value.get<bool>() ? 1 : 0);
    } else if (value.is_number_unsigned() &&
               value.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMaxDim)) {
      numbers.push_back(value.get<std::int64_t>());
    } else {
      return {};
    }
  }
  remember(name);
  return numbers;
}

std::vector<std::string> AnyKeys::words(const char* name) {
  const Json* const values = list(name);
  if (values == nullptr) return {};
  std::vector<std::string> words;
  for (const Json& value : *values) {
    if (!value.is_string()) return {};
    words.push_back(value.get<std::string>());
  }
  remember(name);
  return words;
}

std::vector<std::int64_t> AnyKeys::layers(const char* name, std::int64_t first) {
  const Json* const values = list(name);
  if (values == nullptr) return {};
  std::vector<std::int64_t> layers;
  for (const Json& value : *values) {
    if (!value.is_number_unsigned()) return {};
    const std::uint64_t number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(kMaxDim)) return {};
    layers.push_back(static_cast<std::int64_t>(number) - first);
  }
  std::sort(layers.begin(), layers.end());
  remember(name);
  return layers;
}

}  // namespace metronome
