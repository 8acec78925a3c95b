// SPDX-License-Identifier: Apache-2.0
#include "gpu/engine/cuda_executor.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/base/error.h"
#include "gpu/engine/profile_range.h"
#include "gpu/plan/cut_passes.h"

namespace metronome {
CudaExecutor::CudaExecutor(DeviceEngine& engine, const RequestInput& input, const Clock& clock,
                           const DraftSource& drafts)
    : engine_(engine),
      drafts_(drafts),
      texts_(input, engine.model().config().eos_token_ids),
      timer_(clock),
      tokens_(static_cast<std::size_t>(engine.padding_sample()) * sizeof(std::int32_t)) {
  static_assert(DeviceEngine::kSampleSteps == kNumResults);
  static_assert(StepTimer::kMaxSteps == kNumResults);
  // Allocates pinned memory now, not during the first steps.
  for (Step& step : steps_) {
    step.passes.emplace_back();
    step.passes.front().device.staging = PinnedBytes(engine.block_bytes());
  }
}

// Steps in flight read and write memory of the executor.
CudaExecutor::~CudaExecutor() { cudaStreamSynchronize(engine_.stream()); }

void CudaExecutor::launch(const StepPlan& plan, const RequestTable& requests, TimeNs) {
  METRONOME_CHECK(num_launched_ - num_collected_ < (drafts_.drafter ? 1 : kMaxInFlight),
                  "too many steps in flight");
  const ProfileRange range("launch");
  const auto slot = static_cast<std::size_t>(num_launched_++) % steps_.size();
  Step& step = steps_[slot];
  step.num_passes = 0;
  step.num_rows = 0;
  step.first_row = static_cast<std::int32_t>(slot) * engine_.sample_region();
  step.result.step_index = plan.step_index;
  step.result.failed = false;
  step.result.error.clear();
  requests_ = &requests;
  if (plan.step_index % RequestTable::kStepsPerSweep == 0) texts_.forget_ended(requests);
  step.is_begun = false;
  cut_passes(plan, engine_.model().limits().max_tokens, cut_);
  try {
    for (const ForwardPass& pass : cut_.passes) launch_pass(step, pass, requests);
  } catch (const InvariantError&) {
    throw;  // a defect of the program is not a failed step
  } catch (const CudaError&) {
    throw;
  } catch (const std::exception& error) {
    step.result.failed = true;
    step.result.error = error.what();
  }
  begin(step);  // in case the step failed earlier
  const auto first_byte = static_cast<std::size_t>(step.first_row) * sizeof(std::int32_t);
  check_cuda(cudaMemcpyAsync(tokens_.data() + first_byte, engine_.sampled() + step.first_row,
                             static_cast<std::size_t>(step.num_rows) * sizeof(std::int32_t),
                             cudaMemcpyDeviceToHost, engine_.stream()),
             "cudaMemcpyAsync");
  timer_.end(engine_.stream());
}

// Called before the first copy. The device may idle while the host lays the arrays out, but it is
// not working on the step yet.
void CudaExecutor::begin(Step& step) {
  if (!std::exchange(step.is_begun, true)) timer_.begin(engine_.stream());
}

void CudaExecutor::launch_pass(Step& step, const ForwardPass& range, const RequestTable& requests) {
  if (step.passes.size() == step.num_passes) step.passes.emplace_back();
  Pass& pass = step.passes[step.num_passes];
  const std::span<const ScheduledChunk> chunks = place(range, requests, pass);
  if (pass_hook_) pass_hook_(pass.batch);
  ++step.num_passes;
  look_up_tokens(pass.batch);
  engine_.lay_out(pass.batch, chunks, pass.device);
  fill_sample_rows(step, pass);
  begin(step);
  engine_.enqueue(pass.device);
  if (wants_logits(pass.batch)) copy_logits(pass);
}

// Makes the batch of a pass. Returns its chunks; a decode with drafts is one of a prompt.
std::span<const ScheduledChunk> CudaExecutor::place(const ForwardPass& range,
                                                    const RequestTable& requests, Pass& pass) {
  const auto block_size = static_cast<std::int32_t>(engine_.kv().shape().block_size);
  const std::span<const ScheduledChunk> chunks(cut_.chunks.data() + range.begin,
                                               static_cast<std::size_t>(range.end - range.begin));
  if (drafts_.drafter == nullptr) {
    flatten_pass(cut_, range, requests, block_size, pass.batch);
    return chunks;
  }
  flatten_pass(cut_, range, requests, block_size, planned_);
  note_drafts(cut_, range, requests, pass.chunks);
  place_drafts(planned_, pass.chunks, texts_, pass.batch, block_size);
  placed_.assign(chunks.begin(), chunks.end());
  for (std::size_t s = 0; s < placed_.size(); ++s) {
    ScheduledChunk& chunk = placed_[s];
    const auto first_token = static_cast<std::size_t>(pass.batch.query_start[s]);
    chunk.first_position = pass.batch.positions[first_token];
    chunk.num_tokens = pass.batch.context_lens[s] - chunk.first_position;
    if (chunk.num_tokens > 1) chunk.kind = ChunkKind::Prefill;
  }
  return placed_;
}

void CudaExecutor::look_up_tokens(ForwardBatch& batch) {
  for (std::size_t s = 0; s < batch.requests.size(); ++s) {
    const RequestId request = batch.requests[s];
    const RequestTexts::Text& text = texts_[request];
    for (auto t = static_cast<std::size_t>(batch.query_start[s]);
         t < static_cast<std::size_t>(batch.query_start[s + 1]); ++t) {
      batch.token_ids[t] = token_at(request, text, batch.positions[t]);
    }
  }
}

// Returns an id < 0 if the device has to look the token up.
TokenId CudaExecutor::token_at(RequestId request, const RequestTexts::Text& text,
                               std::int32_t position) const {
  if (static_cast<std::size_t>(position) < text.token_ids.size()) {
    return text.token_ids[static_cast<std::size_t>(position)];
  }
  const std::size_t draft = static_cast<std::size_t>(position) - text.token_ids.size();
  if (draft < text.drafts.size()) return text.drafts[draft];
  const bool is_in_flight =
      index(request) < pending_.size() && pending_[index(request)].position == position;
  if (is_in_flight) return TokenId{-1 - pending_[index(request)].sample};
  // The step that should have sampled the token failed. Nothing reads what this step computes.
  METRONOME_CHECK(has_ended(request) || has_failed_in_flight(),
                  "a token is computed before it is sampled");
  return TokenId{};
}

// While true, a request whose step failed at launch has not ended yet.
bool CudaExecutor::has_failed_in_flight() const {
  for (std::int64_t i = num_collected_; i < num_launched_; ++i) {
    if (steps_[static_cast<std::size_t>(i) % steps_.size()].result.failed) return true;
  }
  return false;
}

void CudaExecutor::fill_sample_rows(Step& step, Pass& pass) {
  const ForwardBatch& batch = pass.batch;
  const std::span<SampleRow> rows =
      pass.device.arrays.view<SampleRow>(pass.device.arrays.sample_rows);
  const std::size_t num_rows = batch.logit_tokens.size();
  METRONOME_CHECK(step.num_rows + static_cast<std::int32_t>(num_rows) <= engine_.sample_region(),
                  "a step samples at most twice for a sequence, and for its drafts");
  for (std::size_t i = 0; i < num_rows; ++i) {
    const std::int32_t token = batch.logit_tokens[i];
    const RequestId request = batch.requests[static_cast<std::size_t>(batch.sequence_of(token))];
    const SamplingParams& sampling = texts_[request].sampling;
    METRONOME_CHECK(!sampling.changes_logits(), "penalties are refused before");
    const std::int32_t position = batch.positions[static_cast<std::size_t>(token)] + 1;
    const std::int32_t out = step.first_row + step.num_rows++;
    rows[i] = {.temperature = sampling.temperature,
               .top_p = sampling.top_p,
               .min_p = sampling.min_p,
               .seed = sampling.seed,
               .position = position,
               .top_k = sampling.top_k,
               .out = out};
    if (pending_.size() <= index(request)) pending_.resize(index(request) + 1);
    pending_[index(request)] = {position, out};
  }
  for (std::size_t i = num_rows; i < rows.size(); ++i) {
    rows[i].out = engine_.padding_sample() + static_cast<std::int32_t>(i);
  }
}

bool CudaExecutor::wants_logits(const ForwardBatch& batch) {
  if (batch.logit_tokens.empty()) return false;
  if (logits_sink_) return true;
  return std::any_of(batch.requests.begin(), batch.requests.end(), [this](RequestId request) {
    return texts_[request].sampling.num_logprobs >= 0;
  });
}

void CudaExecutor::copy_logits(Pass& pass) {
  const std::size_t num_bytes = pass.batch.logit_tokens.size() *
                                static_cast<std::size_t>(engine_.model().config().vocab_size) *
                                sizeof(float);
  if (pass.logits.size() < num_bytes) pass.logits = PinnedBytes(num_bytes);
  check_cuda(cudaMemcpyAsync(pass.logits.data(), engine_.model().logits(), num_bytes,
                             cudaMemcpyDeviceToHost, engine_.stream()),
             "cudaMemcpyAsync");
}

const StepResult& CudaExecutor::collect() {
  METRONOME_CHECK(num_collected_ < num_launched_, "no step is in flight");
  const ProfileRange range("collect");
  Step& step = steps_[static_cast<std::size_t>(num_collected_++) % steps_.size()];
  StepResult& result = step.result;
  result.clear_tokens();
  const StepTimer::Times times = timer_.wait();
  result.started_at = times.started_at;
  result.finished_at = times.finished_at;
  if (!result.failed) accept_step(step);
  if (result.failed) result.clear_tokens();
  return result;
}

void CudaExecutor::accept_step(Step& step) {
  StepResult& result = step.result;
  const bool has_drafts = drafts_.drafter != nullptr;
  const auto* tokens = reinterpret_cast<const std::int32_t*>(tokens_.data()) + step.first_row;
  for (std::size_t p = 0; p < step.num_passes && !result.failed; ++p) {
    const Pass& pass = step.passes[p];
    accept_tokens(
        pass.batch, *requests_, has_drafts,
        [&](std::size_t sequence, std::size_t row) {
          return accept_token(pass, sequence, row, tokens[row], result);
        },
        result);
    tokens += pass.batch.logit_tokens.size();
    if (has_drafts && !result.failed) {
      propose_drafts(drafts_, pass.batch, pass.chunks, *requests_, texts_, result);
    }
  }
}

TokenId CudaExecutor::accept_token(const Pass& pass, std::size_t sequence, std::size_t row,
                                   std::int32_t token, StepResult& result) {
  const RequestId request = pass.batch.requests[sequence];
  const auto row_token = static_cast<std::size_t>(pass.batch.logit_tokens[row]);
  const std::int32_t position = pass.batch.positions[row_token] + 1;
  RequestTexts::Text& text = texts_[request];
  const auto vocab_size = static_cast<std::size_t>(engine_.model().config().vocab_size);
  std::vector<TokenLogprob> logprobs;
  TokenId sampled{};
  // Otherwise nothing reads the token, and its logits may not be finite.
  if (!has_ended(request)) {
    if (token == kSampleFailed) {
      result.failed = true;
      result.error = "a logit of request " + std::to_string(index(request)) + " at position " +
                     std::to_string(position) + " is not finite";
      return sampled;
    }
    sampled = TokenId{token};
    // Only these have the logits copied from the device.
    const auto logits = [&] {
      return std::span(reinterpret_cast<const float*>(pass.logits.data()) + row * vocab_size,
                       vocab_size);
    };
    if (logits_sink_) logits_sink_(pass.batch, sequence, position, logits());
    if (text.sampling.num_logprobs >= 0) {
      logprobs = sampler_.logprobs(logits(), sampled, text.sampling.num_logprobs);
    }
    METRONOME_CHECK(static_cast<std::size_t>(position) == text.token_ids.size(),
                    "a token is sampled once");
    text.token_ids.push_back(sampled);
  }
  result.sampled_tokens.push_back(sampled);
  result.ends_request.push_back(texts_.ends_request(request, sampled) ? 1 : 0);
  result.logprobs.push_back(std::move(logprobs));
  return sampled;
}

}  // namespace metronome
