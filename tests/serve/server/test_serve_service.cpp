// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <set>

#include "core/base/json.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/serve/server/service_desk.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;
namespace {

std::string text_of(const std::vector<std::string>& events) {
  std::string text;
  for (const std::string& event : events) {
    if (event == "[DONE]") continue;
    const Json choices = Json::parse(event)["choices"];
    if (!choices.empty()) text += choices[0]["text"].get<std::string>();
  }
  return text;
}

}  // namespace

TEST_CASE("endpoints that answer at once", "[serve]") {
  Desk desk;
  const auto get = [&](const std::string& target) { return desk.ask("GET", target)->last; };
  CHECK(get("/health").status == 200);
  CHECK(Json::parse(get("/version").body) == Json::parse(R"({"version": "9.9"})"));
  const Json models = Json::parse(get("/v1/models?x=1").body);
  CHECK(models["object"] == "list");
  CHECK(models["data"][0]["id"] == "tiny");
  CHECK(models["data"][0]["root"] == "llama-3.2-1b");
  CHECK(models["data"][0]["max_model_len"] == 256);
  CHECK(Json::parse(get("/v1/models/tiny").body)["id"] == "tiny");
  CHECK(get("/v1/models/other").status == 404);
  CHECK(get("/nowhere").status == 404);
  const Reply page = get("/");
  CHECK(page.status == 200);
  CHECK(page.content_type == "text/html; charset=utf-8");
  CHECK(contains(page.body, R"(GET <a href="v1/models">/v1/models</a>)"));
  CHECK(contains(page.body, R"(GET <a href="metrics">/metrics</a>)"));
  CHECK(contains(page.body, "POST /v1/chat/completions"));
  CHECK(desk.ask("GET", "/generate")->last.status == 405);
  CHECK(desk.ask("GET", "/generate")->last.extra_header == "Allow: POST");
  CHECK(desk.ask("DELETE", "/health")->last.extra_header == "Allow: GET, HEAD");
  CHECK(desk.ask("HEAD", "/health")->last.status == 200);
  CHECK(Json::parse(desk.ask("POST", "/tokenize", R"({"prompt": "ab"})")->last.body) ==
        Json::parse(R"({"count": 2, "max_model_len": 256, "tokens": [97, 98]})"));
  CHECK(Json::parse(desk.ask("POST", "/detokenize", R"({"tokens": [97, 98]})")->last.body) ==
        Json::parse(R"({"prompt": "ab"})"));
  CHECK(desk.ask("POST", "/detokenize", "{")->last.status == 400);
  CHECK(desk.ask("POST", "/reset_prefix_cache")->last.status == 200);
}

TEST_CASE("a model is found by the encoded name of a path", "[serve]") {
  Desk desk({.model_name = "meta/tiny 1b%é"});
  const auto status = [&](const std::string& name) {
    return desk.ask("GET", "/v1/models/" + name)->last.status;
  };
  CHECK(status("meta%2Ftiny%201b%25%C3%A9") == 200);
  CHECK(status("meta/tiny%201b%25%c3%a9?x=1") == 200);
  CHECK(status("llama-3.2-1b") == 200);  // its root
  for (const std::string name : {"meta%2Ftiny", "%", "%2", "%zz", "meta%2Ftiny%201b%", "%00"}) {
    INFO(name);
    CHECK(status(name) == 404);
  }
}

TEST_CASE("a stream and a body say the same", "[serve]") {
  Desk desk;
  const auto body = desk.complete(R"("seed": 5, "max_tokens": 40, "ignore_eos": true)");
  const auto stream =
      desk.complete(R"("seed": 5, "max_tokens": 40, "ignore_eos": true, "stream": true)");
  REQUIRE(desk.wait_idle());
  CHECK(body->num_replies == 1);
  CHECK(stream->num_streams == 1);
  CHECK(stream->num_ends == 1);
  CHECK(stream->num_replies == 0);
  const std::vector<std::string> events = events_of(stream->stream);
  CHECK(events.size() == 41);
  CHECK(events.back() == "[DONE]");
  const std::string text = Json::parse(body->last.body)["choices"][0]["text"].get<std::string>();
  CHECK(text.size() == 40);
  CHECK(text_of(events) == text);
}

TEST_CASE("servers with other salts give other ids and the same texts", "[serve]") {
  std::set<std::string> ids;
  std::set<std::string> texts;
  for (const std::uint64_t salt : {1u, 2u}) {
    Desk desk({.id_salt = salt});
    for (int i = 0; i < 3; ++i) {
      const auto client = desk.complete(R"("max_tokens": 30, "ignore_eos": true)");
      REQUIRE(desk.wait_idle());
      const Json body = Json::parse(client->last.body);
      ids.insert(body["id"].get<std::string>());
      texts.insert(std::to_string(i) + body["choices"][0]["text"].get<std::string>());
    }
  }
  CHECK(ids.size() == 6);
  CHECK(texts.size() == 3);
}

TEST_CASE("a stream waits for its reader, one event of each choice in turn", "[serve]") {
  Desk desk;
  const auto slow =
      desk.complete(R"("seed": 5, "max_tokens": 40, "ignore_eos": true, "stream": true, "n": 2)");
  const auto fast =
      desk.complete(R"("seed": 5, "max_tokens": 40, "ignore_eos": true, "stream": true, "n": 2)");
  slow->num_free_bytes = 0;
  REQUIRE(desk.wait_until([&] { return fast->num_ends == 1; }));
  CHECK(slow->has_more);
  CHECK(slow->num_ends == 0);
  CHECK_FALSE(desk.service.is_idle());
  const std::size_t num_before = events_of(slow->stream).size();
  CHECK(num_before < 80);
  slow->num_free_bytes = 1;
  desk.service.resume(slow.get());
  CHECK(events_of(slow->stream).size() <= num_before + 2);
  for (int i = 0; i < 100 && slow->num_ends == 0; ++i) desk.service.resume(slow.get());
  CHECK(slow->num_ends == 1);
  CHECK(desk.service.is_idle());
  std::map<int, std::string> texts[2];
  for (const int k : {0, 1}) {
    for (const std::string& event : events_of(k == 0 ? slow->stream : fast->stream)) {
      if (event == "[DONE]") continue;
      const Json choice = Json::parse(event)["choices"][0];
      texts[k][choice["index"].get<int>()] += choice["text"].get<std::string>();
    }
  }
  CHECK(texts[0].size() == 2);
  CHECK(texts[0] == texts[1]);
  desk.service.resume(slow.get());  // nothing
}

TEST_CASE("no answer ends before its end is recorded", "[serve]") {
  Desk desk({.is_recorded = true});
  const std::string fields = R"("seed": 5, "max_tokens": 20, "ignore_eos": true)";
  const auto body = desk.complete(fields);
  const auto stream = desk.complete(fields + R"(, "stream": true)");
  const auto stopped = desk.complete(fields + R"(, "stream": true, "stop": ["a", "e", "i"])");
  const auto left = desk.complete(fields + R"(, "stream": true)");
  // All tokens have come, and the engine is idle.
  REQUIRE(desk.wait_until([&] {
    return desk.metric("vllm:generation_tokens_total") > 60 &&
           desk.metric("vllm:num_requests_running") == 0;
  }));
  CHECK(body->num_replies == 0);
  CHECK(stream->num_ends == 0);
  CHECK(stopped->num_ends == 0);
  CHECK(stream->stream.find("length") == std::string::npos);
  CHECK(stopped->stream.find("\"stop\"") == std::string::npos);
  desk.service.leave(left.get());
  desk.num_recorded = 4;
  desk.service.handle_events();
  CHECK(body->num_replies == 1);
  CHECK(events_of(stream->stream).size() == 21);  // as without a record
  CHECK(events_of(stopped->stream).back() == "[DONE]");
  CHECK(left->num_ends == 0);
  CHECK(desk.service.is_idle());
}

TEST_CASE("many requests at once each get their own answer", "[serve]") {
  Desk desk({.max_waiting = 1000});
  std::vector<std::shared_ptr<FakeClient>> clients;
  const auto fields = [](int i) {
    return R"("seed": )" + std::to_string(i) + R"(, "stream": true, "n": )" +
           std::to_string(1 + i % 3) + R"(, "max_tokens": 60)";
  };
  for (int i = 0; i < 60; ++i) clients.push_back(desk.complete(fields(i)));
  REQUIRE(desk.wait_idle());
  for (int i = 0; i < 60; ++i) {
    INFO("request " << i);
    const auto alone = desk.complete(fields(i));
    REQUIRE(desk.wait_idle());
    // Streams of several choices may interleave otherwise: compare choice by choice.
    std::map<int, std::string> texts[2];
    for (const int k : {0, 1}) {
      for (const std::string& event :
           events_of(k == 0 ? clients[std::size_t(i)]->stream : alone->stream)) {
        if (event == "[DONE]") continue;
        const Json choice = Json::parse(event)["choices"][0];
        texts[k][choice["index"].get<int>()] += choice["text"].get<std::string>();
      }
    }
    CHECK(texts[0].size() == std::size_t(1 + i % 3));
    CHECK(texts[0] == texts[1]);
  }
}

TEST_CASE("a client that leaves frees what its request held", "[serve]") {
  Desk desk({.speed = kSlow});
  const auto slow = desk.complete(R"("max_tokens": 200, "ignore_eos": true, "stream": true)");
  REQUIRE(desk.wait_until([&] { return slow->stream.size() > 400; }));
  CHECK(desk.metric("vllm:num_requests_running") == 1);
  desk.service.leave(slow.get());
  CHECK(desk.service.is_idle());
  const std::size_t size = slow->stream.size();
  CHECK(desk.wait_until([&] { return desk.metric("vllm:kv_cache_usage_perc") == 0; }));
  CHECK(desk.metric("vllm:num_requests_running") == 0);
  CHECK(desk.metric("metronome:clients_left_total") == 1);
  CHECK(slow->stream.size() == size);
  desk.service.leave(slow.get());  // again: nothing
  CHECK(desk.metric("metronome:clients_left_total") == 1);
  const auto next = desk.complete(R"("max_tokens": 3)");
  CHECK(desk.wait_idle());
  CHECK(next->last.status == 200);
}

TEST_CASE("requests are aborted by their name, and the load is told", "[serve]") {
  Desk desk({.speed = kSlow});
  const auto generate = [&](const std::string& rid) {
    return desk.ask("POST", "/generate",
                    R"({"text": "Hello", "rid": ")" + rid +
                        R"(", "sampling_params": {"max_new_tokens": 50, "ignore_eos": true}})");
  };
  const auto named = generate("one-a");
  const auto other = generate("two");
  CHECK(desk.wait_until([&] {
    const Json load = Json::parse(desk.ask("GET", "/get_load")->last.body);
    return load[0]["num_reqs"] == 2 && load[0]["num_waiting_reqs"] == 0;
  }));
  const Json loads = Json::parse(desk.ask("GET", "/v1/loads")->last.body);
  CHECK(loads["loads"][0]["num_running_reqs"] == 2);
  CHECK(loads["loads"][0]["max_total_num_tokens"] == 64 * 16);
  CHECK(desk.ask("POST", "/abort_request", R"({"rid": ""})")->last.status == 200);
  CHECK(desk.ask("POST", "/abort_request", R"({"rid": 3})")->last.status == 400);
  CHECK(desk.ask("POST", "/abort_request", R"({"rid": "one"})")->last.status == 200);
  CHECK(desk.wait_until([&] { return !named->last.body.empty(); }));
  CHECK(Json::parse(named->last.body)["meta_info"]["finish_reason"]["type"] == "abort");
  CHECK(other->last.body.empty());
  CHECK(desk.ask("POST", "/abort_request", R"({"abort_all": true})")->last.status == 200);
  CHECK(desk.wait_idle());
  CHECK(Json::parse(other->last.body)["meta_info"]["finish_reason"]["type"] == "abort");
}

TEST_CASE("a client may leave while it is written to", "[serve]") {
  Desk desk({.speed = kSlow});
  const auto client = desk.complete(R"("max_tokens": 240, "ignore_eos": true, "stream": true)");
  client->on_flush = [&] {
    if (client->stream.size() > 1000) desk.service.leave(client.get());
  };
  CHECK(desk.wait_idle());
  CHECK(client->num_ends == 0);
  CHECK(desk.wait_until([&] { return desk.metric("vllm:num_requests_running") == 0; }));
}

TEST_CASE("what cannot be queued is refused with 503", "[serve]") {
  Desk desk({.max_waiting = 2, .speed = 1e-6});
  std::vector<std::shared_ptr<FakeClient>> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(desk.complete(R"("max_tokens": 5)"));
  int num_refused = 0;
  for (const auto& client : clients) {
    if (client->num_replies == 0) continue;
    CHECK(client->last.status == 503);
    CHECK(client->last.extra_header == "Retry-After: 1");
    ++num_refused;
  }
  CHECK(num_refused >= 14);  // four run at most, two wait
  CHECK(desk.metric("metronome:refused_total") == num_refused);
}

TEST_CASE("a draining server ends what runs and takes nothing new", "[serve]") {
  Desk desk;
  const auto running = desk.complete(R"("max_tokens": 50, "ignore_eos": true)");
  desk.service.drain();
  const auto late = desk.complete(R"("max_tokens": 5)");
  CHECK(late->last.status == 503);
  REQUIRE(desk.wait_idle());
  CHECK(running->last.status == 200);
}

TEST_CASE("when the engine fails, everybody is told", "[serve]") {
  Desk desk({.speed = kSlow});
  const auto stream = desk.complete(R"("max_tokens": 200, "ignore_eos": true, "stream": true)");
  const auto body = desk.complete(R"("max_tokens": 200, "ignore_eos": true)");
  REQUIRE(desk.wait_until([&] { return stream->stream.size() > 400; }));
  desk.service.fail("the device is gone");
  const std::vector<std::string> events = events_of(stream->stream);
  CHECK(events.back() == "[DONE]");
  CHECK(Json::parse(events[events.size() - 2])["error"]["message"] == "the device is gone");
  CHECK(stream->num_ends == 1);
  CHECK(body->last.status == 500);
  CHECK(desk.ask("GET", "/health")->last.status == 503);
  CHECK(desk.complete(R"("max_tokens": 2)")->last.status == 503);
}

TEST_CASE("long bodies are read aside", "[serve]") {
  Desk desk;
  const std::string ids = [] {
    std::string text = "[1";
    for (int i = 0; i < 5000; ++i) text += ", 2";
    return text + "]";
  }();
  const auto client = desk.ask("POST", "/v1/completions", R"({"prompt": )" + ids + "}");
  CHECK(client->num_replies == 0);
  CHECK_FALSE(desk.service.is_idle());
  REQUIRE(desk.background.size() == 1);
  desk.background[0].run();
  REQUIRE(desk.foreground.size() == 1);
  desk.foreground[0]();
  CHECK(client->last.status == 400);  // longer than the context
  CHECK(desk.service.is_idle());
  // One whose client leaves meanwhile is never begun.
  const auto gone = desk.ask("POST", "/v1/completions",
                             R"({"prompt": "a", "user": ")" + std::string(9000, 'x') + R"("})");
  desk.service.leave(gone.get());
  desk.background[1].run();
  CHECK(desk.foreground.size() == 1);  // nothing was read
  CHECK(desk.service.is_idle());
  CHECK(gone->num_replies == 0);
  const auto tokens = desk.ask("POST", "/tokenize",
                               R"({"prompt": "abc", "user": ")" + std::string(9000, 'x') + R"("})");
  desk.background[2].run();
  desk.foreground[1]();
  CHECK(Json::parse(tokens->last.body)["count"] == 3);
  // Requests that read changing data are never handled there.
  const auto metrics = desk.ask("GET", "/metrics", std::string(9000, ' '));
  CHECK(metrics->last.status == 200);
  CHECK(desk.background.size() == 3);
}

TEST_CASE("the body of a client that leaves is forgotten before it is read", "[serve]") {
  Desk desk;
  const std::string body = R"({"prompt": ")" + std::string(1 << 20, 'x') + R"("})";
  std::vector<std::shared_ptr<FakeClient>> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(desk.ask("POST", "/v1/completions", body));
  REQUIRE(desk.background.size() == 3);
  CHECK(desk.background[0].client == "127.0.0.1");
  CHECK(desk.background[0].num_bytes == body.size());
  desk.service.leave(clients[0].get());
  for (const Work& work : desk.background) work.run();
  desk.service.leave(clients[2].get());  // while its result is on the way
  for (const Service::Task& task : desk.foreground) task();
  CHECK(clients[0]->num_replies == 0);
  CHECK(clients[1]->last.status == 400);
  CHECK(clients[2]->num_replies == 0);
  CHECK(desk.foreground.size() == 2);
  CHECK(desk.service.is_idle());
  CHECK(desk.metric("metronome:clients_left_total") == 2);
}

TEST_CASE("a client has so many answers at once, whatever others have", "[serve]") {
  Desk desk({.speed = kSlow, .max_client_requests = 5});
  const auto ask = [&](const std::string& from, int n) {
    auto client = std::make_shared<FakeClient>();
    client->from = from;
    desk.service.handle(
        "POST", "/v1/completions",
        R"({"prompt": "a", "max_tokens": 100, "ignore_eos": true, "n": )" + std::to_string(n) + "}",
        client);
    return client;
  };
  const auto first = ask("10.0.0.1", 3);
  const auto second = ask("10.0.0.1", 2);
  const auto third = ask("10.0.0.1", 1);
  CHECK(first->num_replies == 0);
  CHECK(second->num_replies == 0);
  CHECK(third->last.status == 429);
  CHECK(third->last.extra_header == "Retry-After: 1");
  CHECK(ask("10.0.0.2", 7)->num_replies == 0);  // alone it is accepted
  CHECK(ask("10.0.0.2", 1)->last.status == 429);
  desk.service.leave(second.get());
  CHECK(ask("10.0.0.1", 2)->num_replies == 0);
}

TEST_CASE("a client has so many prompt tokens at once, and one request may have more", "[serve]") {
  Desk desk({.speed = kSlow, .max_client_requests = 100, .max_client_tokens = 50});
  const auto ask = [&](const std::string& from, std::size_t num_tokens, int n = 1) {
    auto client = std::make_shared<FakeClient>();
    client->from = from;
    desk.service.handle("POST", "/v1/completions",
                        R"({"prompt": ")" + std::string(num_tokens, 'a') +
                            R"(", "max_tokens": 60, "ignore_eos": true, "n": )" +
                            std::to_string(n) + "}",
                        client);
    return client;
  };
  const auto first = ask("10.0.0.1", 30);
  CHECK(ask("10.0.0.1", 20, 3)->num_replies == 0);  // answers share their prompt
  const auto refused = ask("10.0.0.1", 1);
  CHECK(refused->last.status == 429);
  CHECK(contains(refused->last.body, "waits for 50 tokens of prompts to be answered; allowed: 50"));
  CHECK(ask("10.0.0.2", 90)->num_replies == 0);
  CHECK(ask("10.0.0.2", 1)->last.status == 429);
  desk.service.leave(first.get());
  CHECK(ask("10.0.0.1", 30)->num_replies == 0);
}

// Asks as a client of this address, for that many tokens.
std::shared_ptr<FakeClient> ask_for(Desk& desk, const std::string& from, int max_tokens,
                                    std::size_t num_free_bytes, bool is_stream = true) {
  auto client = std::make_shared<FakeClient>();
  client->from = from;
  client->num_free_bytes = num_free_bytes;
  desk.service.handle("POST", "/v1/completions",
                      R"({"prompt": "a", "ignore_eos": true, "max_tokens": )" +
                          std::to_string(max_tokens) + (is_stream ? R"(, "stream": true})" : "}"),
                      client);
  return client;
}

TEST_CASE("unsent tokens of a client have so many bytes, and its largest answer ends", "[serve]") {
  Desk desk({.max_unsent_bytes = 6400});
  const auto small = ask_for(desk, "10.0.0.1", 100, 0);
  const auto large = ask_for(desk, "10.0.0.1", 250, 0);
  const auto other = ask_for(desk, "10.0.0.2", 250, 0);
  const auto reader = ask_for(desk, "10.0.0.3", 250, SIZE_MAX);
  REQUIRE(desk.wait_until([&] { return large->num_ends == 1; }));
  CHECK(contains(large->stream, "not sent yet hold more than 3200 bytes"));
  CHECK(contains(large->stream, "429"));
  REQUIRE(desk.wait_until([&] { return reader->num_ends == 1; }));
  for (const auto& client : {small, other}) {
    CHECK(client->num_ends == 0);
    client->num_free_bytes = SIZE_MAX;
    REQUIRE(desk.wait_until([&] {
      desk.service.resume(client.get());
      return client->num_ends == 1;
    }));
  }
  for (const auto& client : {small, other, reader}) {
    CHECK(text_of(events_of(client->stream)).size() == (client == small ? 100U : 250U));
  }
  CHECK(desk.metric("metronome:answers_cut_total") == 1);
  CHECK(desk.metric("metronome:clients_cut_total") == 0);
  CHECK(desk.service.is_idle());
}

TEST_CASE("whole answers of several clients share the bytes of unsent tokens", "[serve]") {
  Desk desk({.is_recorded = true, .max_unsent_bytes = 6400});  // none ends by itself
  std::vector<std::shared_ptr<FakeClient>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(ask_for(desk, "10.0.0." + std::to_string(i), 250, 0, false));
  }
  const auto num_cut = [&] { return desk.metric("metronome:answers_cut_total"); };
  REQUIRE(desk.wait_until(
      [&] { return num_cut() == 2 && desk.metric("vllm:num_requests_running") == 0; }));
  desk.num_recorded = 4;
  REQUIRE(desk.wait_idle());
  CHECK(num_cut() == 2);
  for (const auto& client : clients) {
    REQUIRE(client->num_replies == 1);
    const bool is_cut = client->last.status != 200;
    CHECK((!is_cut || client->last.status == 503));
    CHECK(contains(client->last.body, "hold too many bytes") == is_cut);
  }
}

TEST_CASE("an answer that ends early does not have the end that is not recorded", "[serve]") {
  Desk desk({.is_recorded = true, .max_unsent_bytes = 6000});
  const auto waiting = ask_for(desk, "10.0.0.1", 200, 0);
  REQUIRE(desk.wait_until([&] {
    return desk.metric("vllm:generation_tokens_total") == 200 &&
           desk.metric("vllm:num_requests_running") == 0;
  }));
  CHECK(waiting->num_ends == 0);
  waiting->num_free_bytes = SIZE_MAX;
  const auto late = ask_for(desk, "10.0.0.1", 100, 0);
  // Where all tokens came at once, nothing was written before the error.
  REQUIRE(desk.wait_until([&] { return waiting->num_ends + waiting->num_replies == 1; }));
  CHECK(contains(waiting->stream + waiting->last.body, "not sent yet hold more than"));
  CHECK_FALSE(contains(waiting->stream, R"("finish_reason":"length")"));
  desk.num_recorded = 2;
  late->num_free_bytes = SIZE_MAX;
  CHECK(desk.wait_idle());
}

TEST_CASE("browsers may ask from anywhere", "[serve]") {
  Desk desk;
  const auto preflight = desk.ask("OPTIONS", "/v1/chat/completions");
  CHECK(preflight->last.status == 204);
  CHECK(contains(preflight->last.extra_header, "Access-Control-Allow-Methods: GET, POST"));
  CHECK(desk.ask("OPTIONS", "/nowhere")->last.status == 404);
  CHECK(desk.ask("OPTIONS", "*")->last.status == 204);  // of the whole server
  CHECK(desk.ask("GET", "*")->last.status == 404);
}

}  // namespace TEST_FILE
