// SPDX-License-Identifier: Apache-2.0
// Where the model of a backend that computes comes from.
#include <string>

#include "core/scenario/scenario.h"
#include "models/weights/model_source.h"
#include "tests/catch.h"
#include "tests/error_of.h"

namespace metronome::TEST_FILE {
namespace {

using testing::error_of;

TEST_CASE("backends that compute refuse other formats than the model's", "[core][scenario]") {
  const auto answer = [](const std::string& keys) {
    const std::string text = "model: tiny-llama\n" + keys +
                             "workload: {num_requests: 1, arrivals: {process: burst},\n"
                             "  prompt_tokens: {distribution: fixed, value: 8},\n"
                             "  output_tokens: {distribution: fixed, value: 8}}\n";
    return error_of([&] { find_model_source(parse_scenario(text, "s.yaml", {}).variants[0]); });
  };
  CHECK(answer("quantization: auto\n").empty());
  CHECK(answer("quantization: none\nkv_cache: {dtype: auto}\n").empty());
  CHECK(answer("quantization: fp8\n") ==
        "s.yaml:2: quantization: only the simulator quantises weights; allowed: auto, none");
  CHECK(answer("kv_cache: {dtype: fp8}\n") ==
        "s.yaml:2: kv_cache.dtype: only the simulator chooses the type of the KV cache; allowed: "
        "auto");
}

}  // namespace
}  // namespace metronome::TEST_FILE
