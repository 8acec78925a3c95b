// SPDX-License-Identifier: Apache-2.0
#include "serve/server/routes.h"
#include "tests/catch.h"
#include "tests/error_of.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

TEST_CASE("a path and a method have one endpoint", "[serve]") {
  CHECK(route_of("POST", "/v1/completions").endpoint == Endpoint::Completions);
  CHECK(route_of("POST", "/v1/chat/completions?a=/b").endpoint == Endpoint::ChatCompletions);
  CHECK(route_of("GET", "/ping").endpoint == Endpoint::Health);
  CHECK(route_of("HEAD", "/metrics").endpoint == Endpoint::Metrics);
  CHECK(route_of("GET", "/v1/models").model.empty());
  CHECK(route_of("GET", "/v1/models/a/b?x=1").endpoint == Endpoint::Models);
  CHECK(route_of("GET", "/v1/models/a/b?x=1").model == "a/b");
}

TEST_CASE("what has no endpoint has its reply", "[serve]") {
  const auto reply = [](std::string_view method, std::string_view target) {
    const Route route = route_of(method, target);
    CHECK_FALSE(route.endpoint);
    return route.reply;
  };
  for (const char* path : {"", "*", "/health/", "/v1", "/v1/model", "/V1/models", "//"}) {
    CHECK(reply("GET", path).status == 404);
  }
  CHECK(contains(reply("PUT", "/x?y").body, "PUT /x is not served here"));
  CHECK(reply("HEAD", "/generate").status == 405);
  CHECK(reply("HEAD", "/generate").extra_header == "Allow: POST");
  CHECK(reply("POST", "/v1/models/a").extra_header == "Allow: GET, HEAD");
  CHECK(reply("get", "/health").status == 405);
  CHECK(reply("OPTIONS", "*").status == 204);
  CHECK(reply("OPTIONS", "/health").status == 204);
  CHECK(reply("OPTIONS", "/nowhere").status == 404);
}

TEST_CASE("the page of endpoints escapes the model's name", "[serve]") {
  CHECK(contains(index_reply("<b>\n").body, "&lt;b&gt;"));
}

}  // namespace TEST_FILE
