// SPDX-License-Identifier: Apache-2.0
// Core asks the model library for readers of files that need its rooms.
#pragma once

namespace metronome {

// Registers the reader of GGUF files (core/model/model_file.h), and those of tokenizers and
// pictures (core/workload/file_readers.h). Called once, at the start of a program, before a
// scenario is read.
void register_models();

}  // namespace metronome
