// SPDX-License-Identifier: Apache-2.0
// Sarathi-Serve's simple chunking: steps of prompt chunks alternate with steps of decodes. In a
// prefill turn only unfinished prompts run. New prompts are admitted when no unfinished one is
// left.
#include <algorithm>

#include "engines/sarathi/base.h"
#include "engines/sarathi/product.h"
#include "engines/sarathi/settings.h"

namespace metronome {
namespace {

class SimpleChunkingPolicy final : public SarathiBase {
 public:
  explicit SimpleChunkingPolicy(const PolicyContext& context)
      : SarathiBase(context.max_model_len),
        chunk_size_(context.config.settings<SarathiConfig>().chunk_size),
        max_num_seqs_(context.max_num_seqs) {}

 private:
  enum class Turn : std::uint8_t { Prefill, Decode };

  std::int64_t max_tokens_per_step() const override { return std::max(chunk_size_, max_num_seqs_); }

  void plan_step() override {
    if (turn_ == Turn::Prefill) {
      continue_prefills();
      if (books().plan().empty()) admit_waiting();
      if (!books().plan().empty() || !books().plan().refused.empty()) return pass_to(Turn::Decode);
    }
    decode_running();
    pass_to(Turn::Prefill);
  }

  void pass_to(Turn turn) {
    if (turn_ != turn) go_on();
    turn_ = turn;
  }

  void continue_prefills() {
    for (Request* request : books().running_behind_run()) {
      if (request->state != RequestState::Prefill) continue;
      const std::int32_t num_tokens = next_chunk(*request);
      if (num_tokens > 0) books().add_chunk(*request, num_tokens);
    }
  }

  void admit_waiting() {
    while (Request* request = admissible()) {
      const std::int32_t num_tokens = next_chunk(*request);
      if (num_tokens == 0) return;
      admit_chunk(*request, num_tokens);
    }
  }

  std::int32_t next_chunk(const Request& request) const {
    return std::min(request.num_uncomputed_tokens(), chunk_size_ - books().plan().num_tokens());
  }

  std::int32_t chunk_size_;
  std::int32_t max_num_seqs_;
  Turn turn_ = Turn::Prefill;
};

}  // namespace

std::unique_ptr<Policy> make_simple_chunking(const PolicyContext& context) {
  return std::make_unique<SimpleChunkingPolicy>(context);
}

}  // namespace metronome
