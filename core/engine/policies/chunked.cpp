// SPDX-License-Identifier: Apache-2.0
// Chunked prefill without a token budget. After the decodes, every pending prompt advances by at
// most one chunk per step. Unfinished prefills come before new prompts.
#include <algorithm>

#include "core/engine/policies/policies.h"
#include "core/engine/scheduler.h"

namespace metronome {
namespace {

constexpr std::int64_t kDefaultChunkSize = 512;

class ChunkedScheduler final : public Scheduler {
 public:
  explicit ChunkedScheduler(const SchedulerContext& context)
      : Scheduler(context),
        chunk_size_(static_cast<std::int32_t>(
            context.config.prefill_chunk_size.value_or(kDefaultChunkSize))),
        max_chunks_(context.config.max_prefill_chunks_per_step > 0
                        ? context.config.max_prefill_chunks_per_step
                        : INT32_MAX) {}

 private:
  std::int32_t chunk_of(const Request& request) const {
    return std::min(chunk_size_, request.num_uncomputed_tokens());
  }

  void fill_plan() override {
    plan_decodes();
    std::int32_t num_chunks = 0;
    for (Request* request : unfinished_prefills()) {
      if (num_chunks == max_chunks_) return;
      if (request->state != RequestState::Prefill) continue;  // preempted for an earlier one
      num_chunks += plan_prefill(*request, chunk_of(*request)) ? 1 : 0;
    }
    while (num_chunks < max_chunks_) {
      Request* request = next_waiting();
      if (request == nullptr || !admit(*request, chunk_of(*request))) return;
      ++num_chunks;
    }
  }

  std::int32_t chunk_size_;
  std::int32_t max_chunks_;
};

}  // namespace

std::unique_ptr<Scheduler> make_chunked(const SchedulerContext& context) {
  return std::make_unique<ChunkedScheduler>(context);
}

}  // namespace metronome
