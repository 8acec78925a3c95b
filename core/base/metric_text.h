// SPDX-License-Identifier: Apache-2.0
// Pages of metrics in Prometheus' text format.
#pragma once

#include <string>
#include <string_view>

namespace metronome {

// A label's value, with backslash, quote and line break escaped.
inline std::string metric_label_text(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    if (c == '\n') {
      escaped += "\\n";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace metronome
