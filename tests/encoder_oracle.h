// SPDX-License-Identifier: Apache-2.0
// Follows which images an executor has encoded, and checks that each chunk finds what it needs.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/engine/prompt.h"
#include "core/engine/step_plan.h"

namespace metronome::testing {

class EncoderOracle {
 public:
  explicit EncoderOracle(const PromptSource& prompts) : prompts_(prompts) {}

  void launch(const StepPlan& plan) {
    for (const std::uint64_t content : plan.freed_contents) encoded_.erase(content);
    std::vector<std::uint64_t>& own = steps_.emplace_back(plan.step_index, Contents{}).second;
    for (const PlannedEncoding& encoding : plan.encodings) {
      const EncoderItem& item =
          prompts_.encoder_items(encoding.request)[static_cast<std::size_t>(encoding.item)];
      METRONOME_CHECK(encoding.num_embeddings == item.num_embeddings, "an image has another size");
      METRONOME_CHECK(encoded_.insert(item.content).second, "an image is encoded twice");
      own.push_back(item.content);
      ++num_encoded;
    }
    for (const ScheduledChunk& chunk : plan.chunks) {
      for (const EncoderItem& item : prompts_.encoder_items(chunk.request)) {
        if (!item.has_embedding_in(chunk.first_position, chunk.end_position())) continue;
        METRONOME_CHECK(encoded_.contains(item.content),
                        "an image is computed before its encoding");
        users_.push_back({plan.step_index, item.content, chunk.request, chunk.generation});
        if (chunk.end_position() < item.end()) ++num_split;
      }
    }
  }

  // The step failed, and its images do not exist. Later steps in flight may have used them: their
  // requests, by the generation in which they did.
  std::vector<std::pair<RequestId, std::uint8_t>> spoil(std::int64_t step) {
    std::vector<std::pair<RequestId, std::uint8_t>> victims;
    for (const auto& [index, contents] : steps_) {
      if (index != step) continue;
      for (const std::uint64_t content : contents) {
        encoded_.erase(content);
        for (const User& user : users_) {
          if (user.step >= step && user.content == content) {
            victims.emplace_back(user.request, user.generation);
          }
        }
      }
    }
    return victims;
  }

  std::int64_t num_encoded = 0;
  std::int64_t num_split = 0;  // chunks that end inside an image

 private:
  using Contents = std::vector<std::uint64_t>;
  struct User {
    std::int64_t step;
    std::uint64_t content;
    RequestId request;
    std::uint8_t generation;
  };

  const PromptSource& prompts_;
  std::set<std::uint64_t> encoded_;
  std::vector<std::pair<std::int64_t, Contents>> steps_;
  std::vector<User> users_;
};

}  // namespace metronome::testing
