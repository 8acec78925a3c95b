// SPDX-License-Identifier: Apache-2.0
// The CPU executor against Hugging Face transformers: logits at every position and greedy tokens
// of the models in tests/fixtures/models, or in the folder METRONOME_FIXTURES names.
// tools/hf_parity makes them; its head says what a fixture holds.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "core/model/model_catalogue.h"
#include "cpu/transformer.h"
#include "models/weights/model_weights.h"
#include "tests/catch.h"
#include "tests/cpu/padded_model.h"
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

constexpr float kTolerance = 1e-4f;

struct Expected {
  std::vector<TokenId> prompt;
  std::vector<float> logits;  // [prompt, vocab_size]
  std::vector<TokenId> greedy;
  std::vector<float> greedy_logits;  // [greedy, vocab_size]
};

Expected read_expected(const std::string& path) {
  const SafetensorsFile file(path);
  return {read_tokens(file, "prompt"), read_values<float>(file, "logits", "F32"),
          read_tokens(file, "greedy"), read_values<float>(file, "greedy_logits", "F32")};
}

// The prompt three times side by side, in chunks of different sizes: [3][prompt, vocab_size].
std::array<std::vector<float>, 3> run_in_chunks(Transformer& transformer,
                                                const std::vector<TokenId>& prompt) {
  constexpr std::size_t kChunks[3][4] = {{1, 1, 1, 1}, {7, 1, 16, 3}, {33, 2, 5, 64}};
  Sequences sequences(transformer, 3, static_cast<std::int32_t>(prompt.size()));
  const auto vocab_size = static_cast<std::size_t>(transformer.model().vocab_size);
  std::array<std::vector<float>, 3> logits;
  for (std::size_t step = 0; logits[0].size() < prompt.size() * vocab_size; ++step) {
    std::vector<std::span<const TokenId>> chunks;
    for (std::size_t s = 0; s < 3; ++s) {
      const std::size_t done = logits[s].size() / vocab_size;
      const std::size_t size = std::min(kChunks[s][step % 4], prompt.size() - done);
      chunks.push_back(std::span(prompt).subspan(done, size));
    }
    const std::vector<float> all = sequences.append(chunks);
    auto next = all.begin();
    for (std::size_t s = 0; s < 3; ++s) {
      const auto end = next + static_cast<std::ptrdiff_t>(chunks[s].size() * vocab_size);
      logits[s].insert(logits[s].end(), next, end);
      next = end;
    }
  }
  return logits;
}

void check_fixture(const std::string& folder, ThreadPool& pool) {
  const Expected expected = read_expected(folder + "/expected.safetensors");
  ModelConfig model = find_model(folder, {});
  REQUIRE(model.unsupported.empty());
  // transformers chooses LongRoPE's factors by the length of the text.
  RopeScaling& scaling = model.rope_scaling;
  scaling.uses_long_factors =
      static_cast<std::int64_t>(expected.prompt.size()) > scaling.original_max_positions;
  const auto weights = open_model_folder(folder, model);
  CHECK(weights->unused_tensors().empty());
  Transformer transformer(model, *weights, pool);
  const std::size_t num_tokens = expected.prompt.size() + expected.greedy.size();
  Sequences sequence(transformer, 1, static_cast<std::int32_t>(num_tokens));

  const std::vector<float> logits = sequence.append({expected.prompt});
  const float prompt_difference = max_difference(logits, expected.logits);
  CHECK(prompt_difference <= kTolerance);

  const GreedyTokens greedy = append_greedy(
      sequence, logits, static_cast<std::size_t>(model.vocab_size), expected.greedy.size());
  CHECK(greedy.tokens == expected.greedy);
  const float greedy_difference = max_difference(greedy.logits, expected.greedy_logits);
  CHECK(greedy_difference <= kTolerance);

  for (const std::vector<float>& chunked : run_in_chunks(transformer, expected.prompt)) {
    // Chunks change nothing at all.
    CHECK(max_difference(chunked, logits) == 0);
  }

  std::cout << "hf_parity " << fs::path(folder).filename().string() << ": max difference "
            << prompt_difference << " over the prompt, " << greedy_difference << " over "
            << greedy.tokens.size() << " greedy tokens";
  if (PaddedModel::computes(model)) {
    PaddedCache cache(model, static_cast<std::int32_t>(num_tokens));
    const PaddedSequence padded = {expected.prompt, 0, &cache};
    const float padded_difference =
        max_difference(PaddedModel(model, *weights).forward({&padded, 1}).values, expected.logits);
    CHECK(padded_difference <= kTolerance);
    std::cout << ", " << padded_difference << " padded";
  }
  std::cout << '\n';
}

TEST_CASE("logits and greedy tokens are those of transformers", "[cpu][hf_parity]") {
  const char* other = std::getenv("METRONOME_FIXTURES");
  const std::string root =
      other != nullptr ? other : testing::source_dir() + "/tests/fixtures/models";
  std::vector<std::string> folders;
  REQUIRE(fs::is_directory(root));
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    if (entry.is_directory()) folders.push_back(entry.path().string());
  }
  std::sort(folders.begin(), folders.end());
  REQUIRE(!folders.empty());
  if (other == nullptr) CHECK(folders.size() == 76);
  ThreadPool pool(2);
  for (const std::string& folder : folders) {
    INFO(folder);
    check_fixture(folder, pool);
  }
}

}  // namespace
}  // namespace metronome::TEST_FILE
