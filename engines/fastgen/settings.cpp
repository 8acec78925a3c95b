// SPDX-License-Identifier: Apache-2.0
#include "engines/fastgen/settings.h"

#include "core/config/config_limits.h"
#include "core/config/config_reader.h"

namespace metronome {

void visit_fields(FieldVisitor& visitor, FastGenConfig& config) {
  visitor.integer("max_ragged_batch_size", config.max_ragged_batch_size, 1, kMaxTokens,
                  "fastgen: tokens of a step");
  visitor.integer("max_ragged_sequence_count", config.max_ragged_sequence_count, 1, kMaxSeqs,
                  "fastgen: requests of a step");
  visitor.integer("max_tracked_sequences", config.max_tracked_sequences, 1, kMaxSeqs,
                  "fastgen: requests that hold KV blocks");
}

}  // namespace metronome
