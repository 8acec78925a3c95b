// SPDX-License-Identifier: Apache-2.0
#include "study/rebuilt/drawn_lengths.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/base/error.h"
#include "core/base/math.h"
#include "core/base/real.h"

namespace metronome {
namespace {

constexpr double kSpread = 0.1;     // of a drawn length around a known one, relative
constexpr std::size_t kEnough = 4;  // known lengths of a kind that stand for it
constexpr int kNumDraws = 256;      // among which one is chosen by its weight

// Sums that proposals missed, or no length is known: parts in proportion to what they may be.
std::vector<std::int64_t> equal_parts(std::int64_t sum, std::size_t num_parts) {
  std::vector<std::int64_t> parts(num_parts, sum / static_cast<std::int64_t>(num_parts));
  parts.back() += sum - std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
  return parts;
}

}  // namespace

void KnownLengths::add(std::int64_t tokens, std::int64_t max_output_tokens) {
  lengths_.push_back({tokens, max_output_tokens});
  alike_.clear();
}

// A long log has more lengths than a draw needs.
std::vector<KnownLengths::Known> KnownLengths::sample_of(std::vector<Known> lengths) {
  constexpr std::size_t kSample = 256;
  if (lengths.size() <= kSample) return lengths;
  std::vector<Known> sample;
  for (std::size_t i = 0; i < kSample; ++i) {
    sample.push_back(lengths[i * lengths.size() / kSample]);
  }
  return sample;
}

const std::vector<KnownLengths::Known>& KnownLengths::alike(std::int64_t max_output_tokens) const {
  const auto [found, is_new] = alike_.try_emplace(max_output_tokens);
  if (is_new) found->second = sample_of(find_alike(max_output_tokens));
  return found->second;
}

std::vector<KnownLengths::Known> KnownLengths::find_alike(std::int64_t max_output_tokens) const {
  std::map<std::int64_t, std::size_t> counts;
  for (const Known& one : lengths_) ++counts[one.max_output_tokens];
  const auto count_of = [&counts](const Known& one) { return counts.at(one.max_output_tokens); };
  const auto same = counts.find(max_output_tokens);
  const bool is_known = same != counts.end() && same->second >= kEnough;
  // Without the kinds that are known by themselves, as long as others remain.
  std::vector<Known> chosen;
  for (const Known& one : lengths_) {
    const bool is_chosen =
        is_known ? one.max_output_tokens == max_output_tokens : count_of(one) < kEnough;
    if (is_chosen) chosen.push_back(one);
  }
  return chosen.size() >= kEnough ? chosen : lengths_;
}

std::int64_t KnownLengths::draw(std::int64_t max_output_tokens, Rng& rng) const {
  const std::vector<Known>& from = alike(max_output_tokens);
  METRONOME_CHECK(!from.empty(), "lengths to draw from");
  const auto at = rng.uniform_int(0, static_cast<std::int64_t>(from.size()) - 1);
  const double drawn =
      real(from[static_cast<std::size_t>(at)].tokens) * (1 + kSpread * rng.normal(0, 1));
  return std::max<std::int64_t>(1, std::llround(drawn));
}

double KnownLengths::weight(std::int64_t tokens, std::int64_t max_output_tokens) const {
  const std::vector<Known>& from = alike(max_output_tokens);
  double sum = 0;
  for (const Known& one : from) {
    const double off = (log_of(real(tokens)) - log_of(real(one.tokens))) / kSpread;
    sum += exp_of_negative(-off * off / 2);
  }
  return from.empty() ? 0 : sum / real(from.size()) / real(tokens);
}

double KnownLengths::share_above(std::int64_t tokens, std::int64_t max_output_tokens) const {
  const std::vector<Known>& from = alike(max_output_tokens);
  const auto above = std::count_if(from.begin(), from.end(),
                                   [tokens](const Known& one) { return one.tokens > tokens; });
  return from.empty() ? 0 : real(above) / real(from.size());
}

std::int64_t KnownLengths::median() const {
  std::vector<std::int64_t> all;
  for (const Known& one : lengths_) all.push_back(one.tokens);
  if (all.empty()) return 0;
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2),
                   all.end());
  return all[all.size() / 2];
}

std::vector<std::int64_t> divide_tokens(std::int64_t sum, std::span<const OpenPart> parts,
                                        const KnownLengths& known, Rng& rng) {
  const std::size_t num_parts = parts.size();
  METRONOME_CHECK(num_parts > 0 && sum >= static_cast<std::int64_t>(num_parts),
                  "a token for each prompt");
  if (num_parts == 1) return {sum};
  const bool all_known = std::all_of(parts.begin(), parts.end() - 1,
                                     [](const OpenPart& part) { return part.known > 0; });
  if (known.empty() && !all_known) return equal_parts(sum, num_parts);
  std::vector<std::vector<std::int64_t>> draws;
  std::vector<double> weights;
  for (int k = 0; k < (all_known ? 1 : kNumDraws); ++k) {
    std::vector<std::int64_t> tokens;
    std::int64_t left = sum;
    double weight = 1;
    for (std::size_t p = 0; p + 1 < num_parts; ++p) {
      const OpenPart& part = parts[p];
      const std::int64_t whole =
          part.known > 0 ? part.known : known.draw(part.max_output_tokens, rng);
      tokens.push_back(whole - part.before);
      left -= tokens.back();
      if (tokens.back() < 1) weight = 0;
    }
    tokens.push_back(left);
    if (left < 1 || weight == 0) continue;
    const OpenPart& last = parts.back();
    const std::int64_t whole = last.before + left;
    if (!all_known) {
      weight = last.is_last ? known.weight(whole, last.max_output_tokens)
                            : known.share_above(whole, last.max_output_tokens) + 1e-6;
    }
    draws.push_back(std::move(tokens));
    weights.push_back(weight);
  }
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (draws.empty() || !(all > 0)) return equal_parts(sum, num_parts);
  double at = rng.uniform() * all;
  for (std::size_t k = 0; k < draws.size(); ++k) {
    at -= weights[k];
    if (at <= 0) return draws[k];
  }
  return draws.back();
}

}  // namespace metronome
