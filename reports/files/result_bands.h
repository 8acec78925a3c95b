// SPDX-License-Identifier: Apache-2.0
// The certainty of a run's figures in result.json: the objects `accuracy` and `bands`, or `noise`
// for bands of noise alone.
#pragma once

#include <optional>

#include "core/base/json_place.h"
#include "core/run/time_accuracy.h"
#include "reports/files/figure_bands.h"

namespace metronome {

class JsonText;

// Without bands nothing is appended.
void append_bands(const FigureBands& bands, JsonText& json);
FigureBands read_bands(const JsonPlace& result);

void append_accuracy(const TimeAccuracy& accuracy, JsonText& json);
std::optional<TimeAccuracy> read_accuracy(const JsonPlace& result);

}  // namespace metronome
