// SPDX-License-Identifier: Apache-2.0
// The CPU executor against Hugging Face transformers for models with a vision tower: features of
// images, logits at every position and greedy tokens of the models in tests/fixtures/vision_models,
// or in the folder METRONOME_VISION_FIXTURES names. tools/vision_parity makes them; its head says
// what a fixture holds.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/model/model_catalogue.h"
#include "cpu/transformer.h"
#include "cpu/vision_encoder.h"
#include "models/weights/model_weights.h"
#include "tests/catch.h"
#include "tests/cpu/sequences.h"
#include "tests/places.h"
#include "tests/transformers_values.h"

namespace metronome::TEST_FILE {
namespace {

namespace fs = std::filesystem;

using testing::append_greedy;
using testing::GreedyTokens;
using testing::max_difference;
using testing::read_tokens;
using testing::read_values;
using testing::Sequences;
using Chunks = std::vector<std::span<const TokenId>>;

constexpr float kTolerance = 1e-4f;

// A fixture with its images encoded.
class VisionFixture {
 public:
  VisionFixture(const std::string& folder, ThreadPool& pool)
      : model(find_model(folder, {})),
        file_(folder + "/expected.safetensors"),
        prompt(read_tokens(file_, "prompt")),
        greedy(read_tokens(file_, "greedy")),
        logits(read_values<float>(file_, "logits", "F32")),
        greedy_logits(read_values<float>(file_, "greedy_logits", "F32")),
        weights_(open_model_folder(folder, model)),
        transformer(model, *weights_, pool) {
    REQUIRE(model.unsupported.empty());
    REQUIRE(!model.vision.is_empty());
    VisionEncoder encoder(model, *weights_, pool);
    encode(encoder);
  }

  float feature_difference() const {
    if (images.empty()) {
      REQUIRE(file_.find("features") == nullptr);
      return 0;
    }
    std::vector<float> all;
    for (const std::vector<float>& of_image : features) {
      all.insert(all.end(), of_image.begin(), of_image.end());
    }
    return max_difference(all, read_values<float>(file_, "features", "F32"));
  }

  Sequences sequences(std::int32_t count) {
    Sequences made(transformer, count, static_cast<std::int32_t>(prompt.size() + greedy.size()));
    made.set_images(images);
    return made;
  }

  ModelConfig model;

 private:
  SafetensorsFile file_;

 public:
  std::vector<TokenId> prompt;
  std::vector<TokenId> greedy;
  std::vector<float> logits;         // [prompt, vocab_size]
  std::vector<float> greedy_logits;  // [greedy, vocab_size]

 private:
  std::unique_ptr<WeightSource> weights_;

 public:
  Transformer transformer;
  std::vector<std::vector<float>> features;  // by image
  std::vector<PlacedImage> images;

 private:
  void encode(VisionEncoder& encoder) {
    if (file_.find("grids") == nullptr) return;  // text only
    const auto grids = read_values<std::int32_t>(file_, "grids", "I32");
    const auto pixels = read_values<float>(file_, "pixel_values", "F32");
    std::size_t first_value = 0;
    std::size_t token = 0;
    features.resize(grids.size() / 3);
    for (std::size_t i = 0; i < features.size(); ++i) {
      ImageGrid grid;
      grid.n_patch_rows = grids[3 * i + 1];
      grid.n_patch_columns = grids[3 * i + 2];
      const auto num_values =
          static_cast<std::size_t>(grid.num_patches() * model.vision.patch_inputs());
      encoder.encode(std::span(pixels).subspan(first_value, num_values), grid, features[i]);
      first_value += num_values;
      while (prompt[token] != TokenId{model.vision.image_token}) ++token;
      const ImageSpan span = {static_cast<std::int32_t>(token),
                              static_cast<std::int32_t>(grid.n_token_rows(model.vision)),
                              static_cast<std::int32_t>(grid.n_token_columns(model.vision))};
      images.push_back({span, features[i].data()});
      token += static_cast<std::size_t>(span.num_tokens());
    }
    REQUIRE(first_value == pixels.size());
  }
};

void check_greedy(VisionFixture& fixture, float& largest) {
  Sequences sequence = fixture.sequences(1);
  const std::vector<float> logits = sequence.append({fixture.prompt});
  const GreedyTokens greedy = append_greedy(
      sequence, logits, static_cast<std::size_t>(fixture.model.vocab_size), fixture.greedy.size());
  CHECK(greedy.tokens == fixture.greedy);
  largest = max_difference(greedy.logits, fixture.greedy_logits);
  CHECK(largest <= kTolerance);
}

// The prompt cut at `cut`, beside a copy of itself that is computed whole and then one token ahead.
void check_cut(VisionFixture& fixture, std::size_t cut, const std::vector<float>& whole) {
  Sequences sequences = fixture.sequences(2);
  const std::span<const TokenId> prompt = fixture.prompt;
  const auto vocab_size = static_cast<std::size_t>(fixture.model.vocab_size);
  const std::vector<float> first = sequences.append({prompt.first(cut), {}});
  const std::vector<float> rest = sequences.append({prompt.subspan(cut), prompt});
  REQUIRE(first.size() == cut * vocab_size);
  std::vector<float> chunked = first;
  const auto num_rest = static_cast<std::ptrdiff_t>((prompt.size() - cut) * vocab_size);
  chunked.insert(chunked.end(), rest.begin(), rest.begin() + num_rest);
  CHECK(max_difference(chunked, whole) == 0);
  CHECK(max_difference(std::span(rest).subspan(static_cast<std::size_t>(num_rest)), whole) == 0);
}

// The prompt in chunks of one size.
void check_chunk_size(VisionFixture& fixture, std::size_t size, const std::vector<float>& whole) {
  Sequences sequence = fixture.sequences(1);
  std::vector<float> chunked;
  for (std::size_t begin = 0; begin < fixture.prompt.size(); begin += size) {
    const auto chunk =
        std::span(fixture.prompt).subspan(begin, std::min(size, fixture.prompt.size() - begin));
    const std::vector<float> logits = sequence.append({chunk});
    chunked.insert(chunked.end(), logits.begin(), logits.end());
  }
  CHECK(max_difference(chunked, whole) == 0);
}

void check_fixture(const std::string& folder) {
  ThreadPool pool(2);
  VisionFixture fixture(folder, pool);
  const float feature_difference = fixture.feature_difference();
  CHECK(feature_difference <= kTolerance);
  const std::vector<float> whole = fixture.sequences(1).append({fixture.prompt});
  const float prompt_difference = max_difference(whole, fixture.logits);
  CHECK(prompt_difference <= kTolerance);
  float greedy_difference = 0;
  check_greedy(fixture, greedy_difference);
  for (std::size_t cut = 1; cut < fixture.prompt.size(); ++cut) check_cut(fixture, cut, whole);
  for (const std::size_t size : {1U, 2U, 3U, 7U, 16U}) check_chunk_size(fixture, size, whole);
  for (const int num_threads : {1, 3, 4}) {
    INFO(num_threads << " threads");
    ThreadPool other_pool(num_threads);
    VisionFixture other(folder, other_pool);
    CHECK(other.features == fixture.features);
    CHECK(max_difference(other.sequences(1).append({other.prompt}), whole) == 0);
  }
  std::cout << "vision_parity " << fs::path(folder).filename().string() << ": max difference "
            << feature_difference << " over " << fixture.images.size() << " images, "
            << prompt_difference << " over the prompt, " << greedy_difference << " over "
            << fixture.greedy.size() << " greedy tokens\n";
}

TEST_CASE("features, logits and greedy tokens of vision models are those of transformers",
          "[cpu][vision_parity]") {
  const char* other = std::getenv("METRONOME_VISION_FIXTURES");
  const std::string root =
      other != nullptr ? other : testing::source_dir() + "/tests/fixtures/vision_models";
  std::vector<std::string> folders;
  REQUIRE(fs::is_directory(root));
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    if (entry.is_directory()) folders.push_back(entry.path().string());
  }
  std::sort(folders.begin(), folders.end());
  REQUIRE(!folders.empty());
  if (other == nullptr) CHECK(folders.size() == 8);
  for (const std::string& folder : folders) {
    INFO(folder);
    check_fixture(folder);
  }
}

}  // namespace
}  // namespace metronome::TEST_FILE
