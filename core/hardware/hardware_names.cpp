// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/hardware_names.h"

#include <algorithm>
#include <set>
#include <vector>

#include "core/base/names.h"
#include "core/config/config_node.h"

namespace metronome {

extern const std::string_view kHardwareNamesYaml;  // core/hardware/hardware_names.yaml

namespace {

enum class Sign { Letter, Digit, Other };

Sign sign_of(char c) {
  if (c >= '0' && c <= '9') return Sign::Digit;
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ? Sign::Letter : Sign::Other;
}

// The name in lower case without what is neither letter nor digit, and without words of brands. A
// word ends where a number begins: "rtx3090" has two.
std::string plain_name(std::string_view name, const std::set<std::string>& brands) {
  std::string plain;
  while (!name.empty()) {
    const Sign sign = sign_of(name.front());
    const auto end =
        std::find_if(name.begin(), name.end(), [sign](char c) { return sign_of(c) != sign; });
    const auto length = static_cast<std::size_t>(end - name.begin());
    const std::string word = lower_ascii(name.substr(0, length));
    if (sign != Sign::Other && brands.count(word) == 0) plain += word;
    name.remove_prefix(length);
  }
  return plain;
}

struct KnownName {
  std::string plain;
  std::string hardware;
};

struct KnownNames {
  std::set<std::string> brands;
  std::vector<KnownName> rows;

  KnownNames() {
    const ConfigNode root = parse_config_text(kHardwareNamesYaml, "hardware_names.yaml");
    for (const ConfigNode& brand : root.find("brands")->items) brands.insert(brand.scalar);
    for (const ConfigNode::Entry& gpu : root.find("names")->entries) {
      rows.push_back({plain_name(gpu.key, brands), gpu.key});
      for (const ConfigNode& name : gpu.value.items) {
        rows.push_back({plain_name(name.scalar, brands), gpu.key});
      }
    }
  }
};

const KnownNames& known_names() {
  static const KnownNames known;
  return known;
}

}  // namespace

std::string hardware_name(std::string_view name) {
  const std::string plain = plain_name(name, known_names().brands);
  for (const KnownName& row : known_names().rows) {
    if (row.plain == plain) return row.hardware;
  }
  return {};
}

std::string nearest_hardware(std::string_view name) {
  std::vector<std::string_view> names;
  for (const KnownName& row : known_names().rows) {
    names.push_back(row.plain);
    names.push_back(row.hardware);
  }
  const std::string plain = plain_name(name, known_names().brands);
  std::string_view nearest = nearest_numbered_name(plain, names);
  // A brand may be what is misspelt. "rtx-6000" has no word beside it, and is none of several.
  const bool has_word =
      std::any_of(plain.begin(), plain.end(), [](char c) { return sign_of(c) == Sign::Letter; });
  if (nearest.empty() && has_word) nearest = nearest_numbered_name(name, names);
  return nearest.empty() ? "" : hardware_name(nearest);
}

}  // namespace metronome
