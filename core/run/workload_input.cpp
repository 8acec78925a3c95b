// SPDX-License-Identifier: Apache-2.0
#include "core/run/workload_input.h"

#include <algorithm>
#include <utility>

#include "core/base/rng.h"

namespace metronome {
namespace {

// The squarest of all grids with so many embeddings.
ImageGrid squarest_grid(const VisionTower& tower, std::int64_t num_tokens) {
  std::int64_t num_rows = 1;
  for (std::int64_t i = 2; i * i <= num_tokens; ++i) {
    if (num_tokens % i == 0) num_rows = i;
  }
  return grid_of_tokens(tower, num_rows, num_tokens / num_rows);
}

}  // namespace

WorkloadInput::WorkloadInput(const Workload& workload, std::uint64_t seed, std::int64_t vocab_size,
                             SamplingParams params, const VisionTower& tower)
    : workload_(workload),
      seed_(seed),
      vocab_size_(vocab_size),
      params_(std::move(params)),
      tower_(tower) {}

void WorkloadInput::prompt(RequestId request, std::vector<TokenId>& out) const {
  workload_.prompt_token_ids(index(request), seed_, vocab_size_, out);
  if (tower_.image_token < 0) return;
  for (const EncoderItem& item : workload_.encoder_items(request)) {
    const auto first = out.begin() + item.begin + item.first_embedding;
    std::fill_n(first, item.num_embeddings, TokenId{tower_.image_token});
  }
}

std::span<const PromptImage> WorkloadInput::images(RequestId request) const {
  const std::span<const EncoderItem> items = workload_.encoder_items(request);
  if (items.empty()) return {};
  std::vector<PromptImage>& images = images_[request];
  if (!images.empty()) return images;
  for (const EncoderItem& item : items) {
    PromptImage& image = images.emplace_back();
    image.first_token = item.begin + item.first_embedding;
    image.content = item.content;
    const auto picture = workload_.pictures.find(item.content);
    if (picture == workload_.pictures.end()) {
      image.grid = squarest_grid(tower_, item.num_embeddings);
    } else {
      image.grid = grid_of_tokens(tower_, picture->second.rows, picture->second.columns);
      image.file = picture->second.file;
    }
  }
  return images;
}

SamplingParams WorkloadInput::sampling(RequestId request) const {
  SamplingParams params = params_;
  params.seed = mix64(mix64(params_.seed) ^ index(request));
  return params;
}

}  // namespace metronome
