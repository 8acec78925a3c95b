// SPDX-License-Identifier: Apache-2.0
#include "sim/token_executor.h"

#include "core/base/error.h"

namespace metronome {

void TokenExecutor::launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) {
  std::vector<RequestId>& samples =
      samples_[static_cast<std::size_t>(plan.step_index % kMaxInFlight)];
  samples.clear();
  requests_ = &requests;
  for (const ScheduledChunk& chunk : plan.chunks) {
    if (chunk.samples_token) samples.push_back(chunk.request);
  }
  executor_.launch(plan, requests, now);
}

const StepResult& TokenExecutor::collect() {
  const StepResult& timed = executor_.collect();
  METRONOME_CHECK(timed.sampled_tokens.empty(), "the executor computes no tokens itself");
  result_.step_index = timed.step_index;
  result_.started_at = timed.started_at;
  result_.finished_at = timed.finished_at;
  result_.decode_only_ns = timed.decode_only_ns;
  result_.draft_ns = timed.draft_ns;
  result_.encode_ns = timed.encode_ns;
  result_.is_extrapolated = timed.is_extrapolated;
  result_.failed = timed.failed;
  result_.error = timed.error;
  result_.num_accepted = timed.num_accepted;
  result_.num_verified = timed.num_verified;
  result_.num_proposed = timed.num_proposed;
  result_.sampled_tokens.clear();
  result_.ends_request.clear();
  std::size_t i = 0;
  for (const RequestId id : samples_[static_cast<std::size_t>(timed.step_index % kMaxInFlight)]) {
    const std::int32_t first = (*requests_)[id].num_output_tokens();
    const auto num_tokens = static_cast<std::int32_t>(timed.num_sampled(i++));
    for (std::int32_t place = first; place < first + num_tokens; ++place) {
      const RequestFeed::OutputToken output = feed_.output_token(id, place);
      result_.sampled_tokens.push_back(output.token);
      result_.ends_request.push_back(output.ends_request ? 1 : 0);
    }
  }
  return result_;
}

}  // namespace metronome
