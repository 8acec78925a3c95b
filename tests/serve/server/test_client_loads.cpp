// SPDX-License-Identifier: Apache-2.0
#include "serve/server/client_loads.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;
namespace {

constexpr ClientLoads::Limits kLimits{.max_answers = 5, .max_tokens = 50, .max_unsent_bytes = 100};

}  // namespace

TEST_CASE("a client waits once its answers, or their prompts, are too many", "[serve]") {
  ClientLoads loads(kLimits);
  CHECK(loads.refusal("a", {.num_answers = 99, .num_tokens = 99}).empty());  // its only request
  loads.add("a", {.num_answers = 3, .num_tokens = 30});
  CHECK(loads.refusal("a", {.num_answers = 2, .num_tokens = 20}).empty());
  CHECK(loads.refusal("a", {.num_answers = 3, .num_tokens = 1}) ==
        "this client waits for 3 answers; allowed: 5");
  CHECK(loads.refusal("a", {.num_answers = 1, .num_tokens = 21}) ==
        "this client waits for 30 tokens of prompts to be answered; allowed: 50");
  CHECK(loads.refusal("b", {.num_answers = 3, .num_tokens = 99}).empty());
  loads.add("a", {.num_answers = 1, .num_tokens = 20});
  loads.remove("a", {.num_answers = 3, .num_tokens = 30});
  CHECK(loads.refusal("a", {.num_answers = 4, .num_tokens = 30}).empty());
  loads.remove("a", {.num_answers = 1, .num_tokens = 20});
  CHECK(loads.refusal("a", {.num_answers = 99, .num_tokens = 99}).empty());
}

TEST_CASE("a client has half of the unsent bytes, and all clients have all", "[serve]") {
  ClientLoads loads(kLimits);
  for (const char* client : {"a", "b", "c"}) loads.add(client, {.num_answers = 1});
  loads.count_unsent("a", 0, 50);
  CHECK_FALSE(loads.excess());
  loads.count_unsent("a", 50, 51);
  REQUIRE(loads.excess());
  CHECK(loads.excess()->client == "a");
  CHECK(loads.excess()->status == 429);
  CHECK(loads.excess()->message ==
        "tokens of this client's answers that are not sent yet hold more than 50 bytes; this is "
        "its largest answer");
  loads.count_unsent("a", 51, 40);
  loads.count_unsent("b", 0, 45);
  loads.count_unsent("c", 0, 15);
  CHECK_FALSE(loads.excess());
  loads.count_unsent("c", 15, 16);
  REQUIRE(loads.excess());
  CHECK(loads.excess()->client == "b");
  CHECK(loads.excess()->status == 503);
}

}  // namespace TEST_FILE
