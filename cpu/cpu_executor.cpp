// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_executor.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/base/error.h"

namespace metronome {

CpuExecutor::CpuExecutor(Transformer& model, KvStore& kv, const RequestInput& input,
                         const Clock& clock, const DraftSource& drafts, ImageStore* images)
    : model_(model),
      kv_(kv),
      clock_(clock),
      drafts_(drafts),
      input_(input),
      images_(images),
      texts_(input, model.model().eos_token_ids),
      slot_owners_(static_cast<std::size_t>(kv.shape().num_state_slots), kNoRequest) {}

void CpuExecutor::launch(const StepPlan& plan, const RequestTable& requests, TimeNs) {
  METRONOME_CHECK(num_launched_ - num_collected_ < kMaxInFlight, "too many steps in flight");
  Step& step = steps_[static_cast<std::size_t>(num_launched_++) % steps_.size()];
  step.result.step_index = plan.step_index;
  step.num_passes = plan.passes.size();
  step.freed_contents.assign(plan.freed_contents.begin(), plan.freed_contents.end());
  step.encodings.assign(plan.encodings.begin(), plan.encodings.end());
  if (step.passes.size() < step.num_passes) step.passes.resize(step.num_passes);
  const std::int32_t num_lookahead =
      drafts_.drafter == nullptr ? 0 : drafts_.drafter->num_lookahead_tokens();
  const KvShape& shape = kv_.shape();
  const StateLayout states = {.num_groups = shape.num_state_groups,
                              .caches_states = shape.caches_states,
                              .hash_unit = shape.block_size};
  for (std::size_t i = 0; i < step.num_passes; ++i) {
    Pass& pass = step.passes[i];
    flatten_pass(plan, plan.passes[i], requests, shape.block_size, pass.batch, num_lookahead,
                 states);
    if (!slot_owners_.empty()) place_states(pass.batch, requests);
    if (drafts_.drafter != nullptr) note_drafts(plan, plan.passes[i], requests, pass.chunks);
  }
  requests_ = &requests;
  if (plan.step_index % RequestTable::kStepsPerSweep == 0) texts_.forget_ended(requests);
}

// A request begins at position 0, also after a preemption, and then its state is new.
void CpuExecutor::place_states(ForwardBatch& batch, const RequestTable& requests) {
  batch.num_state_groups = 1;
  for (std::size_t s = 0; s < batch.requests.size(); ++s) {
    const BlockId slot = slot_of(batch.requests[s], requests);
    const bool is_new = batch.positions[static_cast<std::size_t>(batch.query_start[s])] == 0;
    batch.state_sources.push_back(is_new ? kNoBlock : slot);
    batch.state_targets.push_back(slot);
  }
}

// The request's slot, or a free one. Steps run in order, so a slot is free as soon as its owner has
// ended or was preempted, whatever steps are in flight.
BlockId CpuExecutor::slot_of(RequestId request, const RequestTable& requests) {
  auto slot = std::find(slot_owners_.begin(), slot_owners_.end(), request);
  if (slot == slot_owners_.end()) {
    slot = std::find_if(slot_owners_.begin(), slot_owners_.end(), [&](RequestId owner) {
      return owner == kNoRequest || !requests.has(owner) || requests[owner].has_ended() ||
             requests[owner].state == RequestState::Waiting;
    });
    METRONOME_CHECK(slot != slot_owners_.end(), "every running request has a slot for its state");
    *slot = request;
  }
  return BlockId{static_cast<std::int32_t>(slot - slot_owners_.begin())};
}

const StepResult& CpuExecutor::collect() {
  METRONOME_CHECK(num_collected_ < num_launched_, "no step is in flight");
  Step& step = steps_[static_cast<std::size_t>(num_collected_++) % steps_.size()];
  StepResult& result = step.result;
  result.clear_tokens();
  result.failed = false;
  result.error.clear();
  result.started_at = clock_.now();
  result.encode_ns = 0;
  try {
    encode_images(step);
    if (!step.encodings.empty()) result.encode_ns = clock_.now() - result.started_at;
    for (std::size_t i = 0; i < step.num_passes; ++i) run_pass(step.passes[i], result);
  } catch (const InvariantError&) {
    throw;  // a bug, not a failed step
  } catch (const std::exception& error) {
    if (is_interrupted_) throw;
    result.failed = true;
    result.error = error.what();
    result.clear_tokens();  // of some chunks
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

// Images of a request that has ended are encoded, too: others may have the same ones.
void CpuExecutor::encode_images(const Step& step) {
  if (images_ == nullptr) {
    METRONOME_CHECK(step.encodings.empty(), "only models with a vision tower have images");
    return;
  }
  images_->drop(step.freed_contents);
  for (const PlannedEncoding& encoding : step.encodings) {
    const std::span<const PromptImage> images = input_.images(encoding.request);
    images_->encode(images[static_cast<std::size_t>(encoding.item)], poll_);
  }
}

void CpuExecutor::run_pass(Pass& pass, StepResult& result) {
  if (drafts_.drafter != nullptr) place_drafts(pass.batch, pass.chunks, texts_, placed_);
  ForwardBatch& batch = drafts_.drafter != nullptr ? placed_ : pass.batch;
  if (pass_hook_) pass_hook_(batch);
  look_up_tokens(batch);
  if (images_ != nullptr) {
    place_images(
        model_.model().vision,
        [this](RequestId request) { return images_->place(input_.images(request)); }, batch);
  }
  model_.forward(batch, kv_, logits_, poll_);
  accept_tokens(
      batch, *requests_, drafts_.drafter != nullptr,
      [&](std::size_t sequence, std::size_t row) { return sample(batch, sequence, row, result); },
      result);
  if (drafts_.drafter != nullptr) {
    propose_drafts(drafts_, batch, pass.chunks, *requests_, texts_, result, poll_);
  }
}

// Read only now, as the previous pass may have sampled one of the tokens.
void CpuExecutor::look_up_tokens(ForwardBatch& batch) {
  for (std::int32_t s = 0; s < batch.num_sequences(); ++s) {
    const auto i = static_cast<std::size_t>(s);
    const RequestTexts::Text& text = texts_[batch.requests[i]];
    for (auto t = static_cast<std::size_t>(batch.query_start[i]);
         t < static_cast<std::size_t>(batch.query_start[i + 1]); ++t) {
      const auto position = static_cast<std::size_t>(batch.positions[t]);
      const std::size_t num_known = text.token_ids.size();
      if (position < num_known) {
        batch.token_ids[t] = text.token_ids[position];
      } else if (position - num_known < text.drafts.size()) {
        batch.token_ids[t] = text.drafts[position - num_known];
      } else {
        // The step that samples it failed: the request has ended and its results are not used.
        METRONOME_CHECK(has_ended(batch.requests[i]), "a token is computed before it is sampled");
        batch.token_ids[t] = TokenId{};
      }
    }
  }
}

TokenId CpuExecutor::sample(const ForwardBatch& batch, std::size_t sequence, std::size_t row,
                            StepResult& result) {
  const auto vocab_size = static_cast<std::size_t>(model_.model().vocab_size);
  const RequestId request = batch.requests[sequence];
  const std::span<const float> logits(logits_.data() + row * vocab_size, vocab_size);
  const std::int32_t position =
      batch.positions[static_cast<std::size_t>(batch.logit_tokens[row])] + 1;
  SampledToken sampled;
  if (!has_ended(request)) {  // an ended request takes no token; its logits may be NaN
    if (logits_sink_) logits_sink_(batch, sequence, position, logits);
    RequestTexts::Text& text = texts_[request];
    sampled =
        sampler_.sample(logits, text.sampling, position, {text.token_ids, text.num_prompt_tokens});
    METRONOME_CHECK(static_cast<std::size_t>(position) == text.token_ids.size(),
                    "a token is sampled once");
    text.token_ids.push_back(sampled.token);
  }
  result.sampled_tokens.push_back(sampled.token);
  result.ends_request.push_back(texts_.ends_request(request, sampled.token) ? 1 : 0);
  result.logprobs.push_back(std::move(sampled.logprobs));
  return sampled.token;
}

}  // namespace metronome
