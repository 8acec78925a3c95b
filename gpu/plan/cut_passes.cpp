// SPDX-License-Identifier: Apache-2.0
#include "gpu/plan/cut_passes.h"

#include <algorithm>

#include "core/base/error.h"

namespace metronome {

void cut_passes(const StepPlan& plan, std::int32_t max_tokens, StepPlan& cut) {
  METRONOME_CHECK(max_tokens >= 1, "a pass has room for a token");
  cut.step_index = plan.step_index;
  cut.admitted = plan.admitted;
  cut.chunks.clear();
  cut.passes.clear();
  const auto num_chunks = [&cut] { return static_cast<std::int32_t>(cut.chunks.size()); };
  for (const ForwardPass& pass : plan.passes) {
    std::int32_t room = max_tokens;
    std::int32_t begin = num_chunks();
    for (std::int32_t i = pass.begin; i < pass.end; ++i) {
      ScheduledChunk rest = plan.chunks[static_cast<std::size_t>(i)];
      while (rest.num_tokens > 0) {
        const bool is_whole = rest.kind == ChunkKind::Decode;
        METRONOME_CHECK(!is_whole || rest.num_tokens <= max_tokens,
                        "a pass has room for a decode with its drafts");
        if (room == 0 || (is_whole && room < rest.num_tokens)) {
          cut.passes.push_back({begin, num_chunks()});
          begin = num_chunks();
          room = max_tokens;
        }
        ScheduledChunk piece = rest;
        piece.num_tokens = std::min(rest.num_tokens, room);
        rest.first_position += piece.num_tokens;
        rest.num_tokens -= piece.num_tokens;
        piece.samples_token = rest.samples_token && rest.num_tokens == 0;
        room -= piece.num_tokens;
        cut.chunks.push_back(piece);
      }
    }
    if (num_chunks() > begin) cut.passes.push_back({begin, num_chunks()});
  }
}

}  // namespace metronome
