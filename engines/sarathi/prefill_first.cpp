// SPDX-License-Identifier: Apache-2.0
// vLLM before chunked prefill, as in Sarathi-Serve: a batch of whole prompts while any fit,
// otherwise all decodes.
#include <algorithm>

#include "engines/sarathi/base.h"
#include "engines/sarathi/product.h"

namespace metronome {
namespace {

// A prompt must fit in a batch, and a batch is no longer than the model's prompt limit.
std::int32_t batch_limit(const SchedulerContext& context) {
  return std::min(token_budget(context.config), context.max_model_len);
}

class VllmPrefillFirstScheduler final : public SarathiBase {
 public:
  explicit VllmPrefillFirstScheduler(const SchedulerContext& context)
      : SarathiBase(context, batch_limit(context)), budget_(batch_limit(context)) {}

 private:
  std::int64_t max_tokens_per_step() const override { return std::max(budget_, max_num_seqs()); }

  void plan_step() override {
    while (Request* request = admissible()) {
      if (current_plan().num_tokens() + request->num_tokens() > budget_) break;
      admit_chunk(*request, request->num_tokens());
    }
    if (!current_plan().empty() || !current_plan().refused.empty()) return;
    decode_running();
  }

  std::int32_t budget_;
};

}  // namespace

std::unique_ptr<Scheduler> make_vllm_prefill_first(const SchedulerContext& context) {
  return std::make_unique<VllmPrefillFirstScheduler>(context);
}

}  // namespace metronome
