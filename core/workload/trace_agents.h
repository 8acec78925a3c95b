// SPDX-License-Identifier: Apache-2.0
// Traces of agents, whose files are documents with requests inside: a coding session as the KV
// cache tester of Weka records it, and spans of OpenTelemetry. Each becomes rows, as JSON lines of
// the formats `weka` and `opentelemetry`.
#pragma once

#include <string_view>

#include "core/workload/workload_trace_parse.h"

namespace metronome {

// Whether the file begins as such a document.
bool is_weka_trace(std::string_view first_record);
bool is_opentelemetry_trace(std::string_view first_record);

// The rows of all documents. Calls of one conversation become a session: each waits for the one
// before as long as the recorded client did. Calls that overlap are sessions of their own, at their
// recorded times. Throws ConfigError at a document that is no such trace.
TraceLines unfold_weka(TraceLines documents);
TraceLines unfold_opentelemetry(TraceLines documents);

}  // namespace metronome
