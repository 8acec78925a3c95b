// SPDX-License-Identifier: Apache-2.0
#include <cctype>
#include <string>
#include <string_view>

#include "core/base/json_text.h"
#include "reports/files/result_files.h"

namespace metronome {

namespace {

// Figures of groups as keys of their own: "class.chat.p99_ttft_ms".
void append_flat_groups(const std::string& kind, const Json& groups, JsonText& json) {
  for (const Json& group : groups) {
    std::string name = group.at("name").string();
    if (name.starts_with("priority ")) name.erase(0, std::string_view("priority ").size());
    for (char& c : name) {
      const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-';
      if (!is_plain) c = '_';
    }
    for (const Json::Member& member : group.items()) {
      if (member.key == "name") continue;
      json.key(kind + "." + name + "." + member.key).subtree(member.value);
    }
  }
}

}  // namespace

std::string summary_json(std::span<const RunResult> results) {
  JsonText json(JsonText::Style::Indented);
  json.begin_array();
  for (const RunResult& result : results) {
    json.begin_object();
    const ResultContent content(result);
    append_flat_fields(content, json);
    append_flat_groups("class", content.classes, json);
    append_flat_groups("priority", content.priorities, json);
    json.end_object();
  }
  json.end_array();
  json.end_line();
  return std::string(json.view());
}

}  // namespace metronome
