// SPDX-License-Identifier: Apache-2.0
// The lines of steps.jsonl.
#pragma once

#include <cstddef>
#include <span>

#include "core/base/json_text.h"
#include "core/metrics/run_record.h"

namespace metronome {

// Fields that all lines of a run have, or none.
struct StepFields {
  StepFields() = default;
  explicit StepFields(const RunRecord& record)
      : has_drafts(record.drafts.num_drafts > 0), has_encodings(record.has_encodings) {}

  bool has_drafts = false;
  bool has_encodings = false;

  bool operator==(const StepFields&) const = default;
};

// The line of the step at `position`; `replica` is that of a fleet, -1 where there is one engine.
void append_step(std::size_t position, const StepEntry& step, std::span<const PrefillChunk> chunks,
                 const StepFields& fields, JsonText& json, std::int32_t replica = -1);

}  // namespace metronome
