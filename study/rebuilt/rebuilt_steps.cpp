// SPDX-License-Identifier: Apache-2.0
#include "study/rebuilt/rebuilt_steps.h"

#include <algorithm>
#include <fmt/core.h>
#include <limits>

#include "sim/fitted/step_features.h"

namespace metronome {
namespace {

ScheduledChunk chunk_at(std::int64_t position, std::int64_t num_tokens, ChunkKind kind,
                        bool samples) {
  return {kNoRequest, static_cast<std::int32_t>(position), static_cast<std::int32_t>(num_tokens),
          kind, samples};
}

// The requests that decode, iteration by iteration.
class Decoders {
 public:
  explicit Decoders(const RebuiltLog& rebuilt) : rebuilt_(rebuilt) {
    for (std::size_t r = 0; r < rebuilt.requests.size(); ++r) {
      if (rebuilt.requests[r].first == kNoIteration) running_.push_back(r);
    }
  }
  const std::vector<std::size_t>& running() const { return running_; }
  // Goes on behind iteration `i`.
  void pass(std::size_t i) {
    std::erase_if(running_, [&](std::size_t r) { return rebuilt_.requests[r].last == i; });
    for (const RebuiltChunk& chunk : rebuilt_.chunks[i]) {
      const bool goes_on = rebuilt_.requests[chunk.request].last != i;
      if (chunk.is_last && goes_on) running_.push_back(chunk.request);
    }
  }

 private:
  const RebuiltLog& rebuilt_;
  std::vector<std::size_t> running_;
};

}  // namespace

CalibrationSteps rebuilt_steps(const RebuiltLog& rebuilt, const std::string& path,
                               const ModelConfig& model, const std::string& hardware,
                               const std::string& engine) {
  CalibrationSteps all;
  all.model = model;
  all.hardware = hardware;
  all.engine = engine;
  all.sources.push_back(path);
  Decoders decoders(rebuilt);
  std::vector<ScheduledChunk> chunks;
  for (std::size_t i = 0; i < rebuilt.iterations.size(); ++i) {
    const LogObservation& seen = rebuilt.iterations[i];
    const auto num_running = static_cast<std::int64_t>(decoders.running().size());
    const bool has_shape =
        std::all_of(rebuilt.chunks[i].begin(), rebuilt.chunks[i].end(), [](const auto& chunk) {
          constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max() / 2;
          return chunk.num_tokens >= 1 && chunk.num_tokens <= kMost &&
                 chunk.first_position <= kMost;
        });
    const bool is_known = has_shape && rebuilt.is_settled[i] && num_running == seen.num_running &&
                          (num_running == 0 || seen.num_decode_tokens % num_running == 0);
    if (!is_known || !seen.is_plausible()) {
      ++all.num_left_out;
    } else {
      chunks.clear();
      for (const RebuiltChunk& chunk : rebuilt.chunks[i]) {
        chunks.push_back(
            chunk_at(chunk.first_position, chunk.num_tokens, ChunkKind::Prefill, chunk.is_last));
      }
      for (const std::size_t r : decoders.running()) {
        if (seen.num_decode_tokens == 0) break;  // they wait
        const RebuiltRequest& request = rebuilt.requests[r];
        const std::size_t first = request.prefilled == kNoIteration ? 0 : request.prefilled;
        const std::int64_t computed =
            rebuilt.num_token_steps[i + 1] - rebuilt.num_token_steps[first + 1];
        chunks.push_back(
            chunk_at(request.num_prompt_tokens + std::max<std::int64_t>(computed, 1) - 1,
                     seen.num_decode_tokens / num_running, ChunkKind::Decode, true));
      }
      all.steps.push_back(
          {{pass_features(model, {.chunks = chunks})}, static_cast<double>(seen.elapsed_ns)});
      all.names.push_back(fmt::format("{}:{}", path, seen.line));
      all.is_early.push_back(i < kNumEarly);
    }
    decoders.pass(i);
  }
  return all;
}

}  // namespace metronome
