// SPDX-License-Identifier: Apache-2.0
#include "core/workload/workload.h"

#include <algorithm>
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/base/rng.h"

namespace metronome {

namespace {

// Row i of an array that holds the items of all requests; empty where it has none.
template <class T, class Begin>
std::span<const T> row_of(const std::vector<T>& items, const std::vector<Begin>& begins,
                          std::size_t i) {
  if (i + 1 >= begins.size()) return {};
  const auto begin = static_cast<std::size_t>(begins[i]);
  return std::span<const T>(items).subspan(begin, static_cast<std::size_t>(begins[i + 1]) - begin);
}

void append_drawn_ids(const PromptSegment& segment, std::uint64_t seed, std::int64_t vocab_size,
                      std::vector<TokenId>& out) {
  // A counter-based hash: token k depends only on seed, content and k. So a shortened segment is a
  // prefix of the longer one.
  const std::uint64_t key = mix64(mix64(seed) ^ segment.content);
  const auto num_ids = static_cast<std::uint64_t>(vocab_size);
  for (std::int32_t k = 0; k < segment.num_tokens; ++k) {
    const std::uint64_t drawn = mix64(key + static_cast<std::uint64_t>(k));
    out.push_back(TokenId(static_cast<std::int32_t>(drawn % num_ids)));
  }
}

}  // namespace

std::span<const TokenId> Workload::prompt_ids(RequestId request) const {
  return row_of(token_ids, token_begin, index(request));
}

// A trace of conversations with times of its own may send the next turn before the last one ended.
OutputReuse Workload::output_reuse() const {
  const bool has_output =
      std::any_of(segments.begin(), segments.end(), [](const PromptSegment& segment) {
        return is_of_kind(ContentKind::Output, segment.content);
      });
  return has_output ? OutputReuse::AnyTime : OutputReuse::Never;
}

std::span<const PromptSegment> Workload::prompt_segments(RequestId request) const {
  return row_of(segments, segment_begin, index(request));
}

std::span<const EncoderItem> Workload::encoder_items(RequestId request) const {
  return row_of(images, image_begin, index(request));
}

std::string Workload::token_id_error(std::int64_t vocab_size) const {
  const auto bad = std::find_if(token_ids.begin(), token_ids.end(),
                                [vocab_size](TokenId id) { return value(id) >= vocab_size; });
  if (bad == token_ids.end()) return {};
  const auto position = static_cast<std::uint64_t>(bad - token_ids.begin());
  const auto next = std::upper_bound(token_begin.begin(), token_begin.end(), position);
  return fmt::format("request {} has token id {}; allowed: the model's ids, 0 to {}",
                     next - token_begin.begin() - 1, value(*bad), vocab_size - 1);
}

void Workload::prompt_token_ids(std::size_t i, std::uint64_t seed, std::int64_t vocab_size,
                                std::vector<TokenId>& out) const {
  METRONOME_CHECK(i < requests.size(), fmt::format("request {} is not in the workload", i));
  METRONOME_CHECK(!has_sessions(), "prompts of sessions depend on answers");
  METRONOME_CHECK(vocab_size >= 1 && vocab_size <= INT32_MAX, "vocabulary size out of range");
  out.clear();
  out.reserve(static_cast<std::size_t>(requests[i].num_prompt_tokens));
  if (!token_begin.empty()) {
    for (const TokenId id : row_of(token_ids, token_begin, i)) {
      METRONOME_CHECK(value(id) < vocab_size, "given ids were checked before");
      out.push_back(id);
    }
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
      fmt::format("segments or token ids of request {} do not add up to its prompt", i));
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
