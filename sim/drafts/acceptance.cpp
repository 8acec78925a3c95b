// SPDX-License-Identifier: Apache-2.0
#include "sim/drafts/acceptance.h"

#include <algorithm>
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/base/rng.h"

namespace metronome {
namespace {

enum Purpose : std::uint64_t { kTypes = 1, kTokens, kProposals };

}  // namespace

Acceptance::Acceptance(const SpeculativeConfig& config, std::uint64_t seed)
    : seed_(mix64(seed ^ 0x647261667473)),  // "drafts"
      proposal_rate_(config.method == SpeculativeMethod::Ngram ? config.acceptance.proposal_rate
                                                               : 1) {
  const AcceptanceConfig& acceptance = config.acceptance;
  const auto num_tokens = static_cast<std::size_t>(config.num_speculative_tokens);
  switch (acceptance.kind) {
    case AcceptanceKind::Rate: rates_ = acceptance.rate; break;
    case AcceptanceKind::Length:
      for (const double length : acceptance.mean_length) {
        rates_.push_back(acceptance_rate(
            length, acceptance.mean_length_tokens.value_or(config.num_speculative_tokens)));
      }
      break;
    case AcceptanceKind::Positions: log_ = {{kNever, acceptance.positions}}; return;
    case AcceptanceKind::Log: {
      const std::string key = "speculative.acceptance.log";
      log_ = read_acceptance_log(acceptance.log, key);
      const std::size_t num_logged = log_.front().positions.size();
      if (num_logged >= num_tokens) return;
      throw UnplacedConfigError(key,
                                fmt::format("has {} positions; speculative.num_speculative_tokens "
                                            "is {}; allowed: a log with at least as many",
                                            num_logged, num_tokens));
    }
  }
  double sum = 0;
  for (std::size_t i = 0; i < rates_.size(); ++i) {
    sum += acceptance.weights.empty() ? 1 : acceptance.weights[i];
    shares_.push_back(sum);
  }
  for (double& share : shares_) share /= sum;
}

double Acceptance::draw(RequestId request, std::int32_t place, std::uint64_t purpose) const {
  const std::uint64_t key =
      std::uint64_t{index(request)} << 32 | std::uint64_t{static_cast<std::uint32_t>(place)};
  return unit_of(mix64(mix64(seed_ + purpose) ^ key));
}

double Acceptance::rate(RequestId request, std::size_t i, TimeNs now) const {
  if (!rates_.empty()) {
    if (rates_.size() == 1) return rates_.front();
    const double type = draw(request, 0, kTypes);
    const auto found = std::upper_bound(shares_.begin(), shares_.end() - 1, type);
    return rates_[static_cast<std::size_t>(found - shares_.begin())];
  }
  const auto line =
      std::upper_bound(log_.begin(), log_.end() - 1, now,
                       [](TimeNs time, const AcceptanceLine& entry) { return time < entry.until; });
  const std::vector<double>& positions = line->positions;
  const double before = i == 0 ? 1 : positions[i - 1];
  return before > 0 ? positions[i] / before : 0;
}

std::int32_t Acceptance::num_accepted(RequestId request, std::int32_t place,
                                      std::int32_t num_drafts, TimeNs now) const {
  std::int32_t num_accepted = 0;
  while (num_accepted < num_drafts &&
         draw(request, place + num_accepted, kTokens) <
             rate(request, static_cast<std::size_t>(num_accepted), now)) {
    ++num_accepted;
  }
  return num_accepted;
}

std::int32_t Acceptance::num_proposed(RequestId request, std::int32_t place,
                                      std::int32_t num_drafts) const {
  return draw(request, place, kProposals) < proposal_rate_ ? num_drafts : 0;
}

}  // namespace metronome
