// SPDX-License-Identifier: Apache-2.0
#include "reports/files/step_log.h"

#include <algorithm>
#include <fmt/core.h>
#include <ostream>
#include <string>

#include "core/base/number_text.h"

namespace metronome {
namespace {

std::string name_of(RequestId request) { return fmt::format("r{}", index(request)); }

std::string chunk_text(const ScheduledChunk& chunk, std::int32_t num_tokens) {
  std::string text = " [" + name_of(chunk.request);
  if (chunk.kind == ChunkKind::Decode) {
    text += " D";
    if (chunk.num_drafts() > 0) text += fmt::format("+{}", chunk.num_drafts());
    if (chunk.num_emitted > 1) text += fmt::format(" -> {} tokens", chunk.num_emitted);
    return text + (chunk.num_emitted > 0 ? "]" : ", no token]");
  }
  text += fmt::format(" prefill {}..{}", chunk.first_position, chunk.end_position());
  if (chunk.num_emitted > 0) text += fmt::format(" -> token {}", num_tokens);
  return text + "]";
}

}  // namespace

StepLog::StepLog(std::ostream& out, std::int32_t max_decodes)
    : out_(out), max_decodes_(max_decodes) {}

void StepLog::on_event(const Event& event, const Request& request) {
  const std::string name = "    " + name_of(event.request);
  const std::string when = " at " + fixed_text(to_seconds(event.time), 3) + " s\n";
  switch (event.kind) {
    case EventKind::Submitted:
      out_ << name << " arrived, " << request.num_prompt_tokens << " prompt tokens," << when;
      break;
    case EventKind::Preempted: out_ << name << " preempted," << when; break;
    case EventKind::Ended:
      if (event.reason == EndReason::QueueFull || event.reason == EndReason::NeverFits) {
        out_ << name << " refused (" << to_string(event.reason) << ")," << when;
      } else {
        out_ << name << " ended (" << to_string(event.reason) << ") after "
             << request.num_output_tokens() << " tokens," << when;
      }
      break;
    case EventKind::Admitted:
    case EventKind::FirstToken: break;  // the step's line contains it
  }
}

void StepLog::on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
                      const RequestTable&) {
  std::string line = fmt::format("step {}  t={} s  {} ms  {} tokens ", step.step_index,
                                 fixed_text(to_seconds(step.started_at), 3),
                                 fixed_text(to_ms(step.finished_at - step.started_at), 3),
                                 step.num_prefill_tokens + step.num_decode_tokens);
  if (step.failed) line += " FAILED";
  std::int32_t num_decodes = 0;
  for (const ScheduledChunk& chunk : chunks) {
    const std::size_t request = index(chunk.request);
    if (request >= num_tokens_.size()) num_tokens_.resize(request + 1);
    num_tokens_[request] += chunk.num_emitted;
    if (chunk.kind == ChunkKind::Decode && ++num_decodes > max_decodes_) continue;
    line += chunk_text(chunk, num_tokens_[request]);
  }
  if (num_decodes > max_decodes_) {
    line += fmt::format(" ... +{} D", num_decodes - max_decodes_);
  }
  out_ << line << '\n';
}

}  // namespace metronome
