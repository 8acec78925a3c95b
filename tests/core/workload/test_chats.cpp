// SPDX-License-Identifier: Apache-2.0
// ShareGPT's conversations, selected as vLLM's benchmark selects them.
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/workload/python_random.h"
#include "core/workload/workload_trace.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/core/workload/workload_helpers.h"

namespace metronome::testing::TEST_FILE {
namespace {

std::string fixture(const std::string& name) { return source_dir() + "/tests/fixtures/" + name; }

TraceConfig config_of(const std::string& file) {
  TraceConfig config;
  config.file = file;
  config.tokenizer = fixture("tokenizers/llama3.json");
  return config;
}

std::string error_with(const std::string& text) {
  const ScratchFolder folder;
  const TraceConfig config = config_of(folder.write("chats.json", text));
  const std::string error = error_of([&] { read_trace(config, 0); });
  return error.substr(error.find("chats.json"));
}

TEST_CASE("Python's random numbers, shuffles and choices", "[core][workload]") {
  // python3 -c 'import random; random.seed(S); x = list(range(8)); random.shuffle(x); print(x,
  //             [random._inst._randbelow(n) % 10**6 for n in (1, 7, 1000, 2**31 + 1)])'
  const auto numbers = [](std::uint64_t seed) {
    PythonRandom random(seed);
    std::vector<int> items = {0, 1, 2, 3, 4, 5, 6, 7};
    random.shuffle(items);
    for (const std::uint32_t count : {1u, 7u, 1000u, (1u << 31) + 1}) {
      items.push_back(static_cast<int>(random.below(count) % 1'000'000));
    }
    return items;
  };
  CHECK(numbers(0uLL) == std::vector<int>{4, 1, 5, 2, 0, 3, 7, 6, 0, 6, 849, 718217});
  CHECK(numbers(7uLL) == std::vector<int>{6, 7, 2, 4, 0, 3, 1, 5, 0, 4, 59, 121676});
  CHECK(numbers(8589934597uLL) == std::vector<int>{0, 3, 6, 2, 7, 1, 5, 4, 0, 2, 242, 870767});
  CHECK(numbers(9223372036854775817uLL) ==
        std::vector<int>{4, 5, 2, 0, 7, 6, 3, 1, 0, 1, 362, 960307});
}

TEST_CASE("a conversation with an empty answer keeps to the limits of prompts",
          "[core][workload]") {
  const ScratchFolder folder;
  const auto num_requests = [&](const std::string& text) {
    TraceConfig config = config_of(folder.write("chats.json", text));
    config.output_len = 1;
    return read_trace(config, 0).requests.size();
  };
  const std::string whole =
      R"({"conversations": [{"value": "one two three four five"}, {"value": ""}]})";
  const std::string shorter = R"({"conversations": [{"value": "a"}, {"value": ""}]})";
  CHECK(num_requests("[" + whole + ", " + shorter + "]") == 1);
  // A set of prompts alone has the lengths that it has.
  CHECK(num_requests(R"([{"prompt": "a"}, {"prompt": "one two three four five"}])") == 2);
}

// tests/fixtures/workloads/README.md says where the expected values come from.
TEST_CASE("conversations are those that vLLM's benchmark selects", "[core][workload]") {
  const Json cases = Json::parse(read_text_file(fixture("workloads/chats.golden.json")));
  REQUIRE(cases.size() == 6);
  for (const Json& expected : cases) {
    TraceConfig config = config_of(fixture("workloads/chats.json"));
    config.limit = expected.at("num_prompts").get<std::int64_t>();
    if (!expected.at("output_len").is_null()) {
      config.output_len = expected.at("output_len").get<std::int64_t>();
    }
    const auto seed = expected.at("seed").get<std::uint64_t>();
    INFO("seed " << seed << ", " << config.limit << " prompts");
    const Workload workload = read_trace(config, seed);
    Json lengths = Json::array();
    for (const RequestSpec& request : workload.requests) {
      lengths.push_back(Json::array({request.num_prompt_tokens, request.max_output_tokens}));
    }
    CHECK(lengths == expected.at("requests"));
    Json ids = Json::array();
    for (const TokenId id : workload.prompt_ids(RequestId{0})) ids.push_back(value(id));
    CHECK(ids == expected.at("first_ids"));
    CHECK_FALSE(workload.has_arrivals);
  }
}

TEST_CASE("all conversations that fit, each once, without a limit", "[core][workload]") {
  const Workload all = read_trace(config_of(fixture("workloads/chats.json")), 5);
  CHECK(all.requests.size() > 20);
  CHECK(all.requests.size() < 60);
  CHECK(all.token_begin.size() == all.requests.size() + 1);
  CHECK(all.token_ids.size() == static_cast<std::size_t>(all.total_prompt_tokens()));
}

TEST_CASE("a scenario reads conversations at arrivals of its own", "[core][workload]") {
  const std::string trace = "trace: {file: " + fixture("workloads/chats.json") +
                            ", limit: 6, tokenizer: " + fixture("tokenizers/llama3.json") + "}";
  const Workload workload = make("{" + trace + ", arrivals: {rate: 2}}");
  CHECK(workload.requests.size() == 6);
  CHECK(workload.requests.back().arrival == 3 * kNsPerSecond);
  const std::string error = error_of([&] { make("{" + trace + "}"); });
  CHECK(error.ends_with("chats.json' has no arrival times; allowed: a process, such as {rate: 4}"));
}

TEST_CASE("characters measure conversations without a tokenizer", "[core][workload]") {
  const ScratchFolder folder;
  const std::string start = "\u00e4 word, and more.";  // 17 characters
  const auto chat = [&start](const std::string& rest) {
    return R"({"conversations": [{"value": ")" + start + rest + R"("}, {"value": ")" +
           std::string(41, 'x') + R"("}]})";
  };
  TraceConfig config =
      config_of(folder.write("chats.json", "[" + chat("abc") + ", " + chat("defghij") + "]"));
  config.tokenizer.clear();
  config.characters_per_token = 4;
  const Workload workload = read_trace(config, 0);
  REQUIRE(workload.requests.size() == 2);
  const std::size_t first = workload.requests[0].num_prompt_tokens == 5 ? 0 : 1;
  CHECK(workload.requests[first].num_prompt_tokens == 5);
  CHECK(workload.requests[1 - first].num_prompt_tokens == 6);
  CHECK(workload.requests[0].max_output_tokens == 11);
  // Equal beginnings are equal tokens, of which a cache knows.
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(workload.token_ids[workload.token_begin[0] + i] ==
          workload.token_ids[workload.token_begin[1] + i]);
  }
  config.characters_per_token = 2.5;
  CHECK(read_trace(config, 0).requests[0].max_output_tokens == 17);
  config.tokenizer = fixture("tokenizers/llama3.json");
  CHECK(error_of([&] { read_trace(config, 0); }).find("contradicts workload.trace.tokenizer") !=
        std::string::npos);
}

TEST_CASE("conversations that cannot be read", "[core][workload]") {
  CHECK(error_with("[1, 2]").find("conversations: there are none; allowed: objects with") !=
        std::string::npos);
  CHECK(error_with(R"([{"conversations": [{"value": "a"}, {"value": "b"}]}])")
            .ends_with("2048 together; allowed: at least one"));
  CHECK(error_with(R"([{"conversations": [{"value": "a"}, {"from": "gpt"}]}])") ==
        "chats.json: conversation 0: turn 2 has no value; allowed: {\"value\": TEXT} or "
        "{\"content\": TEXT}");
  CHECK(error_with(R"([{}, {"conversations": [{"value": 3}, {"value": "b"}]}])") ==
        "chats.json: conversation 1: the value of turn 1 is not a text; allowed: a string");
  CHECK(error_with(R"([{"conversations": [{"value": "a", "value": "b"}, {"value": "c"}]}])") ==
        "chats.json: conversation 0: the value of turn 1 appears twice; allowed: once");
  CHECK(error_with(R"([{"conversations": [], "conversations": []}])") ==
        "chats.json: conversation 0: conversations appears twice; allowed: once");
  CHECK(error_with("[{").starts_with("chats.json: conversations: not JSON: "));

  const ScratchFolder folder;
  TraceConfig config = config_of(folder.write("chats.json", "[]"));
  config.tokenizer.clear();
  CHECK(error_of([&] { read_trace(config, 0); }) ==
        "workload.trace.tokenizer: missing; the lengths of conversations need the path of a "
        "tokenizer.json, or characters_per_token for an estimate");
  config = config_of(folder.write("lines.jsonl", "{\"input_toks\": 1}\n"));
  CHECK(error_of([&] {
          read_trace(config, 0);
        }).ends_with("lines.jsonl'; it belongs to a JSON array of sharegpt conversations"));
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
