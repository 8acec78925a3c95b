// SPDX-License-Identifier: Apache-2.0
#include "engines/sarathi/base.h"

#include <fmt/core.h>

#include "core/base/error.h"

namespace metronome {

std::string SarathiBase::refusal(const Books& books, const RequestSpec& spec) const {
  if (spec.num_prompt_tokens > prompt_limit_) {
    return fmt::format("a prompt may have at most {} tokens", prompt_limit_);
  }
  const KvCacheManager& kv_cache = books.kv_cache();
  const std::int64_t num_blocks = kv_cache.num_blocks();
  if (!fits(kv_cache, spec.num_prompt_tokens, num_blocks)) {
    return fmt::format("admission takes {} KV blocks at once and leaves {} free; the cache has {}",
                       kv_cache.blocks_for(num_reserved(spec.num_prompt_tokens)),
                       kv_cache.watermark_blocks(), num_blocks);
  }
  // A request that holds every block is preempted at each decode. max_output_tokens restarts each
  // time, so it would never end. If its decodes take no blocks, this cannot happen.
  const bool grows = num_reserved(0) == 0;
  const std::int64_t num_before_last =
      std::int64_t{spec.num_prompt_tokens} + spec.max_output_tokens - 2;
  if (grows && spec.max_output_tokens > 1 && kv_cache.blocks_for(num_before_last) >= num_blocks) {
    return fmt::format("that leaves none of {} KV blocks free; a decode needs one", num_blocks);
  }
  return Policy::refusal(books, spec);
}

void SarathiBase::fill(Books& books) {
  books_ = &books;
  planned_at_ = books.now();
  may_go_on_ = false;
  plan_step();
}

void SarathiBase::decode_running() {
  for (std::size_t i = books().plan_run(true); i < books().running().size(); ++i) {
    Request& request = *books().running()[i];
    if (!request.is_decodable()) continue;
    if (!free_a_block(request)) return;
    const bool has_room = books().kv_cache().grow(request, request.num_computed_tokens() + 1);
    METRONOME_CHECK(has_room, "a decode needs one block at most");
    books().add_chunk(request, 1);
  }
}

// Returns false when it preempted `request` itself.
bool SarathiBase::free_a_block(Request& request) {
  while (books().kv_cache().num_free_blocks() == 0) {
    Request& victim = *books().running().back();
    evict(victim);
    if (&victim == &request) return false;
  }
  return true;
}

void SarathiBase::evict(Request& victim) {
  if (num_restarted_.size() <= index(victim.id)) num_restarted_.resize(index(victim.id) + 1);
  std::int32_t& num_restarted = num_restarted_[index(victim.id)];
  const std::int32_t num_new = victim.num_output_tokens() - num_restarted;
  num_restarted = victim.num_output_tokens();
  victim.max_output_tokens += num_new;
  victim.num_final_tokens += num_new;
  books().preempt(victim);
  go_on();
}

bool SarathiBase::fits(const KvCacheManager& kv_cache, std::int64_t num_tokens,
                       std::int64_t num_free) const {
  return num_free - kv_cache.blocks_for(num_reserved(num_tokens)) >= kv_cache.watermark_blocks();
}

Request* SarathiBase::admissible() {
  while (Request* request = books().waiting().front()) {
    const bool has_room =
        fits(books().kv_cache(), request->num_tokens(), books().kv_cache().num_free_blocks());
    if (request->num_tokens() > prompt_limit_ || (!has_room && books().nothing_runs())) {
      books().refuse(*request);
      go_on();
      continue;
    }
    const bool is_full =
        books().running().size() >= static_cast<std::size_t>(books().max_num_seqs());
    return has_room && !is_full ? request : nullptr;
  }
  return nullptr;
}

void SarathiBase::admit_chunk(Request& request, std::int32_t num_tokens) {
  books().start(request, {}, static_cast<std::int32_t>(num_reserved(request.num_tokens())));
  books().add_chunk(request, num_tokens);
}

}  // namespace metronome
