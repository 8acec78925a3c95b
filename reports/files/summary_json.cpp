// SPDX-License-Identifier: Apache-2.0
#include "core/base/json_text.h"
#include "reports/files/result_files.h"

namespace metronome {

std::string summary_json(std::span<const RunResult> results) {
  JsonText json(JsonText::Style::Indented);
  json.begin_array();
  for (const RunResult& result : results) {
    json.begin_object();
    append_flat_fields(ResultContent(result), json);
    json.end_object();
  }
  json.end_array();
  json.end_line();
  return std::string(json.view());
}

}  // namespace metronome
