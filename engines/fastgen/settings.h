// SPDX-License-Identifier: Apache-2.0
// The keys of `scheduler` that DeepSpeed-FastGen has.
#pragma once

#include <cstdint>

namespace metronome {

class FieldVisitor;

struct FastGenConfig {
  std::int32_t max_ragged_batch_size = 768;
  std::int32_t max_ragged_sequence_count = 512;
  std::int32_t max_tracked_sequences = 2048;
};

void visit_fields(FieldVisitor& visitor, FastGenConfig& config);

}  // namespace metronome
