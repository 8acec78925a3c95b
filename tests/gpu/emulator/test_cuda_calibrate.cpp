// SPDX-License-Identifier: Apache-2.0
// `metronome calibrate --backend=cuda` in the emulator: its times say nothing, but the way from
// steps to a file is the one on a GPU.

#include "core/base/json.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

constexpr const char* kModel = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1,
  "head_dim": 64, "intermediate_size": 72, "vocab_size": 128, "max_position_embeddings": 96,
  "rms_norm_eps": 1e-6, "tie_word_embeddings": true})";

TEST_CASE("calibrate --backend=cuda measures, keeps, fits and stores", "[calibrate]") {
  const ScratchFolder folder;
  const std::string model = folder.write("tiny/config.json", kModel);
  const std::string out = folder.path() + "/tiny.json";
  const CommandResult result =
      run_program(metronome_program(),
                  "calibrate --backend=cuda --model '" + model + "' --out '" + out +
                      "' --set engine.max_num_seqs=4 --set engine.max_model_len=64 --set "
                      "kv_cache.block_size=4 --set scheduler.max_num_batched_tokens=32",
                  "XDG_CACHE_HOME='" + folder.path() + "'");
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.out, "in 4 of 4 rounds"));
  CHECK(contains(result.out, " 2 in"));
  CHECK(contains(result.out, "gaps: ran with fewer steps in flight than the others"));
  CHECK_FALSE(contains(result.out, "host gap    not measured"));
  const auto file = Json::parse(read_text_file(out));
  CHECK(file["engine"] == "metronome cuda");
  CHECK(file["body"]["steps"].get<int>() > 100);
  const CommandResult again =
      run_program(metronome_program(), "calibrate --from '" + folder.path() + "/tiny.steps' " +
                                           "--out '" + folder.path() + "/again.json'");
  INFO(again.out << again.err);
  // The model was a file: its path, from wherever it was.
  CHECK(again.exit_code == 0);
}

TEST_CASE("bench times the same steps with each option that is off by default, and with all",
          "[calibrate]") {
  const ScratchFolder folder;
  const std::string model = folder.write("tiny/config.json", kModel);
  for (const std::string options :
       {"--early-launches", "--fused-decodes", "--wgmma-products",
        "--early-launches --fused-decodes --wgmma-attention --wgmma-products"}) {
    const std::string out = folder.path() + "/bench.json";
    const CommandResult bench = run_program(
        metronome_program(), "bench '" + model + "' --repeats 1 --json '" + out + "' " + options,
        "XDG_CACHE_HOME='" + folder.path() + "'");
    INFO(bench.out << bench.err);
    CHECK(bench.exit_code == 0);
    const auto file = Json::parse(read_text_file(out));
    CHECK(file["early_launches"] == contains(options, "early"));
    CHECK(file["fused_decodes"] == contains(options, "fused"));
    CHECK(file["wgmma_attention"] == contains(options, "wgmma-attention"));
    CHECK(file["wgmma_products"] == contains(options, "wgmma-products"));
  }
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
