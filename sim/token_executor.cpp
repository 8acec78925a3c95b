#include "sim/token_executor.h"

#include "core/base/error.h"

namespace metronome {

void TokenExecutor::launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) {
  std::vector<Sample>& samples = samples_[static_cast<std::size_t>(plan.step_index % kMaxInFlight)];
  samples.clear();
  for (const ScheduledChunk& chunk : plan.chunks) {
    if (!chunk.samples_token) continue;
    const Request& request = requests[chunk.request];
    samples.push_back({chunk.request, chunk.end_position() - request.num_prompt_tokens});
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
  result_.is_extrapolated = timed.is_extrapolated;
  result_.failed = timed.failed;
  result_.error = timed.error;
  result_.sampled_tokens.clear();
  result_.ends_request.clear();
  for (const Sample& sample : samples_[static_cast<std::size_t>(timed.step_index % kMaxInFlight)]) {
    const RequestFeed::OutputToken output = feed_.output_token(sample.request, sample.position);
    result_.sampled_tokens.push_back(output.token);
    result_.ends_request.push_back(output.ends_request ? 1 : 0);
  }
  return result_;
}

}  // namespace metronome
