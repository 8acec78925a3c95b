// The requests of a run and when they arrive. A workload is made once per scenario and shared by
// its variants, so that all of them face the same arrivals and lengths.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "core/engine/prompt.h"
#include "core/engine/request.h"

namespace metronome {

enum class ArrivalMode : std::uint8_t {
  Timed,       // spec.arrival is a time
  Steps,       // spec.arrival is an engine step: the request is there before step `arrival`
  ClosedLoop,  // the next request is submitted think_time after one ends, `concurrency` at a time
};

class Workload final : public PromptSource {
 public:
  ArrivalMode mode = ArrivalMode::Timed;
  std::int32_t concurrency = 0;       // ClosedLoop
  TimeNs think_time = 0;              // ClosedLoop
  std::vector<RequestSpec> requests;  // by arrival; RequestId i is requests[i]
  std::int64_t num_skipped = 0;       // rows of a trace that record failed requests, left out

  // Prompts that share prefixes: segments of request i are
  // segments[segment_begin[i] .. segment_begin[i + 1]). Empty: every prompt is unique.
  std::vector<PromptSegment> segments;
  std::vector<std::uint32_t> segment_begin;
  // Prompts given token by token (ShareGPT JSONL), same indexing; empty: none.
  std::vector<TokenId> token_ids;
  std::vector<std::uint64_t> token_begin;

  std::span<const TokenId> prompt_ids(RequestId request) const override;
  std::span<const PromptSegment> prompt_segments(RequestId request) const override;

  // What is wrong with the first given id that a vocabulary of this size does not have; empty:
  // nothing.
  std::string token_id_error(std::int64_t vocab_size) const;

  // Writes the prompt of request i: given ids where there are any, else ids drawn from the
  // content of its segments and the seed. Equal segments give equal ids. Ids < vocab_size.
  // Requires given ids without token_id_error(vocab_size).
  void prompt_token_ids(std::size_t i, std::uint64_t seed, std::int64_t vocab_size,
                        std::vector<TokenId>& out) const;

  std::int64_t total_prompt_tokens() const;
  std::int64_t total_output_tokens() const;
};

}  // namespace metronome
