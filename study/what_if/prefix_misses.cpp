// SPDX-License-Identifier: Apache-2.0
#include "study/what_if/prefix_misses.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/engine/policies/registry.h"
#include "study/what_if/replays.h"

namespace metronome {
namespace {

using Hits = std::vector<std::int64_t>;

std::int64_t sum_of(const Hits& hits) {
  return std::accumulate(hits.begin(), hits.end(), std::int64_t{0});
}

// Blocks that hold every token of the run twice.
std::int64_t enough_blocks(const Workload& workload, std::int64_t block_tokens, std::int64_t now) {
  constexpr std::int64_t kMostBlocks = std::int64_t{1} << 22;
  const std::int64_t all = workload.total_prompt_tokens() + workload.total_output_tokens();
  const std::int64_t enough = std::max(2 * now, 2 * all / block_tokens + std::int64_t{1024});
  return std::max(now, std::min(enough, kMostBlocks));
}

// The blocks with which the run would find nearly all that a cache finds which forgets nothing.
std::int64_t working_set(Replays& replays, std::int64_t now, std::int64_t most,
                         std::int64_t possible) {
  const auto is_enough = [&](std::int64_t blocks) {
    constexpr double kNearlyAll = 0.99;
    const std::optional<Hits> hits = replays.hits_with(blocks);
    return hits && static_cast<double>(sum_of(*hits)) >= kNearlyAll * static_cast<double>(possible);
  };
  std::int64_t low = now;
  std::int64_t high = now;
  while (high < most) {
    high = std::min(2 * high, most);
    if (is_enough(high)) break;
    low = high;
  }
  constexpr double kWidth = 0.03;
  while (static_cast<double>(high - low) > kWidth * static_cast<double>(high)) {
    const std::int64_t middle = low + (high - low) / 2;
    (is_enough(middle) ? high : low) = middle;
  }
  return high;
}

// The hits of a cache that forgets nothing and has blocks of one token; nullopt: the policy has no
// such blocks, or there are too many tokens for such a replay.
std::optional<Hits> hits_of_tokens(Replays& replays) {
  constexpr std::int64_t kMostOfTokens = 4'000'000;
  const Workload& workload = replays.workload();
  const std::int64_t all = workload.total_prompt_tokens() + workload.total_output_tokens();
  if (all > kMostOfTokens) return std::nullopt;
  return replays.hits_with(enough_blocks(workload, 1, 0), {{"kv_cache.block_size", 1}});
}

}  // namespace

std::optional<PrefixMisses> find_prefix_misses(const WhatIf& what_if, Replays& replays,
                                               const RunRecord& record, const FirstTokens& tokens) {
  const Scenario& scenario = what_if.baseline.scenario;
  const PolicyInfo& policy = *find_policy(scenario.scheduler.policy);
  const bool is_paged = scenario.kv_cache.backend == KvBackend::Paged;
  const Workload& workload = replays.workload();
  const bool shares =
      !workload.segments.empty() || !workload.token_ids.empty() || workload.has_sessions();
  if (!is_paged || !shares || !caches_prefixes(policy, scenario.kv_cache)) return std::nullopt;
  PrefixMisses misses;
  misses.block_tokens = scenario.kv_cache.block_size;
  misses.hit_tokens = what_if.baseline.num_prefix_hit_tokens;
  const std::int64_t now = what_if.cache.num_blocks;
  const std::int64_t most = enough_blocks(workload, misses.block_tokens, now);
  const std::optional<Hits> possible = replays.hits_with(most);
  if (!possible) return std::nullopt;
  misses.possible_tokens = sum_of(*possible);
  const std::optional<Hits> finest = hits_of_tokens(replays);
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    if (!tokens.has_first_token(i)) continue;
    const RequestRecord& request = record.requests[i];
    const double own_ms = to_ms(tokens.parts()[i][FirstTokenPart::OwnPrefill]);
    misses.own_prefill_ms += own_ms;
    const std::int64_t found = request.num_prefix_hit_tokens;
    const double computed =
        static_cast<double>(std::max<std::int64_t>(request.num_prompt_tokens - found, 1));
    const std::int64_t evicted = std::max<std::int64_t>((*possible)[i] - found, 0);
    misses.evicted_ms += own_ms * static_cast<double>(evicted) / computed;
    if (!finest) continue;
    const std::int64_t cut =
        std::max<std::int64_t>((*finest)[i] - std::max((*possible)[i], found), 0);
    misses.cut_tokens += cut;
    misses.cut_ms += own_ms * static_cast<double>(cut) / computed;
  }
  // A working set is worth naming only where many tokens are computed again.
  constexpr double kMany = 0.05;
  const double lost = static_cast<double>(misses.possible_tokens - misses.hit_tokens);
  if (lost < kMany * static_cast<double>(workload.total_prompt_tokens())) return misses;
  misses.working_set = working_set(replays, now, most, misses.possible_tokens);
  return misses;
}

}  // namespace metronome
