// Runs the steps of an engine for real: a transformer on this machine's processors.
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
#include "core/run/forward_batch.h"
#include "core/run/request_texts.h"
#include "cpu/kv_store.h"
#include "cpu/transformer.h"

namespace metronome {

// Steps are computed when they are collected: the processors that would compute them meanwhile are
// the ones the host needs. With async_depth 2 the next step is planned, as on a GPU, before the
// tokens of this one are known. A step that throws fails, with the message; the next one goes on.
class CpuExecutor final : public Executor {
 public:
  // All are used as long as the executor lives. `clock` is the engine's: steps start and end by it.
  CpuExecutor(Transformer& model, KvStore& kv, const RequestInput& input, const Clock& clock);

  void launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) override;
  const StepResult& collect() override;
  void forget_group(std::size_t group) override { texts_.forget_group(group); }

  // Called with the logits of every token that is sampled, before it is: for tests and dumps. The
  // token's position is batch.context_lens[sequence].
  using LogitsFn = std::function<void(const ForwardBatch& batch, std::size_t sequence,
                                      std::span<const float> logits)>;
  void set_logits_sink(LogitsFn sink) { logits_sink_ = std::move(sink); }
  // Called before each forward pass; what it throws fails the step: for tests.
  using PassFn = std::function<void(const ForwardBatch& batch)>;
  void set_pass_hook(PassFn hook) { pass_hook_ = std::move(hook); }
  // Called many times in a long step. What it throws is no failure of the step: collect() throws
  // it.
  void set_poll(Transformer::PollFn poll);

 private:
  struct Step {
    std::vector<ForwardBatch> passes;  // the first num_passes of them
    std::size_t num_passes = 0;
    StepResult result;
  };
  void run_pass(ForwardBatch& batch, StepResult& result);
  void look_up_tokens(ForwardBatch& batch);
  void sample(const ForwardBatch& batch, StepResult& result);
  // It ended with this step in flight: aborted, stopped, or with a step that failed.
  bool has_ended(RequestId request) const { return (*requests_)[request].has_ended(); }

  Transformer& model_;
  KvStore& kv_;
  const Clock& clock_;
  LogitsFn logits_sink_;
  PassFn pass_hook_;
  Transformer::PollFn poll_;
  bool is_interrupted_ = false;  // poll_ threw

  std::array<Step, kNumResults> steps_;
  std::int64_t num_launched_ = 0;
  std::int64_t num_collected_ = 0;
  const RequestTable* requests_ = nullptr;  // the engine's
  RequestTexts texts_;
  std::vector<float> logits_;  // [num_logit_tokens, vocab_size]
  Sampler sampler_;
};

}  // namespace metronome
