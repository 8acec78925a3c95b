// What the tokens of prompts are.
#pragma once

#include <cstdint>
#include <span>

#include "core/engine/request.h"

namespace metronome {

// A run of prompt tokens with the same origin: equal content ids mean equal tokens, so requests
// whose first segments agree share a prefix.
struct PromptSegment {
  std::uint64_t content = 0;
  std::int32_t num_tokens = 0;
};

// Content ids of the sources of tokens; they never collide. `id` < 2^56. Output is what a request
// generates; the others are sources of prompt segments.
enum class ContentKind : std::uint8_t { Request = 1, Group, TreeNode, TraceBlock, Output };
constexpr std::uint64_t content_id(ContentKind kind, std::uint64_t id) {
  return (static_cast<std::uint64_t>(kind) << 56) | id;
}

// The prompts of requests, each given by one of two views. A prompt with neither is unique to its
// request.
class PromptSource {
 public:
  virtual ~PromptSource() = default;
  // Every token of the prompt; empty: not known.
  virtual std::span<const TokenId> prompt_ids(RequestId request) const = 0;
  // Segments that together are as long as the prompt; empty: none.
  virtual std::span<const PromptSegment> prompt_segments(RequestId) const { return {}; }
};

}  // namespace metronome
