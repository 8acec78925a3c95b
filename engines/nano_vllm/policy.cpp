// SPDX-License-Identifier: Apache-2.0
// nano-vllm, decision for decision. It batches prompts while any can run, otherwise decodes. Only
// the first prompt of a step may be split into chunks. max_num_seqs limits a step, not the number
// of requests that hold blocks.
#include "core/engine/policy.h"

#include <algorithm>

#include "engines/nano_vllm/product.h"

namespace metronome {
namespace {

class NanoVllmPolicy final : public Policy {
 public:
  explicit NanoVllmPolicy(const PolicyContext& context)
      : budget_(token_budget(context.config)), max_num_seqs_(context.max_num_seqs) {}

 private:
  std::int64_t max_tokens_per_step() const override { return std::max(budget_, max_num_seqs_); }
  std::int64_t max_running(const Books&) const override { return INT64_MAX; }

  void fill(Books& books) override {
    // At most one: a prompt is split only when it takes the rest of the step.
    for (Request* request : books.unfinished_prefills()) {
      books.add_chunk(*request, std::min(request->num_uncomputed_tokens(), num_left(books)));
    }
    admit_waiting(books);
    if (books.plan().empty()) decode_running(books);
  }

  std::int32_t num_left(const Books& books) const { return budget_ - books.plan().num_tokens(); }
  bool is_full(const Books& books) const {
    return books.plan().num_chunks() >= static_cast<std::size_t>(max_num_seqs_);
  }

  void admit_waiting(Books& books) {
    while (num_left(books) > 0 && !is_full(books)) {
      Request* request = books.waiting().front();
      if (request == nullptr) return;
      const PrefixHit& hit = books.kv_cache().find_prefix(*request);
      const std::int32_t num_tokens = request->num_tokens();
      if (books.kv_cache().num_blocks_to_take(*request, hit, num_tokens) >
          books.kv_cache().num_free_blocks())
        return;
      const std::int32_t num_needed = num_tokens - hit.num_tokens;
      if (num_needed > num_left(books) && !books.plan().empty()) return;
      books.start(*request, hit, num_tokens);
      books.add_chunk(*request, std::min(num_needed, num_left(books)));
    }
  }

  void decode_running(Books& books) {
    for (std::size_t i = books.plan_run(); i < books.running().size() && !is_full(books); ++i) {
      Request& request = *books.running()[i];
      if (!request.is_decodable()) continue;
      while (!books.kv_cache().grow(request, request.num_computed_tokens() + 1)) {
        Request& victim = *books.running().back();
        books.preempt(victim);
        if (&victim == &request) return;
      }
      books.add_chunk(request, 1);
    }
  }

  std::int32_t budget_;
  std::int32_t max_num_seqs_;
};

}  // namespace

std::unique_ptr<Policy> make_nano_vllm(const PolicyContext& context) {
  return std::make_unique<NanoVllmPolicy>(context);
}

}  // namespace metronome
