// SPDX-License-Identifier: Apache-2.0
// Prefills one prompt at a time, with the budget that the running decodes leave. A request that
// completes its prompt gets its first token in the step's first forward pass. It joins the decodes
// of the second pass.
#include <algorithm>

#include "core/engine/policies/policies.h"
#include "core/engine/policy.h"

namespace metronome {
namespace {

class SinglePrefillPolicy final : public Policy {
 public:
  explicit SinglePrefillPolicy(const PolicyContext& context)
      : budget_(token_budget(context.config)) {}

  // The budget is divided before the step. The request that joins the decodes adds one token.
  std::int64_t max_tokens_per_step() const override { return std::int64_t{budget_} + 1; }

  void fill(Books& books) override {
    const std::int32_t left = budget_ - books.num_decodable();
    if (left > 0) plan_one_prefill(books, left);
    books.plan_decodes();
  }

 private:
  static void plan_one_prefill(Books& books, std::int32_t left) {
    const auto chunk_of = [&books, left](const Request& request) {
      return std::min(left, books.num_uncomputed_tokens(request));
    };
    if (books.num_unfinished_prefills() > 0) {
      Request& request = *books.unfinished_prefills().front();
      books.plan_prefill(request, chunk_of(request));
    } else if (Request* request = books.next_waiting()) {
      books.admit(*request, chunk_of(*request));
    }
  }

  std::int32_t budget_;
};

}  // namespace

std::unique_ptr<Policy> make_single_prefill(const PolicyContext& context) {
  return std::make_unique<SinglePrefillPolicy>(context);
}

}  // namespace metronome
