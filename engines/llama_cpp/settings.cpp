// SPDX-License-Identifier: Apache-2.0
#include "engines/llama_cpp/settings.h"

#include "core/config/config_limits.h"
#include "core/config/config_reader.h"

namespace metronome {

void visit_fields(FieldVisitor& visitor, LlamaCppConfig& config) {
  visitor.integer("n_batch", config.n_batch, 1, kMaxTokens, "llama_cpp: tokens of a step");
  visitor.integer(
      "n_ubatch", config.n_ubatch, 1, kMaxTokens,
      "llama_cpp: tokens of a pass, each of which reads all weights; a step is computed "
      "in as many passes as it takes");
  visitor.boolean("cont_batching", config.cont_batching,
                  "llama_cpp: prompts join the running decodes");
  visitor.number("slot_prompt_similarity", config.slot_prompt_similarity, 0, 1,
                 "llama_cpp: an idle slot with more than this share of a prompt is preferred; "
                 "0: always the one that has been idle for longest");
}

}  // namespace metronome
