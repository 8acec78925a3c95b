// SPDX-License-Identifier: Apache-2.0
#include "core/model/model_file.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>

#include "core/base/files.h"

namespace metronome {
namespace {

ModelFileReader& registered() {
  static ModelFileReader reader = nullptr;
  return reader;
}

}  // namespace

bool is_gguf_file(const std::string& path) {
  std::ifstream file = open_input(path);
  if (!file) return false;
  std::array<char, 4> magic{};
  file.read(magic.data(), magic.size());
  if (file && std::string_view(magic.data(), magic.size()) == "GGUF") return true;
  constexpr std::string_view kEnding = ".gguf";
  if (path.size() < kEnding.size()) return false;
  return std::equal(kEnding.begin(), kEnding.end(), path.end() - kEnding.size(),
                    [](char wanted, char c) {
                      return c == wanted || (c >= 'A' && c <= 'Z' && c - 'A' + 'a' == wanted);
                    });
}

void register_model_file_reader(ModelFileReader reader) { registered() = reader; }

ModelFileReader model_file_reader() { return registered(); }

}  // namespace metronome
