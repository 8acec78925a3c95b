// SPDX-License-Identifier: Apache-2.0
// Drafts by a second, smaller model (speculative.method draft_model).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/sampling.h"
#include "core/run/drafter.h"
#include "cpu/kv_store.h"
#include "cpu/transformer.h"

namespace metronome {

// Its KV store has the blocks of the model's, under the same ids. The KV of every token that the
// model computes is written here in the same step, so blocks that are found as a prefix hold both.
// The drafts of a text do not depend on its batch, as the tokens do not.
//
// Layers with a sliding window use the blocks of the others: the windows of two models differ.
class ModelDrafter final : public Drafter {
 public:
  // `model` and `kv` outlive this.
  ModelDrafter(Transformer& model, KvStore& kv, std::int32_t num_lookahead_tokens)
      : model_(model), kv_(kv), num_lookahead_tokens_(num_lookahead_tokens) {}

  void propose(const ForwardBatch& batch, std::span<const std::int32_t> num_wanted,
               RequestTexts& texts, const PollFn& poll) override;
  std::int32_t num_lookahead_tokens() const override { return num_lookahead_tokens_; }

 private:
  // A request whose next draft is being computed.
  struct Pending {
    std::size_t sequence;  // of the model's batch
    std::int32_t num_wanted;
  };

  void follow(const ForwardBatch& batch, std::span<const std::int32_t> num_wanted,
              RequestTexts& texts);
  void add_tokens(const ForwardBatch& batch, std::size_t sequence, std::int32_t begin,
                  std::int32_t end, std::int32_t num_logits, const RequestTexts::Text& text);
  void sample_drafts(const ForwardBatch& batch, RequestTexts& texts);

  Transformer& model_;
  KvStore& kv_;
  std::int32_t num_lookahead_tokens_;
  ForwardBatch batch_;            // of a pass of the drafter
  std::vector<Pending> pending_;  // [rows of logits_]
  std::vector<float> logits_;     // [num_logit_tokens, vocab_size]
  Sampler sampler_;
};

}  // namespace metronome
