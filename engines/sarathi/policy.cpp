// SPDX-License-Identifier: Apache-2.0
// Sarathi-Serve: one batch of at most chunk_size tokens. It holds all decodes, then the next chunks
// of unfinished prompts, then those of new prompts.
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "engines/sarathi/base.h"
#include "engines/sarathi/product.h"
#include "engines/sarathi/settings.h"

namespace metronome {
namespace {

// Chunk sizes by stage of a prompt: from high to low in equal steps, rounded down to whole tokens.
// Then rounded to the nearest multiple of 32 (ties to even), or of the low size if that is smaller.
std::vector<std::int32_t> chunk_sizes(const SarathiConfig& config) {
  if (!config.enable_dynamic_chunking_schedule) return {config.chunk_size};
  const double unit = std::min(32, config.low_chunk_size);
  const std::int32_t num_stages = config.chunk_schedule_stages;
  const double step =
      num_stages == 1
          ? 0.0
          : static_cast<double>(config.high_chunk_size - config.low_chunk_size) / (num_stages - 1);
  std::vector<std::int32_t> sizes;
  for (std::int32_t i = num_stages - 1; i >= 0; --i) {
    const bool is_high = i == num_stages - 1 && i > 0;
    const double size =
        is_high ? config.high_chunk_size : std::floor(i * step + config.low_chunk_size);
    sizes.push_back(static_cast<std::int32_t>(std::nearbyint(size / unit) * unit));
  }
  return sizes;
}

class SarathiPolicy final : public SarathiBase {
 public:
  explicit SarathiPolicy(const PolicyContext& context)
      : SarathiBase(context.max_model_len),
        chunk_sizes_(chunk_sizes(context.config.settings<SarathiConfig>())),
        max_num_seqs_(context.max_num_seqs),
        tokens_per_stage_(
            ceil_div(context.config.settings<SarathiConfig>().chunk_schedule_max_tokens,
                     context.config.settings<SarathiConfig>().chunk_schedule_stages)) {}

 private:
  struct Progress {  // of a prompt
    std::int32_t num_done;
    std::int32_t num_left;
  };
  struct Victim {
    const Request* request;
    Progress progress;  // before it was preempted
  };

  std::int64_t max_tokens_per_step() const override {
    return std::max(*std::max_element(chunk_sizes_.begin(), chunk_sizes_.end()), max_num_seqs_);
  }

  void plan_step() override {
    victims_.clear();
    books().sort_running_by_arrival();  // the last plan left decodes first, then prompts
    decode_running();
    continue_prefills();
    while (Request* request = admissible()) {
      const std::int32_t num_tokens = next_chunk(progress_of(*request));
      if (num_tokens <= 0) return;
      admit_chunk(*request, num_tokens);
    }
  }

  void continue_prefills() {
    const std::span<Request*> list = books().running_behind_run();
    const auto prompt_is_done = [](const Request* request) {
      return request->state == RequestState::Decode;
    };
    for (auto it = std::stable_partition(list.begin(), list.end(), prompt_is_done);
         it != list.end(); ++it) {
      const std::int32_t num_tokens = next_chunk(progress_of(**it));
      if (num_tokens > 0) books().add_chunk(**it, num_tokens);
    }
  }

  std::int32_t next_chunk(Progress progress) const {
    const std::int64_t stage = std::min<std::int64_t>(
        progress.num_done / tokens_per_stage_, static_cast<std::int64_t>(chunk_sizes_.size()) - 1);
    const std::int32_t size = chunk_sizes_[static_cast<std::size_t>(stage)];
    return std::min(progress.num_left, size - books().plan().num_tokens());
  }

  // The engine resets a preempted request only after the plan. If the same plan considers it for
  // admission, its chunk is cut by its progress before the preemption.
  Progress progress_of(const Request& request) const {
    for (const Victim& victim : victims_) {
      if (victim.request == &request) return victim.progress;
    }
    return {request.num_computed_tokens(), request.num_uncomputed_tokens()};
  }

  void evict(Request& victim) override {
    // A request with a chunk in flight must wait for its result.
    const bool can_return = victim.state == RequestState::Prefill &&
                            victim.num_cached_tokens() == victim.num_computed_tokens();
    victims_.push_back({&victim,
                        {.num_done = victim.num_computed_tokens(),
                         .num_left = can_return ? victim.num_uncomputed_tokens() : 0}});
    SarathiBase::evict(victim);
  }

  std::vector<std::int32_t> chunk_sizes_;  // one size, unless dynamic
  std::int32_t max_num_seqs_;
  std::int64_t tokens_per_stage_;
  std::vector<Victim> victims_;  // of this plan
};

}  // namespace

std::unique_ptr<Policy> make_sarathi(const PolicyContext& context) {
  return std::make_unique<SarathiPolicy>(context);
}

}  // namespace metronome
