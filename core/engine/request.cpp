// SPDX-License-Identifier: Apache-2.0
#include "core/engine/request.h"

#include <array>
#include <fmt/core.h>
#include <string>

namespace metronome {

std::string_view to_string(RequestState state) {
  switch (state) {
    case RequestState::Waiting: return "waiting";
    case RequestState::Prefill: return "prefill";
    case RequestState::Decode: return "decode";
    case RequestState::Finished: return "finished";
    case RequestState::Failed: return "failed";
  }
  return "?";
}

std::string_view to_string(EndReason reason) {
  switch (reason) {
    case EndReason::None: return "none";
    case EndReason::Length: return "length";
    case EndReason::Stop: return "stop";
    case EndReason::Aborted: return "aborted";
    case EndReason::QueueFull: return "queue_full";
    case EndReason::NeverFits: return "never_fits";
    case EndReason::StepFailed: return "step_failed";
    case EndReason::Errored: return "errored";
    case EndReason::HandedOver: return "handed_over";
  }
  return "?";
}

bool may_follow(RequestState from, RequestState to) {
  // Rows: from. Columns: to. Waiting -> Finished happens when a request is preempted while its
  // last token is in flight.
  constexpr std::array<std::array<bool, 5>, 5> kAllowed = {{
      // Waiting Prefill Decode Finished Failed
      {{false, true, false, true, true}},     // Waiting
      {{true, false, true, false, true}},     // Prefill
      {{true, false, false, true, true}},     // Decode
      {{false, false, false, false, false}},  // Finished
      {{false, false, false, false, false}},  // Failed
  }};
  return kAllowed[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

void Request::limit_output(std::int32_t num_tokens) {
  METRONOME_CHECK(output_tokens == 0, "the output is limited before it begins");
  max_output_tokens = std::min(max_output_tokens, num_tokens);
  output_limit = std::min(output_limit, num_tokens);
  num_final_tokens = num_prompt_tokens + max_output_tokens - 1;
}

void Request::leave_run() {
  computed_tokens = num_computed_tokens();
  cached_tokens = num_cached_tokens();
  output_tokens = num_output_tokens();
  run_clock = &kNoRun;
  run_begin = 0;
  run_end = 0;
}

void Request::transition_to(RequestState next) {
  METRONOME_CHECK(may_follow(state, next), fmt::format("request {}: {} -> {}", index(id),
                                                       to_string(state), to_string(next)));
  state = next;
}

Request& RequestTable::add(const RequestSpec& spec) {
  const auto id = static_cast<RequestId>(requests_.size());
  Request& request = requests_.emplace_back();
  request.id = id;
  request.num_prompt_tokens = spec.num_prompt_tokens;
  request.max_output_tokens = spec.max_output_tokens;
  request.num_final_tokens = spec.num_prompt_tokens + spec.max_output_tokens - 1;
  request.priority = spec.priority;
  request.ignores_eos = spec.ignores_eos.value_or(false);
  request.arrival = spec.arrival;
  request.num_received_tokens = spec.num_received_tokens;
  request.hands_over = spec.hands_over;
  request.output_limit = spec.output_limit;
  request.class_number = spec.class_number;
  return request;
}

}  // namespace metronome
