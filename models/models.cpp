// SPDX-License-Identifier: Apache-2.0
#include "models/models.h"

#include <memory>

#include "core/model/model_file.h"
#include "core/workload/file_readers.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_parts.h"
#include "models/image/image_file.h"
#include "models/text/tokenizer.h"
#include "models/weights/gguf_config.h"

namespace metronome {
namespace {

ModelConfig read_model_file(const std::string& path, const std::string& name) {
  return read_gguf_config(GgufFile(path), gguf_model_name(name));
}

TextEncoder read_text_encoder(const std::string& path) {
  return [tokenizer = std::shared_ptr<const Tokenizer>(read_tokenizer(path))](
             std::string_view text) { return tokenizer->encode(text, true); };
}

}  // namespace

void register_models() {
  register_model_file_reader(read_model_file);
  register_workload_readers({.read_tokenizer = read_text_encoder, .read_image = read_image});
}

}  // namespace metronome
