// SPDX-License-Identifier: Apache-2.0
// vLLM before chunked prefill, as in Sarathi-Serve: a batch of whole prompts while any fit,
// otherwise all decodes.
#include <algorithm>

#include "engines/sarathi/base.h"
#include "engines/sarathi/product.h"

namespace metronome {
namespace {

// A prompt must fit in a batch, and a batch is no longer than the model's prompt limit.
std::int32_t batch_limit(const PolicyContext& context) {
  return std::min(token_budget(context.config), context.max_model_len);
}

class VllmPrefillFirstPolicy final : public SarathiBase {
 public:
  explicit VllmPrefillFirstPolicy(const PolicyContext& context)
      : SarathiBase(batch_limit(context)),
        budget_(batch_limit(context)),
        max_num_seqs_(context.max_num_seqs) {}

 private:
  std::int64_t max_tokens_per_step() const override { return std::max(budget_, max_num_seqs_); }

  void plan_step() override {
    while (Request* request = admissible()) {
      if (books().plan().num_tokens() + request->num_tokens() > budget_) break;
      admit_chunk(*request, request->num_tokens());
    }
    if (!books().plan().empty() || !books().plan().refused.empty()) return;
    decode_running();
  }

  std::int32_t budget_;
  std::int32_t max_num_seqs_;
};

}  // namespace

std::unique_ptr<Policy> make_vllm_prefill_first(const PolicyContext& context) {
  return std::make_unique<VllmPrefillFirstPolicy>(context);
}

}  // namespace metronome
