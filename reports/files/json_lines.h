// SPDX-License-Identifier: Apache-2.0
// JSON Lines files, written in portions that fit the CPU cache.
#pragma once

#include <cstddef>

#include "core/base/json_text.h"
#include "system/file_writer.h"

namespace metronome {

constexpr std::size_t kFlushBytes = std::size_t{1} << 18;  // bytes of text per write

// Calls append(i, json) for i in [0, num_items) and writes the appended text. Each call appends
// whole lines or nothing.
template <class Append>
void write_json_lines(std::size_t num_items, FileWriter& file, const Append& append) {
  JsonText json;
  for (std::size_t i = 0; i < num_items; ++i) {
    append(i, json);
    if (json.size() >= kFlushBytes) {
      file.write(json.view());
      json.clear();
    }
  }
  file.write(json.view());
}

}  // namespace metronome
