// SPDX-License-Identifier: Apache-2.0
// The requests of a run and their arrivals. A scenario's variants share one workload, so that all
// have the same arrivals and lengths.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "core/engine/prompt.h"
#include "core/engine/request.h"
#include "core/model/image_pixels.h"

namespace metronome {

enum class ArrivalMode : std::uint8_t {
  Timed,       // spec.arrival is a time
  Steps,       // spec.arrival is an engine step: the request arrives before that step
  ClosedLoop,  // the next request is submitted think_time after one ends, `concurrency` at a time
};

class Workload final : public PromptSource {
 public:
  ArrivalMode mode = ArrivalMode::Timed;
  std::int32_t concurrency = 0;       // ClosedLoop
  TimeNs think_time = 0;              // ClosedLoop
  std::vector<RequestSpec> requests;  // by arrival; RequestId i is requests[i]
  bool has_arrivals = true;           // false: a file of conversations, which has none
  std::int64_t num_skipped = 0;       // trace rows with failed requests, left out
  // Columns and fields of the trace that are not used.
  std::vector<std::string> unused_fields;
  // Classes of requests by name: RequestSpec::class_number counts them from 1.
  std::vector<std::string> class_names;

  // Sessions: that of number s has the requests [session_begin[s], session_begin[s + 1]). The first
  // one comes as `mode` says; each later one is sent delays[i] after the end of the one before, and
  // its prompt is that one's prompt, its output, and new tokens, unless has_whole_prompt says
  // otherwise. Then `requests` are by session, and RequestId counts them as they are sent:
  // session_arrivals.h. Empty: no sessions.
  std::vector<std::uint32_t> session_begin;
  std::vector<TimeNs> delays;
  bool has_sessions() const { return !session_begin.empty(); }
  std::size_t num_sessions() const { return has_sessions() ? session_begin.size() - 1 : 0; }
  // Whether the prompt of this request of the session is that of the one before, its output, and
  // more.
  bool continues_session(std::size_t request, std::size_t session) const {
    return request != session_begin[session] &&
           (has_whole_prompt.empty() || !has_whole_prompt[request]);
  }

  // Prompts with shared prefixes: request i has segments[segment_begin[i] .. segment_begin[i + 1]).
  // Empty: every prompt is unique.
  std::vector<PromptSegment> segments;
  std::vector<std::uint32_t> segment_begin;
  // With sessions the segments of a later request are its new tokens, unless has_whole_prompt says
  // that its prompt does not go on from the one before. A later request may have none, if its new
  // tokens are unique; that vector may be empty.
  std::vector<bool> has_whole_prompt;
  // Prompts given as token ids (ShareGPT), same indexing; empty: none.
  std::vector<TokenId> token_ids;
  std::vector<std::uint64_t> token_begin;

  // Images: request i has images[image_begin[i] .. image_begin[i + 1]). Empty: text only.
  std::vector<EncoderItem> images;
  std::vector<std::uint32_t> image_begin;
  // Images of which more is known than their number of tokens, by content.
  struct Picture {
    std::int32_t rows = 1;  // of tokens
    std::int32_t columns = 1;
    std::shared_ptr<const ImageFile> file;  // null: not known
  };
  std::map<std::uint64_t, Picture> pictures;

  std::span<const TokenId> prompt_ids(RequestId request) const override;
  std::span<const PromptSegment> prompt_segments(RequestId request) const override;
  OutputReuse output_reuse() const override;  // O(segments)
  std::span<const EncoderItem> encoder_items(RequestId request) const override;

  // The error of the first given id outside of a vocabulary of this size; empty: none.
  std::string token_id_error(std::int64_t vocab_size) const;

  // Writes the prompt of request i: its given ids, else ids drawn from the seed and the content of
  // its segments. Equal segments give equal ids. Ids < vocab_size. Requires that
  // token_id_error(vocab_size) is empty, and no sessions: their prompts depend on answers.
  void prompt_token_ids(std::size_t i, std::uint64_t seed, std::int64_t vocab_size,
                        std::vector<TokenId>& out) const;

  std::int64_t total_prompt_tokens() const;
  std::int64_t total_output_tokens() const;
};

}  // namespace metronome
