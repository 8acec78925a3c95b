// SPDX-License-Identifier: Apache-2.0
// Executes the steps of an engine with a transformer on a GPU.
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
#include "gpu/engine/device_engine.h"
#include "gpu/engine/step_timer.h"

namespace metronome {

// launch() enqueues a step. The step runs while the host plans the next one. The device looks up a
// token that the host does not know yet at the position where it was sampled. Only collect() waits
// for the device: for the event recorded after a step.
//
// A step with a logit that is not finite fails, and the next step goes on. A failing GPU throws
// CudaError, because no later step could succeed.
//
// With a drafter there is one step in flight. A decode with drafts is computed as a chunk of a
// prompt is, with logits for all its tokens (core/run/draft_batch.h). With Invariance::Full its
// bits are those of decodes of one token.
class CudaExecutor final : public Executor {
 public:
  // All arguments must outlive the executor. `clock` is the engine's: it gives the times of steps.
  // `drafts` are wanted if and only if the policy plans them.
  CudaExecutor(DeviceEngine& engine, const RequestInput& input, const Clock& clock,
               const DraftSource& drafts = {});
  ~CudaExecutor() override;

  void launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) override;
  const StepResult& collect() override;
  void forget_group(std::size_t group) override { texts_.forget_group(group); }

  // collect() calls it with the logits of every token that is sampled, for tests and dumps.
  // `position` is the token's. Copying the logits costs time.
  using LogitsFn = std::function<void(const ForwardBatch& batch, std::size_t sequence,
                                      std::int32_t position, std::span<const float> logits)>;
  void set_logits_sink(LogitsFn sink) { logits_sink_ = std::move(sink); }
  // Called before each forward pass is enqueued, for tests. An exception from it fails the step.
  using PassFn = std::function<void(const ForwardBatch& batch)>;
  void set_pass_hook(PassFn hook) { pass_hook_ = std::move(hook); }

 private:
  struct Pass {
    ForwardBatch batch;
    std::vector<DraftChunk> chunks;  // by sequence, with a drafter
    DevicePass device;
    PinnedBytes logits;  // float32 [num_rows, vocab_size]; used if there is a sink or a report
  };
  struct Step {
    std::vector<Pass> passes;  // only the first num_passes are in use
    std::size_t num_passes = 0;
    std::int32_t num_rows = 0;   // sum over all passes
    std::int32_t first_row = 0;  // where its region of sampled tokens begins
    bool is_begun = false;       // its start event is enqueued
    StepResult result;
  };
  // The latest token of a request, if the host does not know it yet.
  struct Pending {
    std::int32_t position = -1;
    std::int32_t sample = 0;  // its index among the sampled tokens
  };

  void begin(Step& step);
  void launch_pass(Step& step, const ForwardPass& pass, const RequestTable& requests);
  std::span<const ScheduledChunk> place(const ForwardPass& range, const RequestTable& requests,
                                        Pass& pass);
  void look_up_tokens(ForwardBatch& batch);
  TokenId token_at(RequestId request, const RequestTexts::Text& text, std::int32_t position) const;
  bool has_failed_in_flight() const;
  void fill_sample_rows(Step& step, Pass& pass);
  void copy_logits(Pass& pass);
  void accept_step(Step& step);
  TokenId accept_token(const Pass& pass, std::size_t sequence, std::size_t row, std::int32_t token,
                       StepResult& result);
  bool wants_logits(const ForwardBatch& batch);
  bool has_ended(RequestId request) const { return (*requests_)[request].has_ended(); }

  DeviceEngine& engine_;
  DraftSource drafts_;
  RequestTexts texts_;
  StepTimer timer_;
  LogitsFn logits_sink_;
  PassFn pass_hook_;

  std::array<Step, kNumResults> steps_;
  std::int64_t num_launched_ = 0;
  std::int64_t num_collected_ = 0;
  const RequestTable* requests_ = nullptr;  // the engine's
  std::vector<Pending> pending_;            // by request id
  PinnedBytes tokens_;                      // int32 [samples of DeviceEngine], as on the device
  StepPlan cut_;                            // the plan, cut into passes that fit the device
  ForwardBatch planned_;                    // a pass of it, before its drafts are placed
  std::vector<ScheduledChunk> placed_;      // its chunks with the drafts that there are
  Sampler sampler_;
};

}  // namespace metronome
