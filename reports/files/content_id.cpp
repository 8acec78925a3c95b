// SPDX-License-Identifier: Apache-2.0
#include "reports/files/content_id.h"

#include <boost/uuid/name_generator_sha1.hpp>
#include <boost/uuid/uuid.hpp>
#include <cstdint>

namespace metronome {

std::string content_id_text(std::string_view text) {
  constexpr boost::uuids::uuid kNamespace = {{0x6d, 0x65, 0x74, 0x72, 0x6f, 0x6e, 0x6f, 0x6d, 0x65,
                                              0x2d, 0x73, 0x77, 0x65, 0x65, 0x70, 0x73}};
  boost::uuids::name_generator_sha1 generate(kNamespace);
  std::string digits;
  for (const std::uint8_t byte : generate(text.data(), text.size())) {
    constexpr char kDigits[] = "0123456789abcdef";
    digits += kDigits[byte >> 4u];
    digits += kDigits[byte & 15u];
  }
  return digits;
}

bool has_own_content_id(std::string_view result_json) {
  const std::string line = ",\n  \"" + std::string(kContentIdKey) + "\": \"";
  const std::size_t start = result_json.rfind(line);
  if (start == std::string_view::npos) return false;
  const std::string id = content_id_text(result_json.substr(0, start));
  return result_json.substr(start + line.size()) == id + "\"\n}\n";
}

}  // namespace metronome
