// SPDX-License-Identifier: Apache-2.0
// Traces as CSV: a line with the names of the columns, then a line for each request.
#include <algorithm>
#include <cstdint>
#include <fmt/core.h>
#include <string>
#include <vector>

#include "core/workload/trace_rows.h"

namespace metronome {

namespace {

struct CsvHeader {
  std::vector<std::size_t> position;  // of each field of the mapping; kMissing: no such column
  std::size_t num_columns = 0;
  std::string_view repeated;  // the name of a column that appears twice; empty: none

  static constexpr std::size_t kMissing = SIZE_MAX;
};

CsvHeader match_header(std::string_view line, const TraceMapping& mapping,
                       TraceRequests& requests) {
  CsvHeader header;
  header.position.assign(mapping.fields.size(), CsvHeader::kMissing);
  header.num_columns = for_each_csv_field(line, [&](std::size_t position, std::string_view name) {
    bool is_mapped = false;
    for (std::size_t i = 0; i < mapping.fields.size(); ++i) {
      if (mapping.fields[i].name != name) continue;
      is_mapped = true;
      if (header.position[i] != CsvHeader::kMissing) header.repeated = name;
      header.position[i] = position;
    }
    if (!is_mapped) requests.note_unused(name);
  });
  return header;
}

// The text of each field of the mapping.
std::vector<std::string_view> split_row(const TraceLines& lines, const TraceMapping& mapping,
                                        const CsvHeader& header) {
  std::vector<std::string_view> fields(mapping.fields.size());
  const std::size_t num_fields =
      for_each_csv_field(lines.line(), [&](std::size_t position, std::string_view field) {
        for (std::size_t i = 0; i < fields.size(); ++i) {
          if (header.position[i] == position) fields[i] = field;
        }
      });
  if (num_fields == header.num_columns) return fields;
  const std::string counts =
      fmt::format("the line has {} fields; the first line names {} columns; allowed: as many",
                  num_fields, header.num_columns);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (header.position[i] != CsvHeader::kMissing && header.position[i] >= num_fields) {
      lines.fail(mapping.fields[i].name, "missing, " + counts);
    }
  }
  lines.fail("columns", counts);
}

// Items of a list in one column stand between spaces or semicolons.
template <class Visit>
void for_each_item(std::string_view text, Visit visit) {
  constexpr std::string_view kBetween = " ;[]";
  while (true) {
    const std::size_t begin = text.find_first_not_of(kBetween);
    if (begin == std::string_view::npos) return;
    text.remove_prefix(begin);
    const std::size_t end = std::min(text.find_first_of(kBetween), text.size());
    visit(text.substr(0, end));
    text.remove_prefix(end);
  }
}

void set_fields(const TraceLines& lines, const TraceMapping& mapping, const CsvHeader& header,
                const std::vector<std::string_view>& texts, bool wants_prompt, TraceRow& row) {
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const MappedField& mapped = mapping.fields[i];
    if (header.position[i] == CsvHeader::kMissing) continue;
    if (wants_prompt != (mapped.field == TraceField::Prompt)) continue;
    if (texts[i].empty() && !mapped.is_needed) continue;
    const auto set = [&](std::string_view text) {
      set_trace_value(lines, mapping, mapped.field, mapped.name, text, row);
    };
    const bool is_list = mapped.field == TraceField::Hashes || mapped.field == TraceField::Tokens;
    if (is_list) {
      for_each_item(texts[i], set);
    } else {
      set(texts[i]);
    }
  }
}

}  // namespace

void read_csv_rows(TraceLines& lines, const TraceMapping& mapping, TraceRequests& requests) {
  lines.next();
  const CsvHeader header = match_header(lines.line(), mapping, requests);
  if (!header.repeated.empty()) lines.fail(header.repeated, "appears twice; allowed: once");
  for (std::size_t i = 0; i < mapping.fields.size(); ++i) {
    const MappedField& mapped = mapping.fields[i];
    if (header.position[i] != CsvHeader::kMissing) continue;
    if (!mapped.is_needed && !mapped.is_given) continue;
    lines.fail(mapped.name, "missing column; " + mapping.article_and_name() + " trace has " +
                                mapping.needed_names());
  }
  TraceRow row;
  while (lines.next()) {
    row.clear();
    const std::vector<std::string_view> texts = split_row(lines, mapping, header);
    set_fields(lines, mapping, header, texts, false, row);
    // The prompt of a failed request may be anything.
    const bool has_failed = mapping.skips_failed && row.num_output_tokens == 0;
    if (!has_failed && row.is_request) set_fields(lines, mapping, header, texts, true, row);
    requests.add(row, lines);
  }
}

}  // namespace metronome
