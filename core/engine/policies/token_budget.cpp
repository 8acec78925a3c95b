// SPDX-License-Identifier: Apache-2.0
// A token budget per step: decodes come first, then unfinished prompts, then new requests.
#include <algorithm>

#include "core/engine/policies/policies.h"
#include "core/engine/policy.h"

namespace metronome {
namespace {

class TokenBudgetPolicy final : public Policy {
 public:
  explicit TokenBudgetPolicy(const PolicyContext& context)
      : budget_(token_budget(context.config)),
        chunk_size_(static_cast<std::int32_t>(context.config.prefill_chunk_size.value_or(budget_))),
        min_chunk_size_(context.config.min_chunk_size),
        max_partial_(context.config.max_num_partial_prefills > 0
                         ? context.config.max_num_partial_prefills
                         : INT32_MAX) {}

  std::int64_t max_tokens_per_step() const override { return budget_; }

  void fill(Books& books) override {
    books.plan_decodes();
    for (Request* request : books.unfinished_prefills()) {
      if (request->state != RequestState::Prefill) continue;  // preempted for an earlier one
      const std::int32_t chunk = chunk_of(books, *request);
      if (chunk > 0) books.plan_prefill(*request, chunk);
    }
    while (Request* request = books.next_waiting()) {
      const std::int32_t chunk = chunk_of(books, *request);
      const bool stays_partial = chunk < books.num_uncomputed_tokens(*request);
      if (stays_partial && books.num_unfinished_prefills() >= max_partial_) return;
      if (chunk == 0 || !books.admit(*request, chunk)) return;
    }
  }

 private:
  // The chunk that fits this step. 0 when the rest of the budget is below min_chunk_size: then the
  // request waits for a step with more.
  std::int32_t chunk_of(Books& books, const Request& request) const {
    const std::int32_t wanted = std::min(chunk_size_, books.num_uncomputed_tokens(request));
    const std::int32_t left = budget_ - books.plan().num_tokens();
    return left >= wanted ? wanted : (left >= min_chunk_size_ ? left : 0);
  }

  std::int32_t budget_;
  std::int32_t chunk_size_;
  std::int32_t min_chunk_size_;
  std::int32_t max_partial_;
};

}  // namespace

std::unique_ptr<Policy> make_token_budget(const PolicyContext& context) {
  return std::make_unique<TokenBudgetPolicy>(context);
}

}  // namespace metronome
