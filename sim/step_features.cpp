#include "sim/step_features.h"

#include <algorithm>
#include <cstdint>

#include "sim/roofline.h"

namespace metronome {
namespace {

double real(std::int64_t n) { return static_cast<double>(n); }

}  // namespace

StepFeatures pass_features(const ModelConfig& model, std::span<const ScheduledChunk> chunks) {
  const std::int64_t window = model.sliding_window;
  std::int64_t pairs = 0;
  std::int64_t window_pairs = 0;
  std::int64_t kv = 0;
  std::int64_t window_kv = 0;
  StepFeatures pass;
  for (const ScheduledChunk& chunk : chunks) {
    pass.tokens += chunk.num_tokens;
    pass.rows += chunk.samples_token ? 1 : 0;
    if (chunk.kind == ChunkKind::Decode) {
      const std::int64_t context = chunk.end_position();
      pass.decodes += 1;
      kv += context;
      window_kv += std::min(context, window);
    } else {
      pass.prefill_chunks += 1;
      pairs += attention_pairs(chunk.first_position, chunk.num_tokens, 0);
      if (window > 0) {
        window_pairs += attention_pairs(chunk.first_position, chunk.num_tokens, window);
      }
    }
  }
  const double window_share = real(model.n_window_layers()) / real(model.n_layers);
  const auto mean = [&](std::int64_t whole, std::int64_t clamped) {
    return real(whole) - window_share * real(whole - clamped);
  };
  pass.pairs = mean(pairs, window_pairs);
  pass.decode_kv = mean(kv, window_kv);
  pass.is_graph = pass.prefill_chunks == 0;
  return pass;
}

StepFeatures decodes_of(const StepFeatures& pass) {
  return {.tokens = pass.decodes,
          .decodes = pass.decodes,
          .decode_kv = pass.decode_kv,
          .rows = pass.decodes,
          .is_graph = true};
}

}  // namespace metronome
