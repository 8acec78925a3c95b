// SPDX-License-Identifier: Apache-2.0
// The names in the first line of a trace, by which its format is found.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/workload/trace_mapping.h"

namespace metronome {

class TraceNames {
 public:
  TraceNames(std::string_view line, TraceShape shape);

  // Whether a column has the name, or a field of the JSON object has it as its path: "usage.input".
  bool has(std::string_view name) const;
  // The number that a JSON field has in this line; nullopt: none.
  std::optional<double> number(std::string_view name) const;

 private:
  class Collector;

  std::map<std::string, std::optional<double>, std::less<>> names_;
  std::string_view broken_;  // a line that is no JSON: its reader reports the error
};

}  // namespace metronome
