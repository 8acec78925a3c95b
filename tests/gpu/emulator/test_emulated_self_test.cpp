// SPDX-License-Identifier: Apache-2.0
// The self-test's verdict on products whose bits depend on a row's place, of one linear layer only.
#include <string>
#include <vector>

#include "gpu/emulator/emulated_gemm.h"
#include "gpu/engine/self_test.h"
#include "tests/catch.h"
#include "tests/gpu/gpu_lab.h"

namespace metronome::testing::TEST_FILE {
namespace {

using namespace emulator;

constexpr PassLimits kLimits = {
    .max_tokens = 512, .max_rows = 16, .max_items = 64, .max_model_len = 1024};

// The self-test of a model whose last products of a layer are uneven.
std::vector<std::string> faults_of_uneven_down(const ModelConfig& model) {
  set_gemm_algorithms(kAllGemmAlgorithms | kUneven);
  const ModelSource source = lab_source(model);
  GemmStore store("test");
  DeviceModel(source, kLimits, store, nullptr);  // chooses the algorithms of all
  GemmStore uneven = store;
  for (auto [key, choice] : store.choices()) {
    if (key.k != model.ffn_dim || !key.is_invariant) continue;
    choice.algorithm = gemm_algorithm_words(kUneven);
    uneven.put(key, choice);
  }
  REQUIRE(uneven.choices() != store.choices());
  DeviceModel device_model(source, kLimits, uneven, nullptr);
  DeviceEngineOptions options;
  options.kv = {.n_layers = model.n_layers,
                .n_kv_heads = model.n_kv_heads,
                .head_dim = model.head_dim,
                .num_blocks = 64,
                .block_size = 16};
  options.max_num_seqs = 4;
  options.uses_graphs = false;
  DeviceEngine engine(device_model, options);
  const std::vector<std::string> faults = chunking_faults(engine);
  set_gemm_algorithms(kAllGemmAlgorithms);
  return faults;
}

}  // namespace

TEST_CASE("the self-test names every cutting and the first part that differs", "[self_test]") {
  ModelConfig model = small_gpu_model(Family::Llama);
  REQUIRE(model.n_layers == 2);
  CHECK(faults_of_uneven_down(model) ==
        std::vector<std::string>{
            "keys of layer 1 and 2 more parts differ for 600 tokens in chunks of 257",
            "keys of layer 1 and 2 more parts differ for 600 tokens in chunks of 64",
            "keys of layer 1 and 2 more parts differ for 67 tokens in chunks of 7",
            "keys of layer 1 and 2 more parts differ for 67 tokens in chunks of 1"});
}

TEST_CASE("the self-test sees logits where keys and values agree", "[self_test]") {
  ModelConfig model = small_gpu_model(Family::Llama);
  model.n_layers = 1;
  // Of 600 tokens the last one is behind the first sixteen rows however they are cut.
  CHECK(faults_of_uneven_down(model) ==
        std::vector<std::string>{"logits differ for 67 tokens in chunks of 7",
                                 "logits differ for 67 tokens in chunks of 1"});
}

}  // namespace metronome::testing::TEST_FILE
