// SPDX-License-Identifier: Apache-2.0
// The keys of `scheduler` that Sarathi-Serve has.
#pragma once

#include <cstdint>

namespace metronome {

class FieldVisitor;

// Sarathi-Serve and its schedulers for comparison.
struct SarathiConfig {
  std::int32_t chunk_size = 512;
  bool enable_dynamic_chunking_schedule = false;  // the chunk shrinks as a prompt advances
  std::int32_t low_chunk_size = 256;
  std::int32_t high_chunk_size = 1024;
  std::int32_t chunk_schedule_max_tokens = 8192;
  std::int32_t chunk_schedule_stages = 4;
};

void visit_fields(FieldVisitor& visitor, SarathiConfig& config);

}  // namespace metronome
