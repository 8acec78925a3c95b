// SPDX-License-Identifier: Apache-2.0
// Reads the lines of requests.jsonl, and refuses those that no run can write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/json_place.h"
#include "core/metrics/run_record.h"

namespace metronome {

enum class RequestsSource : std::uint8_t { Engine, Client };

// The request of the line at `position`, counted from 0. Throws ConfigError if the line has another
// request's number, times that are out of order, or counts that no request can have.
RequestRecord read_request(const JsonPlace& line, std::size_t position, RequestsSource source);

// The number of the line's class among the names, from 1, which are extended by a new one; 0: the
// line has none.
std::uint16_t read_class(const JsonPlace& line, std::vector<std::string>& names);

// Adds the times of preemptions that the line lists for the request `position`.
void read_preemptions(const JsonPlace& line, std::size_t position, RunRecord& record);

// Throws ConfigError if the first and the last token of the line came at other times than these,
// those of their steps or events; kNoTime: there are none.
void check_token_times(const JsonPlace& line, const RequestRecord& request, TimeNs first,
                       TimeNs last);

}  // namespace metronome
