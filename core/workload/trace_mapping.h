// SPDX-License-Identifier: Apache-2.0
// Maps the columns or JSON fields of a trace to parts of a request. Every known format is such a
// mapping, in the table of trace_mapping.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/workload/workload_config.h"

namespace metronome {

// The part of a request that a field gives.
enum class TraceField : std::uint8_t {
  Arrival,
  Delay,        // from the end of the session's request before
  Prompt,       // tokens
  Output,       // tokens
  Limit,        // tokens that the request may have at most
  Hashes,       // a list of ids, one for each block of the prompt
  BlockTokens,  // prompt tokens of a hash id
  Tokens,       // a list, the prompt's token ids
  Images,       // a list of objects
  IgnoresEos,   // true or false
  Salt,         // any text; prompts of another salt share no blocks
  Session,      // any text; equal in the requests of a session
  Parent,       // the session that this one goes on from
  Turn,         // the request's place in its session
  Class,        // any text
  Priority,
  Status,  // of HTTP: from 400 on the request failed
  Kind,    // rows of another kind than the mapping's are no requests
};

enum class TraceShape : std::uint8_t { Csv, JsonLines };

struct MappedField {
  TraceField field;
  std::string name;       // of a column, or the path of a JSON field: "data.input_tokens"
  bool is_needed = true;  // every row has it
  bool is_given = false;  // the scenario names it, so that at least one row has it
};

struct TraceMapping {
  TraceFormat format = TraceFormat::Auto;  // Auto: of no known format
  std::string name;                        // for messages: "azure"
  TraceShape shape = TraceShape::Csv;
  std::vector<MappedField> fields = {};  // in the order of messages
  // Auto: a date, or a number whose size tells the unit of an epoch.
  TraceTimeUnit unit = TraceTimeUnit::Seconds;
  std::optional<TraceTimeUnit> arrival_unit = {};  // of arrivals, where it is not that of delays
  std::int32_t block_tokens = 512;  // prompt tokens of a hash id, where the row does not say it
  bool skips_failed = false;        // a row without output tokens records a failed request
  // Hash ids are any integers, and the last blocks may lack theirs.
  bool has_loose_hashes = false;
  bool counts_new_tokens = false;  // `Prompt` is what a turn adds to its session
  std::string kind = {};           // of the rows that are requests

  // The rows are made of documents, which have other fields.
  bool is_document() const;
  // nullptr: the trace does not say it.
  const MappedField* find(TraceField field) const;
  // "an azure"
  std::string article_and_name() const;
  // The names that every row must have: "a, b, c".
  std::string needed_names() const;
};

// The mapping of the trace: that of config.format (Auto: the format with most of the names in the
// first line), with the columns and units that `config` gives. nullopt when the names of no format
// are there and `config` has no columns. `is_json` says that the line is a JSON object. `first_row`
// is the line behind a header of CSV: its arrival says which unit it has.
std::optional<TraceMapping> find_mapping(const TraceConfig& config, std::string_view first_line,
                                         bool is_json, std::string_view first_row = {});

// The mapping by which a trace of the format is written; nullopt: it is not.
std::optional<TraceMapping> written_mapping(TraceFormat format);

// Whether a JSON object has all that a known format of numbers of tokens needs, or `config` names
// columns.
bool has_counts(const TraceConfig& config, std::string_view object);
// Whether a JSON object has a conversation or the text of a prompt.
bool has_text(std::string_view object);

// "azure (TIMESTAMP, ContextTokens, GeneratedTokens), vidur (...)": the formats of a shape.
std::string describe_formats(TraceShape shape);

}  // namespace metronome
