// SPDX-License-Identifier: Apache-2.0
#include "python/own_keys.h"

#include <cstdint>

#include "core/config/config_reader.h"

namespace metronome::python {

namespace nb = nanobind;

OwnValues default_values(const OwnKeys& keys) {
  OwnValues values;
  for (const OwnKey& key : keys) values.push_back(key.by_default);
  return values;
}

void visit_own_keys(FieldVisitor& visitor, const OwnKeys& keys, OwnValues& values) {
  std::size_t i = 0;
  for (const OwnKey& key : keys) {
    double& value = values[i++];
    if (!key.is_whole) {
      visitor.number(key.name.c_str(), value, key.least, key.most, key.meaning.c_str());
      continue;
    }
    auto whole = static_cast<std::int64_t>(value);
    visitor.integer(key.name.c_str(), whole, static_cast<std::int64_t>(key.least),
                    static_cast<std::int64_t>(key.most), key.meaning.c_str());
    value = static_cast<double>(whole);
  }
}

void add_own_values(const OwnKeys& keys, const OwnValues& values, nb::dict& dict) {
  std::size_t i = 0;
  for (const OwnKey& key : keys) {
    const double value = values[i++];
    dict[key.name.c_str()] =
        key.is_whole ? nb::cast(static_cast<std::int64_t>(value)) : nb::cast(value);
  }
}

}  // namespace metronome::python
