// SPDX-License-Identifier: Apache-2.0
// Prompts of which a log has only the sum: drawn to match the prompts that are known.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/base/rng.h"

namespace metronome {

// Known lengths, each with the limit of its output: requests with one limit are often of one kind.
class KnownLengths {
 public:
  void add(std::int64_t tokens, std::int64_t max_output_tokens);
  bool empty() const { return lengths_.empty(); }

  std::int64_t draw(std::int64_t max_output_tokens, Rng& rng) const;
  // The likelihood of a length, in no unit.
  double weight(std::int64_t tokens, std::int64_t max_output_tokens) const;
  // The share of lengths above.
  double share_above(std::int64_t tokens, std::int64_t max_output_tokens) const;
  std::int64_t median() const;

 private:
  struct Known {
    std::int64_t tokens = 0;
    std::int64_t max_output_tokens = 0;
  };
  // Lengths to draw from for a limit, and all of them.
  const std::vector<Known>& alike(std::int64_t max_output_tokens) const;
  std::vector<Known> find_alike(std::int64_t max_output_tokens) const;
  static std::vector<Known> sample_of(std::vector<Known> lengths);

  std::vector<Known> lengths_;
  mutable std::map<std::int64_t, std::vector<Known>> alike_;  // by limit, as far as asked for
};

// A prompt's part in an iteration.
struct OpenPart {
  std::int64_t before = 0;             // its tokens in earlier iterations
  std::int64_t max_output_tokens = 0;  // of its request; 0: unknown
  std::int64_t known = 0;              // tokens of the whole prompt; 0: unknown
  bool is_last = true;                 // the prompt ends here
};

// Divides the tokens of an iteration among its prompts, each at least one. Requires sum >= parts.
std::vector<std::int64_t> divide_tokens(std::int64_t sum, std::span<const OpenPart> parts,
                                        const KnownLengths& known, Rng& rng);

}  // namespace metronome
