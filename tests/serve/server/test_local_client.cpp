// SPDX-License-Identifier: Apache-2.0
// A client in the process of the engine, against a simulated engine.
#include <stdexcept>
#include <string>
#include <vector>

#include "serve/server/engine_thread.h"
#include "serve/server/local_client.h"
#include "tests/catch.h"
#include "tests/serve/server/serve_lab.h"

namespace metronome::testing::TEST_FILE {
namespace {

Json question(const std::string& text) {
  Json message = Json::object();
  message["role"] = "user";
  message["content"] = text;
  Json body = Json::object();
  body["messages"] = Json::array();
  body["messages"].push_back(message);
  return body;
}

// A simulated engine at a speed, and its client.
struct Lab {
  explicit Lab(double speed) : clock(speed) {}

  Simulation simulation = served_simulation(
      "engine: {max_num_seqs: 4, max_model_len: 256}\nkv_cache: {num_blocks: 100}\n");
  const ServedModel model = byte_model();
  ServeClock clock;
  const PlausibleText text{*model.tokenizer};
  LiveEngine engine{simulation, clock, text, 16, [this] { client.on_events(); }};
  LocalClient client{model, engine};
  EngineThread thread{engine, clock, {}, [this](const std::string& error) { client.fail(error); }};
};

TEST_CASE("a client returns an answer and forgets it", "[serve]") {
  Lab lab(1000);
  LocalClient& client = lab.client;

  const std::uint64_t first = client.ask(question("one"));
  const std::uint64_t second = client.ask(question("two"));
  std::string shown;
  const LocalAnswer answer =
      client.finish(second, [&](std::uint64_t number, std::string_view piece) {
        if (number == second) shown += piece;
      });
  CHECK(answer.has_ended);
  CHECK(answer.reason == EndReason::Stop);
  CHECK(answer.text == shown);
  CHECK(answer.num_prompt_tokens == 20);  // "user: two", a line break and "assistant:"
  CHECK_THROWS_AS(client.answer(second), std::out_of_range);
  // The other one is still there.
  CHECK(client.answer(first).num_prompt_tokens == 20);
  CHECK(client.finish(first, {}).has_ended);
  CHECK_THROWS_AS(client.answer(first), std::out_of_range);
}

TEST_CASE("an answer ends before its stop token", "[serve]") {
  Lab lab(1000);
  LocalClient& client = lab.client;

  Json stopped = question("one");
  stopped["stop_token_ids"] = Json::array();
  stopped["stop_token_ids"].push_back('e');
  stopped["ignore_eos"] = true;
  const LocalAnswer answer = client.finish(client.ask(stopped), {});
  CHECK(answer.reason == EndReason::Stop);
  CHECK(answer.text.find('e') == std::string::npos);
  CHECK(answer.text.size() + 1 == answer.token_times.size());
}

TEST_CASE("events of a forgotten answer are passed over", "[serve]") {
  Lab lab(1);
  LocalClient& client = lab.client;

  // A stop string ends an answer before the engine knows; its last events come later.
  Json stopped = question("one");
  stopped["stop"] = Json::array();
  for (const char* vowel : {"a", "e", "i", "o"}) stopped["stop"].push_back(vowel);
  stopped["ignore_eos"] = true;
  stopped["max_tokens"] = 200;
  const std::uint64_t first = client.ask(stopped);
  const std::uint64_t second = client.ask(question("two"));
  const LocalAnswer answer = client.finish(first, {});
  CHECK(answer.reason == EndReason::Stop);
  CHECK(answer.token_times.size() < 200);
  CHECK(client.finish(second, {}).has_ended);
  CHECK(client.finish(client.ask(question("three")), {}).has_ended);
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
