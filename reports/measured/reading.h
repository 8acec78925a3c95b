// SPDX-License-Identifier: Apache-2.0
// Functions for the readers of all formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/json_place.h"
#include "reports/measured/measured_run.h"

namespace metronome {

constexpr double kMsPerSecond = 1e3;

// The value of the key; nullopt: the key does not exist, or the value is null.
std::optional<JsonPlace> value_if(const JsonPlace& object, const std::string& key);
// The value of the first of the keys that has one.
std::optional<JsonPlace> value_of_any(const JsonPlace& object,
                                      std::initializer_list<const char*> keys);
// The value at "config.strategy.rate".
std::optional<JsonPlace> value_at(const JsonPlace& object, std::string_view path);

// Absent where the value is no number, or not finite. A figure is left out then.
std::optional<double> number_if(const JsonPlace& object, const std::string& key);
std::optional<std::int64_t> count_if(const JsonPlace& object, const std::string& key);
// Absent where the value is no text, or empty.
std::optional<std::string> text_if(const JsonPlace& object, const std::string& key);

// A number of tokens, which may be written as 12.0.
std::int32_t token_count(const JsonPlace& place);

// A time or a duration, from 0 to ten thousand million of its unit of `unit_ns` nanoseconds, but
// at most what TimeNs holds.
TimeNs time_in(const JsonPlace& place, double unit_ns);
TimeNs time_in_seconds(const JsonPlace& place);

// The nanoseconds of "ns", "us", "ms", "s" or "sec". Throws ConfigError for another text.
double unit_ns(const JsonPlace& unit);

// Copies the statistics of an object to the figures of a distribution: "mean" or "avg", "median"
// or "p50", "p90", "std", ... `scale` makes milliseconds of its unit.
void set_distribution(const JsonPlace& object, std::string_view name, double scale,
                      FigureValues& figures);

// A token or a chunk of the answer came. `last`: when the one before came, kNoTime for the first.
void add_token_time(TimeNs time, TimeNs& last, MeasuredRequest& request);

// "TEXT of KIND" of the failed requests.
void add_failure(MeasuredRequest& request, const std::string& why);

// Adds what follows from the requests: counts, reasons of failures, their order, starts after the
// first one, and a duration that is unknown.
void complete_run(MeasuredRun& run);

}  // namespace metronome
