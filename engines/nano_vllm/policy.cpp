// SPDX-License-Identifier: Apache-2.0
// nano-vllm, decision for decision. It batches prompts while any can run, otherwise decodes. Only
// the first prompt of a step may be split into chunks. max_num_seqs limits a step, not the number
// of requests that hold blocks.
#include <algorithm>

#include "core/engine/scheduler.h"
#include "engines/nano_vllm/product.h"

namespace metronome {
namespace {

class NanoVllmScheduler final : public Scheduler {
 public:
  explicit NanoVllmScheduler(const SchedulerContext& context)
      : Scheduler(context), budget_(token_budget(context.config)) {}

 private:
  std::int64_t max_tokens_per_step() const override { return std::max(budget_, max_num_seqs()); }
  std::int64_t max_running() const override { return INT64_MAX; }

  void fill_plan() override {
    // At most one: a prompt is split only when it takes the rest of the step.
    for (Request* request : unfinished_prefills()) {
      add_chunk(*request, std::min(request->num_uncomputed_tokens(), num_left()));
    }
    admit_waiting();
    if (current_plan().empty()) decode_running();
  }

  std::int32_t num_left() const { return budget_ - current_plan().num_tokens(); }
  bool is_full() const {
    return current_plan().chunks.size() >= static_cast<std::size_t>(max_num_seqs());
  }

  void admit_waiting() {
    while (num_left() > 0 && !is_full()) {
      Request* request = queue().front();
      if (request == nullptr) return;
      const PrefixHit& hit = kv_cache().find_prefix(*request);
      const std::int32_t num_tokens = request->num_tokens();
      if (kv_cache().num_blocks_to_take(*request, hit, num_tokens) > kv_cache().num_free_blocks())
        return;
      const std::int32_t num_needed = num_tokens - hit.num_tokens;
      if (num_needed > num_left() && !current_plan().empty()) return;
      start(*request, hit, num_tokens);
      add_chunk(*request, std::min(num_needed, num_left()));
    }
  }

  void decode_running() {
    for (std::size_t i = 0; i < running().size() && !is_full(); ++i) {
      Request& request = *running()[i];
      if (!request.is_decodable()) continue;
      while (!kv_cache().grow(request, request.num_computed_tokens() + 1)) {
        Request& victim = *running().back();
        preempt(victim);
        if (&victim == &request) return;
      }
      add_chunk(request, 1);
    }
  }

  std::int32_t budget_;
};

}  // namespace

std::unique_ptr<Scheduler> make_nano_vllm(const SchedulerContext& context) {
  return std::make_unique<NanoVllmScheduler>(context);
}

}  // namespace metronome
