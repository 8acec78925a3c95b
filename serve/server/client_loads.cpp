// SPDX-License-Identifier: Apache-2.0
#include "serve/server/client_loads.h"

#include <algorithm>
#include <fmt/core.h>

namespace metronome {

std::string ClientLoads::refusal(const std::string& client, const Share& share) const {
  const auto found = loads_.find(client);
  if (found == loads_.end()) return {};
  const auto text = [](std::int64_t count, const char* what, std::int64_t limit) {
    return fmt::format("this client waits for {}{}; allowed: {}", count, what, limit);
  };
  const Share& held = found->second.share;
  if (held.num_answers + share.num_answers > limits_.max_answers) {
    return text(held.num_answers, " answers", limits_.max_answers);
  }
  if (held.num_tokens + share.num_tokens > limits_.max_tokens) {
    return text(held.num_tokens, " tokens of prompts to be answered", limits_.max_tokens);
  }
  return {};
}

void ClientLoads::add(const std::string& client, const Share& share) {
  Share& held = loads_[client].share;
  held.num_answers += share.num_answers;
  held.num_tokens += share.num_tokens;
}

void ClientLoads::remove(const std::string& client, const Share& share) {
  const auto found = loads_.find(client);
  Share& held = found->second.share;
  held.num_answers -= share.num_answers;
  held.num_tokens -= share.num_tokens;
  if (held.num_answers == 0) loads_.erase(found);
}

void ClientLoads::count_unsent(const std::string& client, std::size_t before, std::size_t after) {
  for (std::size_t* sum : {&num_unsent_bytes_, &loads_.at(client).num_unsent_bytes}) {
    *sum = *sum - before + after;
  }
}

std::optional<ClientLoads::Excess> ClientLoads::excess() const {
  const std::size_t clients_limit = limits_.max_unsent_bytes / 2;
  if (num_unsent_bytes_ <= clients_limit) return std::nullopt;
  const auto most = std::max_element(loads_.begin(), loads_.end(), [](auto& a, auto& b) {
    return a.second.num_unsent_bytes < b.second.num_unsent_bytes;
  });
  if (most->second.num_unsent_bytes > clients_limit) {
    return Excess{most->first, 429,
                  fmt::format("tokens of this client's answers that are not sent yet hold more "
                              "than {} bytes; this is its largest answer",
                              clients_limit)};
  }
  if (num_unsent_bytes_ <= limits_.max_unsent_bytes) return std::nullopt;
  return Excess{most->first, 503,
                "tokens of all answers that are not sent yet hold too many bytes; this is the "
                "largest answer; try again"};
}

}  // namespace metronome
