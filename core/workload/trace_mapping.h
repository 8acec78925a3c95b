// SPDX-License-Identifier: Apache-2.0
// Which column or JSON field of a trace says what about a request. Every known format is such a
// mapping, in the table of trace_mapping.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/workload/workload_config.h"

namespace metronome {

// What a field says about its request.
enum class TraceField : std::uint8_t {
  Arrival,
  Prompt,      // tokens
  Output,      // tokens
  Hashes,      // a list of ids, one for each block of the prompt
  Tokens,      // a list, the prompt's token ids
  Images,      // a list of objects
  IgnoresEos,  // true or false
};
constexpr std::size_t kNumTraceFields = 7;

enum class TraceShape : std::uint8_t { Csv, JsonLines };

// Date: YYYY-MM-DD HH:MM:SS.
enum class TimeUnit : std::uint8_t { Seconds, Milliseconds, Nanoseconds, Date };

struct MappedField {
  TraceField field;
  std::string name;       // of a column, or the path of a JSON field: "data.input_tokens"
  bool is_needed = true;  // every row has it
};

struct TraceMapping {
  TraceFormat format = TraceFormat::Auto;
  std::string name;  // for messages: "azure"
  TraceShape shape = TraceShape::Csv;
  std::vector<MappedField> fields;  // in the order of messages
  TimeUnit unit = TimeUnit::Seconds;
  std::int32_t block_tokens = 512;  // prompt tokens of a hash id
  bool skips_failed = false;        // a row without output tokens records a failed request

  // nullptr: the trace does not say it.
  const MappedField* find(TraceField field) const;
  // "an azure"
  std::string article_and_name() const;
  // The names that every row must have: "a, b, c".
  std::string needed_names() const;
};

// The mapping of `format` (Auto: of any) whose names are most among those of the first line;
// nullopt when none of Auto's is there. `is_json` says that the line is a JSON object.
std::optional<TraceMapping> find_mapping(TraceFormat format, std::string_view first_line,
                                         bool is_json);

// "azure (TIMESTAMP, ContextTokens, GeneratedTokens), vidur (...)": the formats of a shape.
std::string describe_formats(TraceShape shape);

}  // namespace metronome
