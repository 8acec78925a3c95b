// SPDX-License-Identifier: Apache-2.0
#include "study/compose/yaml_draft.h"

#include <algorithm>
#include <cctype>

#include "core/base/json.h"
#include "core/base/names.h"

namespace metronome {

void YamlDraft::set(const std::string& key, const std::string& value, const std::string& reason) {
  const auto known = std::find_if(lines_.begin(), lines_.end(),
                                  [&key](const Line& line) { return line.key == key; });
  if (known != lines_.end()) {
    known->value = value;
    known->reason = reason;
  } else {
    lines_.push_back({key, value, reason});
  }
}

void YamlDraft::set_text(const std::string& key, const std::string& value,
                         const std::string& reason) {
  const bool is_plain =
      !value.empty() && std::isalpha(static_cast<unsigned char>(value.front())) != 0 &&
      std::all_of(value.begin(), value.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 ||
               std::string_view("._/+-").find(static_cast<char>(c)) != std::string_view::npos;
      });
  constexpr std::string_view kWords[] = {"true", "false", "null", "yes", "no", "on", "off"};
  const bool is_word =
      std::find(std::begin(kWords), std::end(kWords), lower_ascii(value)) == std::end(kWords);
  set(key, is_plain && is_word ? value : Json(value).dump(), reason);
}

const YamlDraft::Line* YamlDraft::find(std::string_view key) const {
  const auto known = std::find_if(lines_.begin(), lines_.end(),
                                  [key](const Line& line) { return line.key == key; });
  return known == lines_.end() ? nullptr : &*known;
}

bool YamlDraft::has(std::string_view key) const { return find(key) != nullptr; }

std::string YamlDraft::value(std::string_view key) const {
  const Line* const line = find(key);
  return line == nullptr ? std::string() : line->value;
}

std::vector<std::string> YamlDraft::names_in(std::string_view section) const {
  std::vector<std::string> names;
  for (const Line& line : lines_) {
    if (!line.key.starts_with(section)) continue;
    const std::string rest = line.key.substr(section.size());
    std::string name = rest.substr(0, rest.find('.'));
    if (std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(std::move(name));
  }
  return names;
}

void YamlDraft::write(const std::string& section, std::size_t depth, std::string& text) const {
  for (const std::string& name : names_in(section)) {
    text += std::string(2 * depth, ' ') + name + ":";
    if (const Line* const line = find(section + name)) {
      text += " " + line->value + (line->reason.empty() ? "" : "  # " + line->reason) + "\n";
    } else {
      text += "\n";
      write(section + name + ".", depth + 1, text);
    }
  }
}

std::string YamlDraft::flow_of(const std::string& section) const {
  std::string text;
  for (const std::string& name : names_in(section)) {
    const Line* const line = find(section + name);
    text += (text.empty() ? "" : ", ") + name + ": " +
            (line != nullptr ? line->value : flow_of(section + name + "."));
  }
  return "{" + text + "}";
}

std::string YamlDraft::flow() const { return flow_of(""); }

std::string YamlDraft::text(const std::vector<std::string>& head) const {
  std::string text;
  for (const std::string& line : head) text += "# " + printable(line) + "\n";
  write("", 0, text);
  return text;
}

}  // namespace metronome
