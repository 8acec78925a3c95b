// SPDX-License-Identifier: Apache-2.0
#include "serve/server/answer_times.h"

#include <algorithm>

namespace metronome {
namespace {

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

AnswerTimes::AnswerTimes(ServeMetrics& metrics, const ServeClock& clock,
                         const std::vector<std::int32_t>& prompt_tokens, std::int32_t n,
                         WallTime came)
    : metrics_(metrics), clock_(clock), n_(n), came_(came) {
  for (const std::int32_t count : prompt_tokens) choices_.push_back({.prompt_tokens = count});
}

void AnswerTimes::on_arrival(std::int32_t choice, TimeNs time) { at(choice).arrived = time; }

void AnswerTimes::on_admission(std::int32_t choice, TimeNs time) {
  at(choice).admitted = time;
  metrics_.queue.add(clock_.real_seconds(time - at(choice).arrived));
}

void AnswerTimes::on_token(std::int32_t index, TimeNs time, WallTime now) {
  Choice& choice = at(index);
  if (choice.num_tokens++ == 0) {
    choice.first_token = time;
    metrics_.ttft.add(seconds(now - came_));
    metrics_.num_prompt_tokens += choice.prompt_tokens;
    metrics_.prefill.add(clock_.real_seconds(time - choice.admitted));
  } else if (time != choice.latest_token) {  // once for the tokens of a step, as vLLM
    metrics_.itl.add(seconds(now - choice.last_token));
  }
  choice.last_token = now;
  choice.latest_token = time;
  ++metrics_.num_generation_tokens;
}

void AnswerTimes::on_end(std::int32_t index, EndReason reason, WallTime now, bool is_last) {
  metrics_.count_end(reason);
  const Choice& choice = at(index);
  if (choice.num_tokens == 0) return;
  metrics_.e2e.add(seconds(now - came_));
  const double decode_s = clock_.real_seconds(choice.latest_token - choice.first_token);
  metrics_.decode.add(decode_s);
  metrics_.inference.add(clock_.real_seconds(choice.latest_token - choice.admitted));
  metrics_.prompt_tokens.add(choice.prompt_tokens);
  metrics_.generation_tokens.add(choice.num_tokens);
  if (choice.num_tokens > 1) metrics_.time_per_token.add(decode_s / (choice.num_tokens - 1));
  if (!is_last) return;
  std::int32_t longest = 0;
  for (const Choice& each : choices_) longest = std::max(longest, each.num_tokens);
  metrics_.longest_generation.add(longest);
  metrics_.num_choices.add(n_);
}

}  // namespace metronome
