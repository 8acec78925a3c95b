// SPDX-License-Identifier: Apache-2.0
#include "core/workload/workload_profile.h"

#include <algorithm>
#include <fmt/core.h>
#include <map>
#include <numeric>

#include "core/base/names.h"
#include "core/base/rng.h"

namespace metronome {

namespace {

// The prompts so far, as a tree of segments by hashes of the path to each.
class SeenPrompts {
 public:
  // Returns how many tokens at the beginning of the prompt were seen, and adds it.
  std::int64_t add(std::span<const PromptSegment> segments) {
    std::uint64_t path = 0;
    std::int64_t num_shared = 0;
    bool is_shared = true;
    for (const PromptSegment& segment : segments) {
      path = mix64(path ^ mix64(segment.content));
      std::int32_t& longest = longest_[path];
      if (is_shared) num_shared += std::min(longest, segment.num_tokens);
      is_shared = is_shared && longest >= segment.num_tokens;
      longest = std::max(longest, segment.num_tokens);
    }
    return num_shared;
  }

  // Adds a prompt of ids; each is a segment. Tokens of images differ by their content.
  std::int64_t add(std::span<const TokenId> ids, std::span<const EncoderItem> images) {
    segments_.clear();
    for (const TokenId id : ids) {
      segments_.push_back({static_cast<std::uint64_t>(static_cast<std::uint32_t>(value(id))), 1});
    }
    for (const EncoderItem& image : images) {
      for (std::int32_t i = 0; i < image.num_tokens; ++i) {
        segments_[static_cast<std::size_t>(image.begin + i)].content =
            mix64(image.content + static_cast<std::uint64_t>(i));
      }
    }
    return add(segments_);
  }

 private:
  std::map<std::uint64_t, std::int32_t> longest_;
  std::vector<PromptSegment> segments_;
};

void profile_times(const Workload& workload, WorkloadProfile& profile) {
  if (workload.mode != ArrivalMode::Timed) return;
  for (const RequestSpec& request : workload.requests) {
    profile.last_arrival = std::max(profile.last_arrival, request.arrival);
  }
  if (profile.last_arrival == 0) return;
  profile.requests_per_s =
      static_cast<double>(profile.num_requests) / to_seconds(profile.last_arrival);
}

}  // namespace

CountFigures figures_of(std::vector<std::int64_t> counts) {
  if (counts.empty()) return {};
  std::sort(counts.begin(), counts.end());
  const auto rank = [&counts](std::int64_t percent) {
    const auto place = ceil_div(static_cast<std::int64_t>(counts.size()) * percent, 100);
    return counts[static_cast<std::size_t>(place - 1)];
  };
  CountFigures figures;
  figures.total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  figures.mean = static_cast<double>(figures.total) / static_cast<double>(counts.size());
  figures.p50 = rank(50);
  figures.p90 = rank(90);
  figures.p99 = rank(99);
  figures.max = counts.back();
  return figures;
}

WorkloadProfile profile_of(const Workload& workload) {
  WorkloadProfile profile;
  profile.num_requests = static_cast<std::int64_t>(workload.requests.size());
  std::vector<std::int64_t> prompts, outputs, fresh, lengths;
  SeenPrompts seen;
  std::size_t session = 0;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    const RequestSpec& request = workload.requests[i];
    if (workload.has_sessions() && i == workload.session_begin[session + 1]) ++session;
    const bool is_continued = workload.has_sessions() && workload.continues_session(i, session);
    const std::int64_t history = is_continued ? prompts[i - 1] + outputs[i - 1] : 0;
    prompts.push_back(request.num_prompt_tokens);
    outputs.push_back(request.max_output_tokens);
    if (workload.has_sessions()) fresh.push_back(prompts[i] - history);
    const RequestId id{static_cast<std::uint32_t>(i)};
    profile.shared_tokens += is_continued ? history
                             : workload.token_begin.empty()
                                 ? seen.add(workload.prompt_segments(id))
                                 : seen.add(workload.prompt_ids(id), workload.encoder_items(id));
  }
  for (std::size_t s = 0; s < workload.num_sessions(); ++s) {
    lengths.push_back(workload.session_begin[s + 1] - workload.session_begin[s]);
  }
  profile.prompt_tokens = figures_of(std::move(prompts));
  profile.output_tokens = figures_of(std::move(outputs));
  profile.new_tokens = figures_of(std::move(fresh));
  profile.session_requests = figures_of(std::move(lengths));
  profile_times(workload, profile);
  return profile;
}

std::string unused_fields_text(const Workload& workload) {
  constexpr std::size_t kMaxNames = 8;
  const std::vector<std::string>& names = workload.unused_fields;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxNames); ++i) {
    text += (i == 0 ? "" : ", ") + printable(names[i]);
  }
  if (names.size() <= kMaxNames) return text;
  return fmt::format("{} and {} more", text, names.size() - kMaxNames);
}

}  // namespace metronome
