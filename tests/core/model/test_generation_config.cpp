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
