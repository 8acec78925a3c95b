// SPDX-License-Identifier: Apache-2.0
// The end-of-text tokens of a model folder.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/model/generation_config.h"
#include "core/model/model_catalogue.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/places.h"
#include "tests/scratch_folder.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

TEST_CASE("a generation config names the tokens that end an answer", "[model]") {
  ModelConfig model;
  model.eos_token_ids = {2};
  const auto apply = [&model](const char* text) {
    apply_generation_config_text(text, "generation_config.json", model);
    return model.eos_token_ids;
  };
  const auto refusal = [&](const char* text) {
    return error_of<ConfigError>([&] { apply(text); });
  };
  CHECK(apply(R"({"temperature": 0.6})") == std::vector<std::int32_t>{2});
  CHECK(apply(R"({"eos_token_id": null})") == std::vector<std::int32_t>{2});
  CHECK(apply(R"({"eos_token_id": []})") == std::vector<std::int32_t>{2});
  CHECK(apply(R"({"eos_token_id": 7})") == std::vector<std::int32_t>{7});
  CHECK(apply(R"({"eos_token_id": [128001, 128008]})") ==
        std::vector<std::int32_t>{128001, 128008});
  CHECK(contains(refusal(R"({"eos_token_id": -1})"), "eos_token_id: must be a token id or a list"));
  CHECK(contains(refusal(R"({"eos_token_id": ["a"]})"), "; allowed: 0 to 2^31 - 1"));
  CHECK(contains(refusal("[]"), "is not an object"));
  CHECK(contains(refusal("{"), "generation_config.json: is not JSON"));
}

TEST_CASE("a folder's generation config goes before its config", "[model]") {
  const ScratchFolder folder;
  std::filesystem::copy(std::string(source_dir()) + "/tests/fixtures/models/llama-mha/config.json",
                        folder.path() + "/config.json");
  const auto ids = [&] { return find_model(folder.path(), {}).eos_token_ids; };
  const std::vector<std::int32_t> of_config = ids();
  folder.write("generation_config.json", R"({"eos_token_id": [5, 6]})");
  CHECK(of_config != ids());
  CHECK(ids() == std::vector<std::int32_t>{5, 6});
  CHECK(find_model(folder.path() + "/config.json", {}).eos_token_ids == ids());
  folder.write("generation_config.json", "[");
  CHECK(
      contains(error_of<ConfigError>(ids), folder.path() + "/generation_config.json: is not JSON"));
}

TEST_CASE("a generation config has sampling defaults", "[model]") {
  const auto read = [](const char* text) {
    return parse_sampling_defaults(text, "generation_config.json");
  };
  const SamplingDefaults defaults =
      read(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05,
               "repetition_penalty": 1.05, "max_new_tokens": 2048})");
  CHECK(defaults.text() ==
        "temperature 0.6, top_k 20, top_p 0.95, min_p 0.05, repetition_penalty 1.05, "
        "max_new_tokens 2048");
  CHECK(read(R"({"temperature": null, "eos_token_id": 2})").text().empty());
  CHECK(read(R"({"top_k": -1})").top_k == 0);
  CHECK(read(R"({"top_k": 50.0})").top_k == 50);
  const auto refusal = [&](const char* text) { return error_of<ConfigError>([&] { read(text); }); };
  CHECK(refusal(R"({"temperature": -1})") ==
        "generation_config.json: temperature: is -1; allowed: numbers from 0 to 100");
  CHECK(
      refusal(R"({"temperature": "0.6"})").ends_with("is \"0.6\"; allowed: numbers from 0 to 100"));
  CHECK(refusal(R"({"top_p": 0})").ends_with("top_p: is 0; allowed: numbers above 0, to 1"));
  CHECK(refusal(R"({"min_p": 1.5})").ends_with("min_p: is 1.5; allowed: numbers from 0 to 1"));
  CHECK(refusal(R"({"repetition_penalty": 0})").ends_with("allowed: numbers above 0"));
  CHECK(refusal(R"({"top_k": 2.5})").ends_with("allowed: integers from 1; 0 and -1: all tokens"));
  CHECK(refusal(R"({"top_k": -2})").starts_with("generation_config.json: top_k: is -2; "));
  CHECK(refusal(R"({"max_new_tokens": 0})").ends_with("allowed: integers from 1"));
  const ScratchFolder folder;
  CHECK(read_sampling_defaults(folder.path()).text().empty());
  folder.write("generation_config.json", R"({"min_p": 0.1})");
  CHECK(read_sampling_defaults(folder.path()).min_p == 0.1);
}

}  // namespace TEST_FILE
