// SPDX-License-Identifier: Apache-2.0
// Chunked prefill, and a whole schedule on one page. Begin here to read policies, or to write one.
//
// An engine serves many requests at once. A step computes tokens of several of them in one batch:
// first a request's prompt (prefill), which gives its first output token, then one token in every
// step (decode). A step lasts the longer the more prompt tokens it has, and every decode in it
// waits that long for its token. Chunked prefill bounds the wait: in one step a prompt advances by
// at most a chunk.
//
// A policy answers one question: who computes how many tokens in the next step? The engine calls
// fill() for each step. The books say who runs and who waits, and they carry out what the policy
// decides (core/engine/books.h). KV blocks are their business; a policy hears whether there is
// room.
#include <algorithm>

#include "core/engine/policies/policies.h"
#include "core/engine/policy.h"

namespace metronome {
namespace {

constexpr std::int64_t kDefaultChunkSize = 512;

class ChunkedPolicy final : public Policy {
 public:
  explicit ChunkedPolicy(const PolicyContext& context)
      : chunk_size_(static_cast<std::int32_t>(
            context.config.prefill_chunk_size.value_or(kDefaultChunkSize))),
        max_chunks_(context.config.max_prefill_chunks_per_step > 0
                        ? context.config.max_prefill_chunks_per_step
                        : INT32_MAX) {}

  void fill(Books& books) override {
    // Every request with a computed prompt gets a token. When blocks run out, those that came last
    // are preempted: they lose their blocks, return to the queue, and are computed again later.
    books.plan_decodes();

    // Prompts that were begun go on before new ones begin. Otherwise all would finish late.
    std::int32_t num_chunks = 0;
    for (Request* request : books.unfinished_prefills()) {
      if (num_chunks == max_chunks_) return;
      if (request->state != RequestState::Prefill) continue;  // preempted for an earlier one
      // Without room even so, it keeps its blocks and waits for the next step.
      num_chunks += books.plan_prefill(*request, chunk_of(books, *request)) ? 1 : 0;
    }

    // Then requests leave the queue, while the engine has a place for one more, and the cache room
    // for its whole prompt. The first without room holds up the others, so that none starves.
    while (num_chunks < max_chunks_) {
      Request* request = books.next_waiting();
      if (request == nullptr || !books.admit(*request, chunk_of(books, *request))) return;
      ++num_chunks;
    }
  }

 private:
  // Decodes and prompts have the same arithmetic: computed tokens catch up with known ones. The
  // chunk that catches up gives the next token. Tokens of a cached prefix count as computed.
  std::int32_t chunk_of(Books& books, const Request& request) const {
    return std::min(chunk_size_, books.num_uncomputed_tokens(request));
  }

  std::int32_t chunk_size_;
  std::int32_t max_chunks_;
};

}  // namespace

std::unique_ptr<Policy> make_chunked(const PolicyContext& context) {
  return std::make_unique<ChunkedPolicy>(context);
}

}  // namespace metronome
