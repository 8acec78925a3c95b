// SPDX-License-Identifier: Apache-2.0
// Names of the files that llama-gguf-split cuts a model into: NAME-00001-of-00003.gguf and so on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace metronome {

// Parts are counted from 0, as split.no does. The path of part `other` beside that of part `part`,
// of `count` parts; empty: `path` does not end as that of such a part.
std::string gguf_part_path(std::string_view path, std::int64_t part, std::int64_t count,
                           std::int64_t other);

// The name of a model by that of its file: "x" for "x-00001-of-00003", any other as it is.
std::string gguf_model_name(std::string_view file_name);

}  // namespace metronome
