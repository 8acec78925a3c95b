// SPDX-License-Identifier: Apache-2.0
// Draws the prefixes that prompts share.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/rng.h"
#include "core/engine/prompt.h"
#include "core/workload/workload_config.h"

namespace metronome {

// Draws the shared prefix of one prompt after the other.
class PrefixDraws {
 public:
  // `config` must outlive this. `purpose` names the stream of random numbers. Prefixes of another
  // `owner` below 2^16 are others.
  PrefixDraws(const PrefixConfig& config, std::uint64_t seed, std::string_view purpose = "prefix",
              std::uint64_t owner = 0)
      : config_(config), rng_(seed, purpose), first_(owner << kOwnerShift) {}

  std::int32_t num_tokens() const {
    if (config_.kind == PrefixKind::None) return 0;
    const std::int64_t num_levels = config_.kind == PrefixKind::Tree ? config_.depth : 1;
    return static_cast<std::int32_t>(num_levels * config_.prefix_tokens);
  }

  // Appends the segments of the next prefix.
  void append(std::vector<PromptSegment>& segments) {
    if (config_.kind == PrefixKind::Groups) {
      const auto group = static_cast<std::uint64_t>(rng_.uniform_int(0, config_.num_groups - 1));
      segments.push_back({content_id(ContentKind::Group, first_ | group), num_tokens()});
    } else if (config_.kind == PrefixKind::Tree) {
      append_tree_path(segments);
    }
  }

 private:
  // The segments of one tree path, root first.
  void append_tree_path(std::vector<PromptSegment>& segments) {
    // Children of node n are n * branching + 1 .. n * branching + branching.
    std::uint64_t node = 0;
    for (std::int64_t level = 0; level < config_.depth; ++level) {
      if (level > 0) {
        const std::int64_t child = rng_.uniform_int(1, config_.branching);
        node = node * static_cast<std::uint64_t>(config_.branching) +
               static_cast<std::uint64_t>(child);
      }
      segments.push_back({content_id(ContentKind::TreeNode, first_ | node),
                          static_cast<std::int32_t>(config_.prefix_tokens)});
    }
  }

  // Groups and nodes are numbers up to 2^40.
  static constexpr int kOwnerShift = 41;

  const PrefixConfig& config_;
  Rng rng_;
  std::uint64_t first_;
};

}  // namespace metronome
