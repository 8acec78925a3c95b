#include "cpu/cpu_executor.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/base/error.h"

namespace metronome {

CpuExecutor::CpuExecutor(Transformer& model, KvStore& kv, const RequestInput& input,
                         const Clock& clock)
    : model_(model), kv_(kv), clock_(clock), texts_(input, model.model().eos_token_ids) {}

void CpuExecutor::launch(const StepPlan& plan, const RequestTable& requests, TimeNs) {
  METRONOME_CHECK(num_launched_ - num_collected_ < kMaxInFlight, "too many steps in flight");
  Step& step = steps_[static_cast<std::size_t>(num_launched_++) % steps_.size()];
  step.result.step_index = plan.step_index;
  step.num_passes = plan.passes.size();
  if (step.passes.size() < step.num_passes) step.passes.resize(step.num_passes);
  for (std::size_t i = 0; i < step.num_passes; ++i) {
    flatten_pass(plan, plan.passes[i], requests, kv_.shape().block_size, step.passes[i]);
  }
  requests_ = &requests;
  if (plan.step_index % RequestTable::kStepsPerSweep == 0) texts_.forget_ended(requests);
}

const StepResult& CpuExecutor::collect() {
  METRONOME_CHECK(num_collected_ < num_launched_, "no step is in flight");
  Step& step = steps_[static_cast<std::size_t>(num_collected_++) % steps_.size()];
  StepResult& result = step.result;
  result.sampled_tokens.clear();
  result.ends_request.clear();
  result.logprobs.clear();
  result.failed = false;
  result.error.clear();
  result.started_at = clock_.now();
  try {
    for (std::size_t i = 0; i < step.num_passes; ++i) run_pass(step.passes[i], result);
  } catch (const InvariantError&) {
    throw;  // a bug, not a failed step
  } catch (const std::exception& error) {
    if (is_interrupted_) throw;
    result.failed = true;
    result.error = error.what();
  }
  result.finished_at = clock_.now();
  return result;
}

void CpuExecutor::set_poll(Transformer::PollFn poll) {
  poll_ = [this, poll = std::move(poll)] {
    try {
      poll();
    } catch (...) {
      is_interrupted_ = true;
      throw;
    }
  };
}

void CpuExecutor::run_pass(ForwardBatch& batch, StepResult& result) {
  if (pass_hook_) pass_hook_(batch);
  look_up_tokens(batch);
  model_.forward(batch, kv_, logits_, poll_);
  sample(batch, result);
}

// Read only now, as the previous pass may have sampled one of the tokens.
void CpuExecutor::look_up_tokens(ForwardBatch& batch) {
  for (std::int32_t s = 0; s < batch.num_sequences(); ++s) {
    const auto i = static_cast<std::size_t>(s);
    const RequestTexts::Text& text = texts_[batch.requests[i]];
    for (auto t = static_cast<std::size_t>(batch.query_start[i]);
         t < static_cast<std::size_t>(batch.query_start[i + 1]); ++t) {
      const auto position = static_cast<std::size_t>(batch.positions[t]);
      const bool is_known = position < text.token_ids.size();
      // If the step that samples it failed, the request has ended and its results are not used.
      METRONOME_CHECK(is_known || has_ended(batch.requests[i]),
                      "a token is computed before it is sampled");
      batch.token_ids[t] = is_known ? text.token_ids[position] : TokenId{};
    }
  }
}

void CpuExecutor::sample(const ForwardBatch& batch, StepResult& result) {
  const auto vocab_size = static_cast<std::size_t>(model_.model().vocab_size);
  for (std::size_t row = 0; row < batch.logit_tokens.size(); ++row) {
    const auto sequence = static_cast<std::size_t>(batch.sequence_of(batch.logit_tokens[row]));
    const RequestId request = batch.requests[sequence];
    RequestTexts::Text& text = texts_[request];
    const std::span<const float> logits(logits_.data() + row * vocab_size, vocab_size);
    const std::int32_t position = batch.context_lens[sequence];
    SampledToken sampled;
    if (!has_ended(request)) {  // an ended request takes no token; its logits may be NaN
      if (logits_sink_) logits_sink_(batch, sequence, logits);
      sampled = sampler_.sample(logits, text.sampling, position);
      METRONOME_CHECK(static_cast<std::size_t>(position) == text.token_ids.size(),
                      "a token is sampled once");
      text.token_ids.push_back(sampled.token);
    }
    result.sampled_tokens.push_back(sampled.token);
    result.ends_request.push_back(texts_.ends_request(request, sampled.token) ? 1 : 0);
    result.logprobs.push_back(std::move(sampled.logprobs));
  }
}

}  // namespace metronome
