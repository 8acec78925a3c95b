// SPDX-License-Identifier: Apache-2.0
// Answers tools/tokenizer_parity: a tokenizer.json as argument, one JSON object a line on standard
// input, one line each on standard output.
//   {"hex": bytes of a text, "add": whether to add special tokens}  ->  the ids
//   {"ids": [...], "skip": whether to leave special tokens out}     ->  the text's bytes in hex
//   {"file": path, "rounds": n}                                     ->  seconds of each encoding
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "models/text/tokenizer.h"

namespace {

using namespace metronome;

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    hex += kDigits[byte / 16];
    hex += kDigits[byte % 16];
  }
  return hex;
}

Json time_of(const Tokenizer& tokenizer, const std::string& path, int rounds) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  Json seconds = Json::array();
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const std::size_t num_ids = tokenizer.encode(text.view(), false).size();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (num_ids > 0) seconds.push_back(elapsed.count());
  }
  return seconds;
}

Json answer(const Tokenizer& tokenizer, const Json& question) {
  if (question.contains("file")) {
    return time_of(tokenizer, question.at("file").string(), question.at("rounds").get<int>());
  }
  if (question.contains("hex")) {
    Json ids = Json::array();
    for (const TokenId id :
         tokenizer.encode(from_hex(question.at("hex").string()), question.at("add").get<bool>())) {
      ids.push_back(value(id));
    }
    return ids;
  }
  std::vector<TokenId> ids;
  for (const Json& id : question.at("ids")) ids.push_back(TokenId{id.get<std::int32_t>()});
  return to_hex(decode(tokenizer, ids, question.at("skip").get<bool>()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: metronome_tokenizer_lines tokenizer.json\n";
    return 2;
  }
  try {
    const auto tokenizer = std::string_view(argv[1]) == "bytes"
                               ? metronome::byte_tokenizer()
                               : metronome::read_tokenizer(argv[1]);
    for (std::string line; std::getline(std::cin, line);) {
      std::cout << answer(*tokenizer, Json::parse(line)).dump() << '\n';
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
