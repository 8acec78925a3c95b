// SPDX-License-Identifier: Apache-2.0
// The causes of a gap between tokens, as JSON.
#pragma once

#include "core/base/json_text.h"
#include "core/metrics/gap_analysis.h"

namespace metronome {

// Appends the keys `decode_ms`, ..., `preemption_ms` to an open object, in milliseconds. Drafts and
// images have a key only if they took time.
inline void append_gap_parts(const GapParts& parts, JsonText& json) {
  json.key("decode_ms").ms(parts.decode_ns);
  if (parts.draft_ns > 0) json.key("draft_ms").ms(parts.draft_ns);
  if (parts.encode_ns > 0) json.key("encode_ms").ms(parts.encode_ns);
  json.key("prefill_ms").ms(parts.prefill_ns);
  json.key("host_ms").ms(parts.host_ns);
  json.key("waiting_ms").ms(parts.waiting_ns);
  json.key("preemption_ms").ms(parts.preemption_ns);
}

}  // namespace metronome
