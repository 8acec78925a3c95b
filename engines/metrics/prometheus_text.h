// SPDX-License-Identifier: Apache-2.0
// Reads the text format in which servers show metrics. Source of the format:
// prometheus.io/docs/instrumenting/exposition_formats; OpenMetrics adds exemplars behind a value.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace metronome {

struct MetricSample {
  std::string_view name;
  std::vector<std::pair<std::string_view, std::string>> labels;  // values without escapes
  double value = 0;

  const std::string* label(std::string_view wanted) const;  // nullptr: there is none
};

struct MetricsRead {
  std::int64_t num_samples = 0;
  std::int64_t num_broken = 0;    // lines that are neither a sample nor a comment
  std::int64_t first_broken = 0;  // the line of the first, from 1
};

// Calls `take` for each sample of a page, in its order. Other lines are counted, whatever bytes
// they have. Names in quotes, which no server of models uses, are among those. The sample lasts for
// the call.
MetricsRead read_metrics(std::string_view page,
                         const std::function<void(const MetricSample&)>& take);

}  // namespace metronome
