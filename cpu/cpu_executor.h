// SPDX-License-Identifier: Apache-2.0
// Executes the steps of an engine with a transformer on this machine's CPU.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/engine/clock.h"
#include "core/engine/executor.h"
#include "core/engine/sampling.h"
#include "core/run/draft_batch.h"
#include "core/run/forward_batch.h"
#include "core/run/request_texts.h"
#include "cpu/image_store.h"
#include "cpu/kv_store.h"
#include "cpu/transformer.h"

namespace metronome {

// Steps are computed in collect(), as computing them earlier would need the same processors as the
// host. With async_depth 2 the next step is planned before the tokens of this one are known, as on
// a GPU. An exception in a step fails the step, with its message; the next step runs normally.
//
// With a drafter, a decode also computes the logits behind its drafts (core/run/draft_batch.h).
class CpuExecutor final : public Executor {
 public:
  // All arguments outlive the executor. `clock` is the engine's; steps start and end by it.
  // `drafts` are wanted if and only if the policy plans them, `images` if the model has a vision
  // tower and requests may have images.
  CpuExecutor(Transformer& model, KvStore& kv, const RequestInput& input, const Clock& clock,
              const DraftSource& drafts = {}, ImageStore* images = nullptr);

  void launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) override;
  const StepResult& collect() override;
  void forget_group(std::size_t group) override { texts_.forget_group(group); }

  // Called with the logits of every sampled token before it is sampled, for tests and dumps.
  // `position` is the token's.
  using LogitsFn = std::function<void(const ForwardBatch& batch, std::size_t sequence,
                                      std::int32_t position, std::span<const float> logits)>;
  void set_logits_sink(LogitsFn sink) { logits_sink_ = std::move(sink); }
  // For tests: called before each forward pass; an exception from it fails the step.
  using PassFn = std::function<void(const ForwardBatch& batch)>;
  void set_pass_hook(PassFn hook) { pass_hook_ = std::move(hook); }
  // Called many times in a long step. An exception from it does not fail the step; collect() throws
  // it.
  void set_poll(Transformer::PollFn poll);

 private:
  struct Pass {
    ForwardBatch batch;              // as planned
    std::vector<DraftChunk> chunks;  // by sequence, with a drafter
  };
  struct Step {
    std::vector<Pass> passes;  // the first num_passes of them
    std::size_t num_passes = 0;
    std::vector<std::uint64_t> freed_contents;  // as planned
    std::vector<PlannedEncoding> encodings;     // as planned
    StepResult result;
  };
  void encode_images(const Step& step);
  void place_states(ForwardBatch& batch, const RequestTable& requests);
  BlockId slot_of(RequestId request, const RequestTable& requests);
  void run_pass(Pass& pass, StepResult& result);
  void look_up_tokens(ForwardBatch& batch);
  TokenId sample(const ForwardBatch& batch, std::size_t sequence, std::size_t row,
                 StepResult& result);
  // The request ended with this step in flight: aborted, stopped, or failed with a step.
  bool has_ended(RequestId request) const { return (*requests_)[request].has_ended(); }

  Transformer& model_;
  KvStore& kv_;
  const Clock& clock_;
  DraftSource drafts_;
  const RequestInput& input_;
  ImageStore* images_;
  LogitsFn logits_sink_;
  PassFn pass_hook_;
  Transformer::PollFn poll_;
  bool is_interrupted_ = false;  // poll_ threw

  std::array<Step, kNumResults> steps_;
  std::int64_t num_launched_ = 0;
  std::int64_t num_collected_ = 0;
  const RequestTable* requests_ = nullptr;  // the engine's
  RequestTexts texts_;
  // Whose state a slot of the KV store holds, where states are beside the blocks; kNoRequest: free.
  std::vector<RequestId> slot_owners_;
  ForwardBatch placed_;        // the pass with its drafts
  std::vector<float> logits_;  // [num_logit_tokens, vocab_size]
  Sampler sampler_;
};

}  // namespace metronome
