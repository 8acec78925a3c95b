// SPDX-License-Identifier: Apache-2.0
#include "study/calibrate/import_text.h"

#include <cstdint>
#include <memory>

#include "core/base/number_text.h"

namespace metronome {

SourceLocation option_location(const char* option) {
  return {std::make_shared<const std::string>(option), 0};
}

std::string whole_text(double value) { return grouped_text(static_cast<std::int64_t>(value)); }

std::string points_text(const std::vector<double>& points) {
  return whole_text(points.front()) + " to " + whole_text(points.back());
}

}  // namespace metronome
