// SPDX-License-Identifier: Apache-2.0
#include "engines/sarathi/settings.h"

#include "core/config/config_limits.h"
#include "core/config/config_reader.h"

namespace metronome {

void visit_fields(FieldVisitor& visitor, SarathiConfig& config) {
  visitor.integer("chunk_size", config.chunk_size, 1, kMaxTokens,
                  "sarathi, simple_chunking: tokens of a step");
  visitor.boolean("enable_dynamic_chunking_schedule", config.enable_dynamic_chunking_schedule,
                  "sarathi: the chunk shrinks in stages as a prompt advances");
  visitor.integer("low_chunk_size", config.low_chunk_size, 1, kMaxTokens,
                  "sarathi, dynamic: chunk of the last stage; a multiple of 32");
  visitor.integer("high_chunk_size", config.high_chunk_size, 1, kMaxTokens,
                  "sarathi, dynamic: chunk of the first stage; a multiple of 32");
  visitor.integer("chunk_schedule_max_tokens", config.chunk_schedule_max_tokens, 1, kMaxTokens,
                  "sarathi, dynamic: prompt tokens that the stages divide");
  visitor.integer("chunk_schedule_stages", config.chunk_schedule_stages, 1, 1024,
                  "sarathi, dynamic: stages");
}

}  // namespace metronome
