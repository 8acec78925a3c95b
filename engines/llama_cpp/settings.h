// SPDX-License-Identifier: Apache-2.0
// The keys of `scheduler` that the server of llama.cpp has.
#pragma once

#include <cstdint>

namespace metronome {

class FieldVisitor;

struct LlamaCppConfig {
  std::int32_t n_batch = 2048;
  std::int32_t n_ubatch = 512;
  bool cont_batching = true;
  double slot_prompt_similarity = 0.1;
};

void visit_fields(FieldVisitor& visitor, LlamaCppConfig& config);

}  // namespace metronome
