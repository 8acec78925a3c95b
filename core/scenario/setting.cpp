// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/setting.h"

#include <utility>

namespace metronome {

std::string Setting::text() const {
  return key + "=" + (value.is_string() ? value.string() : value.dump());
}

Setting setting_of(std::string key, std::string_view yaml) {
  std::optional<Json> value = Json::try_parse(yaml);
  return {std::move(key), value ? std::move(*value) : Json(yaml)};
}

}  // namespace metronome
