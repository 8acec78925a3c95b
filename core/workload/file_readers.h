// SPDX-License-Identifier: Apache-2.0
// Files that a workload needs and core does not read. models/ registers what reads them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.h"
#include "core/config/config_node.h"
#include "core/model/image_pixels.h"

namespace metronome {

// Gives the token ids of a text, with those that the tokenizer's file adds to each.
using TextEncoder = std::function<std::vector<TokenId>(std::string_view text)>;

struct WorkloadFileReaders {
  // The encoder of a tokenizer.json or of a GGUF file. Throws ConfigError for another file.
  TextEncoder (*read_tokenizer)(const std::string& path) = nullptr;
  // The pixels of a PNG or JPEG file. Throws ConfigError with `name` for other bytes.
  ImagePixels (*read_image)(std::string_view bytes, const std::string& name) = nullptr;
};

// Called once, at the start of a program, before a workload is made.
void register_workload_readers(const WorkloadFileReaders& readers);

// The registered readers. Throws ConfigError at `key`, which names the file, if there are none.
const WorkloadFileReaders& workload_readers(const SourceLocation& where, const std::string& key);

}  // namespace metronome
