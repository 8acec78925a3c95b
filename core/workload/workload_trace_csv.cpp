// SPDX-License-Identifier: Apache-2.0
// Traces as CSV: a line with the names of the columns, then a line for each request.
#include <cstdint>
#include <string>
#include <utility>
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

CsvHeader match_header(std::string_view line, const TraceMapping& mapping) {
  CsvHeader header;
  header.position.assign(mapping.fields.size(), CsvHeader::kMissing);
  header.num_columns = for_each_csv_field(line, [&](std::size_t position, std::string_view name) {
    for (std::size_t i = 0; i < mapping.fields.size(); ++i) {
      if (mapping.fields[i].name != name) continue;
      if (header.position[i] != CsvHeader::kMissing) header.repeated = name;
      header.position[i] = position;
    }
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
  const std::string counts = "the line has " + std::to_string(num_fields) +
                             " fields; the first line names " + std::to_string(header.num_columns) +
                             " columns";
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (header.position[i] != CsvHeader::kMissing && header.position[i] >= num_fields) {
      lines.fail(mapping.fields[i].name, "missing, " + counts);
    }
  }
  lines.fail("columns", counts);
}

// Sets the parts of the row whose fields `wanted` chooses.
template <class Wanted>
void set_fields(const TraceLines& lines, const TraceMapping& mapping, const CsvHeader& header,
                const std::vector<std::string_view>& texts, Wanted wanted, TraceRow& row) {
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const MappedField& mapped = mapping.fields[i];
    if (header.position[i] == CsvHeader::kMissing || !wanted(mapped.field)) continue;
    set_trace_value(lines, mapping, mapped.field, mapped.name, texts[i], row);
  }
}

}  // namespace

void read_csv_rows(TraceLines& lines, const TraceMapping& mapping, TraceRequests& requests) {
  lines.next();
  const CsvHeader header = match_header(lines.line(), mapping);
  if (!header.repeated.empty()) lines.fail(header.repeated, "appears twice; allowed: once");
  for (std::size_t i = 0; i < mapping.fields.size(); ++i) {
    const MappedField& mapped = mapping.fields[i];
    if (header.position[i] != CsvHeader::kMissing || !mapped.is_needed) continue;
    lines.fail(mapped.name, "missing column; " + mapping.article_and_name() + " trace has " +
                                mapping.needed_names());
  }
  TraceRow row;
  while (lines.next()) {
    row.clear();
    const std::vector<std::string_view> texts = split_row(lines, mapping, header);
    const auto set = [&](auto wanted) { set_fields(lines, mapping, header, texts, wanted, row); };
    // The prompt comes last: that of a failed request may be anything.
    set([](TraceField field) { return field != TraceField::Prompt; });
    if (mapping.skips_failed && row.num_output_tokens == 0) {
      requests.skip();
      continue;
    }
    set([](TraceField field) { return field == TraceField::Prompt; });
    requests.add(row, lines);
  }
}

}  // namespace metronome
