#include "core/workload.h"

#include "core/error.h"
#include "core/rng.h"

namespace metronome {

namespace {

void append_drawn_ids(const PromptSegment& segment, std::uint64_t seed, std::int64_t vocab_size,
                      std::vector<TokenId>& out) {
  // A counter-based hash: token k depends on nothing but seed, content and k, so a segment that
  // is cut short agrees with the longer one as far as it goes.
  const std::uint64_t key = mix64(mix64(seed) ^ segment.content);
  const auto num_ids = static_cast<std::uint64_t>(vocab_size);
  for (std::int32_t k = 0; k < segment.num_tokens; ++k) {
    const std::uint64_t drawn = mix64(key + static_cast<std::uint64_t>(k));
    out.push_back(TokenId(static_cast<std::int32_t>(drawn % num_ids)));
  }
}

void append_given_ids(std::span<const TokenId> given, std::size_t request, std::int64_t vocab_size,
                      std::vector<TokenId>& out) {
  for (const TokenId id : given) {
    if (value(id) >= vocab_size) {
      throw ConfigError("workload.trace: request " + std::to_string(request) + " has token id " +
                        std::to_string(value(id)) + "; the model's ids are 0 to " +
                        std::to_string(vocab_size - 1));
    }
    out.push_back(id);
  }
}

}  // namespace

void Workload::prompt_token_ids(std::size_t i, std::uint64_t seed, std::int64_t vocab_size,
                                std::vector<TokenId>& out) const {
  METRONOME_CHECK(i < requests.size(), "request " + std::to_string(i) + " is not in the workload");
  METRONOME_CHECK(vocab_size >= 1 && vocab_size <= INT32_MAX, "vocabulary size out of range");
  out.clear();
  out.reserve(static_cast<std::size_t>(requests[i].num_prompt_tokens));
  if (!token_begin.empty()) {
    const std::span<const TokenId> all(token_ids);
    append_given_ids(all.subspan(token_begin[i], token_begin[i + 1] - token_begin[i]), i,
                     vocab_size, out);
  } else if (!segment_begin.empty()) {
    for (std::size_t s = segment_begin[i]; s < segment_begin[i + 1]; ++s) {
      append_drawn_ids(segments[s], seed, vocab_size, out);
    }
  } else {
    append_drawn_ids({content_id(ContentKind::Request, i), requests[i].num_prompt_tokens}, seed,
                     vocab_size, out);
  }
  METRONOME_CHECK(
      out.size() == static_cast<std::size_t>(requests[i].num_prompt_tokens),
      "segments or token ids of request " + std::to_string(i) + " do not add up to its prompt");
}

std::int64_t Workload::total_prompt_tokens() const {
  std::int64_t total = 0;
  for (const RequestSpec& request : requests) total += request.num_prompt_tokens;
  return total;
}

std::int64_t Workload::total_output_tokens() const {
  std::int64_t total = 0;
  for (const RequestSpec& request : requests) total += request.max_output_tokens;
  return total;
}

}  // namespace metronome
