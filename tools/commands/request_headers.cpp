// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/request_headers.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "core/base/command_errors.h"
#include "core/base/names.h"
#include "serve/server/request_reader.h"

namespace metronome {
namespace {

// Headers of which the client sends its own; a second one would break the request.
constexpr std::string_view kOwnHeaders[] = {"connection", "content-length", "content-type", "host",
                                            "transfer-encoding"};

// Checks a header that is sent with every request; `where` is the user's source of it.
void check_header(const std::string& header, const std::string& where) {
  const std::size_t colon = header.find(':');
  const std::string name = header.substr(0, colon);
  const bool has_name = colon != std::string::npos && is_token(name);
  const bool has_control = std::any_of(header.begin(), header.end(), [](char c) {
    return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
  });
  if (!has_name || has_control) {
    throw UsageError(where + ": is not a header; allowed: one line NAME: VALUE");
  }
  const auto end = std::end(kOwnHeaders);
  if (std::find(std::begin(kOwnHeaders), end, lower_ascii(name)) == end) return;
  throw UsageError(where + ": the client sets " + name + " itself; allowed: other headers");
}

}  // namespace

void complete_headers(std::vector<std::string>& headers) {
  for (const std::string& header : headers) check_header(header, "--header");
  if (const char* key = std::getenv("OPENAI_API_KEY"); key != nullptr && *key != '\0') {
    headers.push_back("Authorization: Bearer " + std::string(key));
    check_header(headers.back(), "OPENAI_API_KEY");
  }
}

}  // namespace metronome
