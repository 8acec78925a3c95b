// SPDX-License-Identifier: Apache-2.0
#include "sim/fitted/step_features.h"

#include <algorithm>
#include <cstdint>

#include "core/base/real.h"
#include "core/engine/decode_run.h"
#include "sim/roofline/roofline.h"

namespace metronome {

StepFeatures pass_features(const ModelConfig& model, const PassChunks& pass) {
  const std::int64_t window = model.sliding_window;
  std::int64_t pairs = 0;
  std::int64_t window_pairs = 0;
  std::int64_t kv = 0;
  std::int64_t window_kv = 0;
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  std::int64_t prefill_chunks = 0;
  std::int64_t decodes = 0;
  std::int64_t drafts = 0;
  if (const RunMembers* run = pass.run) {
    decodes = rows = tokens = run->size();
    kv = run->sum_of_contexts();
    if (window > 0) window_kv = run->sum_of_contexts(window);
  }
  for (const ScheduledChunk& chunk : pass.chunks) {
    tokens += chunk.num_tokens;
    rows += pass.num_rows(chunk);
    if (chunk.kind == ChunkKind::Decode) {
      // Its tokens attend to the same positions, whose KV is read once.
      decodes += 1;
      drafts += chunk.num_drafts();
      kv += chunk.end_position();
      if (window > 0)
        window_kv += attended_positions(chunk.first_position, chunk.num_tokens, window);
    } else {
      prefill_chunks += 1;
      pairs += attention_pairs(chunk.first_position, chunk.num_tokens, 0);
      if (window > 0) {
        window_pairs += attention_pairs(chunk.first_position, chunk.num_tokens, window);
      }
    }
  }
  const double window_share =
      real(model.n_window_layers()) / std::max(real(model.n_attention_layers()), 1.0);
  const auto mean = [&](std::int64_t whole, std::int64_t clamped) {
    return real(whole) - window_share * real(whole - clamped);
  };
  return {.tokens = real(tokens),
          .pairs = mean(pairs, window_pairs),
          .prefill_chunks = real(prefill_chunks),
          .decodes = real(decodes),
          .decode_kv = mean(kv, window_kv),
          .rows = real(rows),
          .is_graph = prefill_chunks == 0,
          .drafts = real(drafts)};
}

StepFeatures decodes_of(const StepFeatures& pass) {
  const double tokens = pass.decodes + pass.drafts;
  return {.tokens = tokens,
          .decodes = pass.decodes,
          .decode_kv = pass.decode_kv,
          .rows = tokens,
          .is_graph = true,
          .drafts = pass.drafts};
}

}  // namespace metronome
