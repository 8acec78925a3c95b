// SPDX-License-Identifier: Apache-2.0
// `metronome bench-serve`: what it sends, what it measures, and what it says of failures.
#include <signal.h>

#include <chrono>
#include <set>
#include <thread>

#include "core/base/json.h"
#include "core/metrics/client_record.h"
#include "core/metrics/summary.h"
#include "reports/compare/observed_run.h"
#include "reports/files/result_reader.h"
#include "serve/client/bench_serve.h"
#include "serve/client/load_client.h"
#include "study/run/wall_clock.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/serve/client/load_lab.h"
#include "tests/serve/client/scripted_server.h"
#include "tools/commands/cli.h"

namespace metronome::TEST_FILE {
namespace {

using namespace metronome::testing;
using Peer = ScriptedServer::Peer;

LoadResult load(const ScriptedServer& server, const Workload& workload, LoadOptions options = {},
                LoadEndpoint endpoint = LoadEndpoint::Completions) {
  const LoadRequestOptions requests = request_options(server.url(), endpoint);
  LoadRequestQueue texts(
      workload.requests.size(),
      [&](std::size_t i) { return load_request_text(workload, i, requests); }, [] {});
  options.address = {"127.0.0.1", server.port()};
  if (options.timeout_ns == 0) options.timeout_ns = 60 * kNsPerSecond;
  const WallClock clock;
  return run_load(workload, texts, clock, options);
}

// Answers as vLLM does, an event a chunk, with `pause` between them.
ScriptedServer::Script answer_all(std::chrono::milliseconds pause = {}) {
  return [pause](std::size_t, const std::string&, const std::string& body, Peer& peer) {
    const Json request = Json::parse(body);
    const bool is_chat = request.contains("messages");
    const int num_tokens =
        request.value(is_chat ? "max_completion_tokens" : "max_tokens", 0).get<int>();
    const int num_prompt = is_chat ? 11 : static_cast<int>(request["prompt"].size());
    peer.send(stream_head());
    for (const std::string& event : stream_events(num_prompt, num_tokens)) {
      if (pause.count() > 0) std::this_thread::sleep_for(pause);
      peer.send(chunk_of(event));
    }
    peer.send("0\r\n\r\n");
  };
}

std::vector<std::string> warnings_of(const Workload& workload, const LoadResult& result) {
  return load_warnings(workload, result, LoadEndpoint::Completions);
}

}  // namespace

// ---- Loads ----

TEST_CASE("every request is answered and counted", "[bench_serve]") {
  ScriptedServer server(answer_all());
  const Workload workload = small_workload(64, 12, kNsPerMs / 2);
  const LoadResult result = load(server, workload);
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    INFO("request " << i << ": " << result.requests[i].error);
    const LoadedRequest& request = result.requests[i];
    REQUIRE(request.reason == EndReason::Length);
    CHECK(request.tokens.size() == 12);
    CHECK(request.completion_tokens == 12);
    CHECK(request.prompt_tokens == 7);
    CHECK(request.due == workload.requests[i].arrival);
    CHECK(request.ready == request.due);
    CHECK(request.sent >= request.due);
    CHECK(request.tokens.front() > request.sent);
    CHECK(std::is_sorted(request.tokens.begin(), request.tokens.end()));
    CHECK(request.ended >= request.tokens.back());
  }
  CHECK(server.num_requests() == 64);
  CHECK(result.loop.num_events == 64 * 12);
  CHECK(result.loop.num_connections == static_cast<std::int64_t>(server.num_connections()));
  CHECK(result.loop.wall_ns > 31 * kNsPerMs);
  CHECK(result.loop.cpu_ns > 0);
  CHECK_FALSE(result.loop.lags.empty());
  CHECK(warnings_of(workload, result).empty());
  const RunRecord record = record_of_load(workload, result, LoadEndpoint::Completions);
  const Summary summary = summarize(record, {});
  CHECK(summary.completed == 64);
  CHECK(summary.total_output_tokens == 64 * 12);
  CHECK(summary.itl.count == 64 * 11);
  CHECK(record.requests[9].arrival == result.requests[9].sent);
  CHECK(record.client[9].due == result.requests[9].due);
}

TEST_CASE("chats count the prompts that the server counts", "[bench_serve]") {
  ScriptedServer server(answer_all());
  const Workload workload = small_workload(5, 4);
  const LoadResult result = load(server, workload, {}, LoadEndpoint::Chat);
  const RunRecord record = record_of_load(workload, result, LoadEndpoint::Chat);
  for (const RequestRecord& request : record.requests) {
    CHECK(request.completed());
    CHECK(request.num_output_tokens == 4);
    CHECK(request.num_prompt_tokens == 11);  // 7 words and a template
  }
  CHECK(load_warnings(workload, result, LoadEndpoint::Chat).empty());
  CHECK(load_warnings(workload, result, LoadEndpoint::Completions).size() == 1);
}

TEST_CASE("kept connections are used again", "[bench_serve]") {
  ScriptedServer server(answer_all());
  Workload workload = small_workload(10, 2);
  workload.mode = ArrivalMode::ClosedLoop;
  workload.concurrency = 1;
  const LoadResult result = load(server, workload);
  CHECK(server.num_requests() == 10);
  CHECK(server.num_connections() == 1);
  CHECK(result.loop.num_retries == 0);
}

TEST_CASE("an open loop sends whatever the server does", "[bench_serve]") {
  // The first request, which asks for three tokens, is answered when all others have been seen.
  std::atomic<std::size_t> num_seen = 0;
  ScriptedServer server(
      [&](std::size_t number, const std::string& head, const std::string& body, Peer& peer) {
        ++num_seen;
        const bool is_first = Json::parse(body)["max_tokens"] == 3;
        while (is_first && num_seen < 12) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        answer_all()(number, head, body, peer);
      });
  Workload workload = small_workload(12, 2, kNsPerMs);
  workload.requests[0].max_output_tokens = 3;
  const LoadResult result = load(server, workload);
  for (const LoadedRequest& request : result.requests) CHECK(request.error.empty());
  CHECK(result.requests[0].ended > result.requests[11].sent);
}

TEST_CASE("max_concurrency holds back, and its wait counts as delay", "[bench_serve]") {
  std::atomic<int> num_running = 0;
  std::atomic<int> most = 0;
  ScriptedServer server(
      [&](std::size_t number, const std::string& head, const std::string& body, Peer& peer) {
        const int now = ++num_running;
        for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        --num_running;
        answer_all()(number, head, body, peer);
      });
  LoadOptions options;
  options.max_concurrency = 3;
  const LoadResult result = load(server, small_workload(30, 2), options);
  CHECK(most <= 3);
  CHECK(server.num_connections() <= 3);
  const ClientHealth health = client_health(result, {});
  CHECK(health.send_delay.max_ms > 10);  // ten rounds of 2 ms
  CHECK(health.send_late.max_ms < health.send_delay.max_ms);
  for (const LoadedRequest& request : result.requests) {
    CHECK(request.error.empty());
    CHECK(request.due == 0);
    CHECK(request.ready <= request.sent);
  }
}

TEST_CASE("a closed loop sends the next when one has ended", "[bench_serve]") {
  ScriptedServer server(answer_all());
  Workload workload = small_workload(9, 3);
  workload.mode = ArrivalMode::ClosedLoop;
  workload.concurrency = 2;
  workload.think_time = 3 * kNsPerMs;
  const LoadResult result = load(server, workload);
  CHECK(server.num_connections() <= 2);
  std::vector<TimeNs> ends;
  for (std::size_t i = 0; i < 9; ++i) {
    REQUIRE(result.requests[i].error.empty());
    if (i >= 2) {
      std::sort(ends.begin(), ends.end());
      CHECK(result.requests[i].due == ends[i - 2] + workload.think_time);
    }
    ends.push_back(result.requests[i].ended);
  }
}

TEST_CASE("failures keep to their request, and each kind is told once", "[bench_serve]") {
  const auto script = [](std::size_t, const std::string&, const std::string& body, Peer& peer) {
    switch (Json::parse(body)["max_tokens"].get<int>()) {
      case 1: return peer.send(plain_answer(400, R"({"error":{"message":"too long"}})"));
      case 2: return peer.send(plain_answer(503, "{}", "Retry-After: 1\r\n"));
      case 3: return peer.hang_up();
      case 4: peer.send(stream_head() + chunk_of(token_event())); return peer.reset();
      case 5: return peer.send(stream_head() + chunk_of(usage_event(7, 0)) + "0\r\n\r\n");
      case 6:
        return peer.send(stream_head() + chunk_of(token_event()) +
                         chunk_of("data: {\"error\":{\"message\":\"died\"}}\n\n" + kDoneEvent) +
                         "0\r\n\r\n");
      case 7: return peer.send("nonsense\r\n\r\n");
      case 8:
        peer.send(stream_head() + chunk_of(token_event("\"stop\"") + usage_event(7, 1)) +
                  chunk_of(kDoneEvent) + "0\r\n\r\n");
        return;
      default: return answer_all()(0, {}, body, peer);
    }
  };
  ScriptedServer server(script);
  Workload workload = small_workload(20, 9, 2 * kNsPerMs);
  for (std::int32_t i = 0; i < 8; ++i) {
    workload.requests[static_cast<std::size_t>(2 * i)].max_output_tokens = i + 1;
  }
  workload.requests[18].max_output_tokens = 1;
  const LoadResult result = load(server, workload);
  const auto error = [&](std::size_t i) { return result.requests[i].error; };
  CHECK(error(0) == "HTTP 400: too long");
  CHECK(result.requests[2].reason == EndReason::QueueFull);
  CHECK(error(2) == "HTTP 503: {}");
  CHECK(error(4) == "the server closed the connection without an answer");
  CHECK(contains(error(6), "the connection was lost in the middle of the answer"));
  CHECK(result.requests[6].tokens.size() == 1);
  CHECK(error(8) == "the stream ended without [DONE] or a finish reason");
  CHECK(error(10) == "died");
  CHECK(contains(error(12), "the server's answer is not HTTP/1.1"));
  CHECK(result.requests[14].reason == EndReason::Stop);
  for (const std::size_t i : std::vector<std::size_t>{1, 3, 5, 7, 9, 11, 13, 15, 16, 17, 19})
    CHECK(error(i).empty());
  const std::vector<std::string> warnings = warnings_of(workload, result);
  const std::string all = Json(warnings).dump();
  CHECK(contains(all, "2 of 20 requests failed; first: request 0: HTTP 400: too long"));
  CHECK(contains(all, "1 of 20 requests were refused; first: request 2: HTTP 503: {}"));
  CHECK(contains(all, "1 of 20 requests got fewer"));
  CHECK(warnings.size() == 8);  // seven kinds of failure, and the short one
  const RunRecord record = record_of_load(workload, result, LoadEndpoint::Completions);
  const Summary summary = summarize(record, {});
  CHECK(summary.completed == 12);
  CHECK(summary.refused == 1);
  CHECK(summary.errored == 7);
}

TEST_CASE("a server that goes away fails what is left", "[bench_serve]") {
  // The sixth request, and those that come with it, are never answered.
  std::atomic<bool> is_time = false;
  std::atomic<bool> has_stopped = false;
  ScriptedServer server(
      [&](std::size_t number, const std::string& head, const std::string& body, Peer& peer) {
        if (number < 5) return answer_all()(number, head, body, peer);
        is_time = true;
        while (!has_stopped) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        peer.hang_up();
      });
  std::thread killer([&] {
    while (!is_time) std::this_thread::yield();
    server.stop();
    has_stopped = true;
  });
  Workload workload = small_workload(60, 3);
  workload.mode = ArrivalMode::ClosedLoop;
  workload.concurrency = 4;
  const LoadResult result = load(server, workload);
  killer.join();
  std::size_t num_failed = 0;
  for (const LoadedRequest& request : result.requests) {
    CHECK(request.reason != EndReason::None);
    CHECK(request.ended >= 0);
    num_failed += request.error.empty() ? 0 : 1;
  }
  CHECK(num_failed >= 55);
  CHECK(num_failed < 60);
  CHECK(contains(result.requests.back().error, "cannot connect"));
}

TEST_CASE("a kept connection that the server closed is made anew", "[bench_serve]") {
  // Every connection is closed when its second request has been read, without an answer.
  std::mutex mutex;
  std::set<Peer*> served;
  ScriptedServer server(
      [&](std::size_t number, const std::string& head, const std::string& body, Peer& peer) {
        {
          const std::lock_guard lock(mutex);
          if (!served.insert(&peer).second) {
            served.erase(&peer);
            return peer.hang_up();
          }
        }
        answer_all()(number, head, body, peer);
      });
  Workload workload = small_workload(6, 2);
  workload.mode = ArrivalMode::ClosedLoop;
  workload.concurrency = 1;
  const LoadResult result = load(server, workload);
  for (const LoadedRequest& request : result.requests) CHECK(request.error.empty());
  CHECK(result.loop.num_retries > 0);
}

TEST_CASE("requests that take too long are given up", "[bench_serve]") {
  std::atomic<bool> is_over = false;
  ScriptedServer server(
      [&](std::size_t number, const std::string& head, const std::string& body, Peer& peer) {
        if (Json::parse(body)["max_tokens"] == 2) return answer_all()(number, head, body, peer);
        peer.send(stream_head() + chunk_of(token_event()));
        while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      });
  LoadOptions options;
  options.timeout_ns = 3 * kNsPerSecond;
  Workload workload = small_workload(4, 2, 10 * kNsPerMs);
  workload.requests[0].max_output_tokens = workload.requests[2].max_output_tokens = 3;
  const LoadResult result = load(server, workload, options);
  is_over = true;
  for (const std::size_t i : {0u, 2u}) {
    CHECK(result.requests[i].reason == EndReason::Aborted);
    CHECK(result.requests[i].ended - result.requests[i].ready >= options.timeout_ns);
  }
  for (const std::size_t i : {1u, 3u}) CHECK(result.requests[i].reason == EndReason::Length);
  CHECK(contains(Json(warnings_of(workload, result)).dump(), "2 of 4 requests timed out"));
}

TEST_CASE("what on_tick throws ends a load", "[bench_serve]") {
  std::atomic<bool> is_over = false;
  ScriptedServer server([&](std::size_t, const std::string&, const std::string&, Peer&) {
    while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  LoadOptions options;
  options.on_tick = [num = 0](std::size_t) mutable {
    if (++num == 5) throw Interrupted();
  };
  CHECK_THROWS_AS(load(server, small_workload(3, 2), options), Interrupted);
  is_over = true;
}

// ---- Warnings ----

TEST_CASE("events of one request that are read together are counted", "[bench_serve]") {
  ScriptedServer server([](std::size_t, const std::string&, const std::string&, Peer& peer) {
    peer.send(stream_head() +
              chunk_of(token_event() + token_event() + token_event("\"length\"") +
                       usage_event(7, 3) + kDoneEvent) +
              "0\r\n\r\n");
  });
  const LoadResult result = load(server, small_workload(4, 3));
  CHECK(result.loop.num_events == 12);
  CHECK(result.loop.num_merged == 8);
  CHECK(result.requests[0].tokens.front() == result.requests[0].tokens.back());
}

TEST_CASE("counts that differ are told with their numbers", "[bench_serve]") {
  ScriptedServer server([](std::size_t, const std::string&, const std::string&, Peer& peer) {
    peer.send(stream_head() + chunk_of(token_event()) + chunk_of(token_event("\"length\"")) +
              chunk_of(usage_event(8, 6)) + chunk_of(kDoneEvent) + "0\r\n\r\n");
  });
  const Workload workload = small_workload(3, 6);
  const std::string all = Json(warnings_of(workload, load(server, workload))).dump();
  CHECK(contains(all, "the server counts 18 tokens in 6 events (they differ in 3 of 3 requests)"));
  CHECK(contains(all, "the server counts 24 prompt tokens, but 21 were sent"));
  CHECK_FALSE(contains(all, "fewer"));
}

// ---- The command ----

namespace {

// Answers the questions before a load as vLLM does.
ScriptedServer::Script answer_as_vllm() {
  return [stream = answer_all(std::chrono::milliseconds(1))](
             std::size_t number, const std::string& head, const std::string& body, Peer& peer) {
    if (head.starts_with("GET /v1/models ")) {
      return peer.send(plain_answer(200, R"({"data":[{"id":"served","root":"r"}]})"));
    }
    if (head.starts_with("GET /version ")) {
      return peer.send(plain_answer(200, R"({"version":"0.11.0"})"));
    }
    stream(number, head, body, peer);
  };
}

constexpr const char* kPieces = " --variant pieces --set workload.arrivals.rate=100";

// Measures a small scenario into FOLDER/measured.
CommandResult measure(const ScriptedServer& server, const ScratchFolder& folder) {
  const std::string scenario =
      folder.write("small.yaml", std::string(kSmallScenario) + kTwoVariants);
  return run_metronome("bench-serve " + server.url() + " --scenario " + scenario + kPieces +
                       " --save-detailed --out " + folder.path() + "/measured");
}

}  // namespace

TEST_CASE("bench-serve writes what a client can know", "[bench_serve]") {
  ScriptedServer server(answer_as_vllm());
  const ScratchFolder folder;
  const CommandResult run = measure(server, folder);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(contains(run.out, "model served, version 0.11.0"));
  CHECK(contains(run.out, "client: sends late p50"));
  CHECK(contains(run.out, "measured by a client, which sees no steps"));
  CHECK_FALSE(contains(run.out, "KV mean"));
  const auto files = folder_content(folder.path() + "/measured");
  CHECK(contains(files.at("report.html"), "\"has_steps\":false"));
  CHECK(files.count("steps.jsonl") == 0);
  const Json result = Json::parse(files.at("result.json"));
  CHECK(result["backend"] == "http");
  CHECK(result["endpoint_type"] == "openai");
  CHECK(result["completed"] == 20);
  CHECK(result["total_output_tokens"] == 400);
  CHECK(result["server"]["version"] == "0.11.0");
  CHECK(result["server"]["model"] == "served");
  CHECK(result["client"]["num_token_events"] == 400);
  for (const char* unknown : {"num_steps", "mean_kv_use", "num_preemptions", "busy_share",
                              "peak_running", "mean_queue_ms", "digest", "num_kv_blocks"}) {
    INFO(unknown);
    CHECK(result.at(unknown).is_null());
  }
}

TEST_CASE("bench-serve fails where no request completed, and keeps the results", "[bench_serve]") {
  const auto refuse_all = [vllm = answer_as_vllm()](std::size_t number, const std::string& head,
                                                    const std::string& body, Peer& peer) {
    if (head.starts_with("GET ")) return vllm(number, head, body, peer);
    peer.send(plain_answer(400, "{}"));
  };
  ScriptedServer server(refuse_all);
  const ScratchFolder folder;
  const CommandResult run = measure(server, folder);
  CHECK(run.exit_code == 1);
  CHECK(contains(run.err, "metronome: error: no request completed, for the reason in the warning"));
  CHECK(std::filesystem::exists(folder.path() + "/measured/result.json"));
}

TEST_CASE("a measured result is read back as it was", "[bench_serve]") {
  ScriptedServer server(answer_as_vllm());
  const ScratchFolder folder;
  REQUIRE(measure(server, folder).exit_code == 0);
  const std::string measured = folder.path() + "/measured";
  const auto files = folder_content(measured);
  const Json result = Json::parse(files.at("result.json"));
  const StoredRun stored = read_result(measured);
  CHECK_FALSE(stored.record.has_steps());
  CHECK(stored.result.summary.itl.p99_ms == result["p99_itl_ms"].get<double>());
  CHECK(stored.result.summary.ttft.mean_ms == result["mean_ttft_ms"].get<double>());
  CHECK(stored.result.summary.tpot.max_ms == result["max_tpot_ms"].get<double>());
  CHECK(contains(error_of([&] { require_steps(stored); }), "recorded by a client"));
  // vLLM's form says the same.
  const ObservedRun own = read_observed_run(measured);
  const ObservedRun theirs = read_observed_run(measured + "/vllm.json");
  REQUIRE(own.requests.size() == 20);
  REQUIRE(theirs.requests.size() == 20);
  CHECK(own.requests[3].gaps == theirs.requests[3].gaps);
  CHECK(own.requests[3].ttft_ns == theirs.requests[3].ttft_ns);
  // The times of a request that vLLM 0.32 has beside them, in seconds.
  const Json vllm = Json::parse(files.at("vllm.json"));
  REQUIRE(vllm["queue_times"].size() == 20);
  for (std::size_t i = 0; i < 20; ++i) {
    double end_s = vllm["ttfts"][i].get<double>();
    for (const Json& gap : vllm["itls"][i]) end_s += gap.get<double>();
    CHECK(vllm["latencies"][i].get<double>() == Approx(end_s).margin(1e-8));
    CHECK(vllm["queue_times"][i].get<double>() >= 0);
  }
  // Tokens out of order are refused.
  std::string lines = files.at("requests.jsonl");
  lines.insert(lines.find("\"token_ns\":[") + 12, "9000000000000,");
  folder.write("broken/result.json", files.at("result.json"));
  folder.write("broken/requests.jsonl", lines);
  CHECK(contains(error_of([&] { read_result(folder.path() + "/broken"); }),
                 "requests.jsonl:1: token_ns[1]: "));
}

TEST_CASE("a measured result stands beside a simulated one", "[bench_serve]") {
  ScriptedServer server(answer_as_vllm());
  const ScratchFolder folder;
  REQUIRE(measure(server, folder).exit_code == 0);
  const std::string measured = folder.path() + "/measured";
  const std::string simulated = folder.path() + "/simulated";
  REQUIRE(run_metronome("run " + folder.path() + "/small.yaml" + kPieces + " --quiet --out " +
                        simulated)
              .exit_code == 0);
  const CommandResult report = run_metronome("report " + simulated + " " + measured + " --out " +
                                             folder.path() + "/both.html");
  CHECK(report.exit_code == 0);
  CHECK(contains(report.out, "2 runs\n"));
  const CommandResult validation = run_metronome("validate " + measured + " " + simulated);
  INFO(validation.err);
  CHECK(validation.exit_code == 0);
  CHECK(contains(validation.out, "measured by a client, which saw no steps"));
  const CommandResult diagnosis = run_metronome("diagnose " + measured);
  CHECK(diagnosis.exit_code == 2);
  CHECK(contains(diagnosis.err, "recorded by a client"));
  CHECK(run_metronome("validate " + simulated + " " + measured).exit_code == 2);
}

TEST_CASE("bench-serve finds the knee of a server", "[bench_serve]") {
  // Every request after the first 60 is refused: the first load keeps up, the next does not.
  std::atomic<int> num_posts = 0;
  ScriptedServer server([&, vllm = answer_as_vllm()](std::size_t number, const std::string& head,
                                                     const std::string& body, Peer& peer) {
    if (head.starts_with("POST ") && ++num_posts > 60) {
      return peer.send(plain_answer(503, "{}"));
    }
    vllm(number, head, body, peer);
  });
  const ScratchFolder folder;
  const std::string scenario = folder.write("small.yaml", kSmallScenario);
  const std::string command = "bench-serve " + server.url() + " --scenario " + scenario +
                              " --set workload.num_requests=500 --set workload.arrivals.rate=100 ";
  const CommandResult run = run_metronome(
      command + "--find-knee --point-seconds 0.3 --save-detailed --out " + folder.path() + "/knee");
  INFO(run.err << run.out);
  REQUIRE(run.exit_code == 0);
  CHECK(contains(run.out, "knee      100.00 requests/s: TTFT p50"));
  CHECK(contains(run.out, "failing"));
  const auto files = folder_content(folder.path() + "/knee");
  const Json knee = Json::parse(files.at("knee.json"));
  CHECK(knee["knee_rate"] == Json(100));
  CHECK(knee["rate_above"].get<double>() <= 110);
  CHECK(contains(knee["stopped"].string(), "complete; 99.0 % are required"));
  CHECK(knee["points"].size() >= 2);
  CHECK(knee["points"][0]["verdict"] == Json("keeps_up"));
  const StoredRun stored = read_result(folder.path() + "/knee/rate-100");
  CHECK(stored.result.info.label == "rate-100");
  CHECK(std::filesystem::exists(folder.path() + "/knee/rate-100/vllm.json"));
  num_posts = 0;  // a later search replaces it
  CHECK(
      run_metronome(command + "--find-knee --point-seconds 0.3 -q --out " + folder.path() + "/knee")
          .exit_code == 0);
  const auto fails = [&](const std::string& arguments, const std::string& text) {
    const CommandResult result = run_metronome(command + arguments);
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, text));
  };
  fails("--attainment 0.9", "--attainment: needs --find-knee");
  fails("--find-knee --max-concurrency 5", "hide that the server is behind");
  fails("--find-knee --set workload.arrivals.rate=.inf",
        "--find-knee: all requests arrive at once");
}

TEST_CASE("an interrupted bench-serve leaves no results", "[bench_serve]") {
  const ScratchFolder folder;
  std::atomic<bool> is_over = false;
  ScriptedServer server([&](std::size_t, const std::string& head, const std::string&, Peer& peer) {
    if (head.starts_with("GET ")) return peer.send(plain_answer(404, "{}"));
    peer.send(stream_head() + chunk_of(token_event()));
    ::kill(std::stoi(read_text_file(folder.path() + "/pid")), SIGINT);
    while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  const CommandResult result = run_metronome(
      "bench-serve " + server.url() + " --model m --scenario " +
          folder.write("small.yaml", kSmallScenario) + " --out " + folder.path() + "/out",
      "sh -c 'echo $$ >" + folder.path() + "/pid; exec \"$@\"' sh");
  is_over = true;
  CHECK(result.exit_code == 130);
  CHECK(contains(result.err, "interrupted, no results written"));
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/out"));
}

TEST_CASE("bench-serve says what is wrong before it sends anything", "[bench_serve]") {
  const ScratchFolder folder;
  const std::string one = folder.write("one.yaml", kSmallScenario);
  const std::string two = folder.write("two.yaml", std::string(kSmallScenario) + kTwoVariants);
  ScriptedServer server([](std::size_t, const std::string&, const std::string&, Peer& peer) {
    peer.send(plain_answer(404, "{}"));
  });
  const auto fails = [&](const std::string& arguments, int exit_code, const std::string& text) {
    const CommandResult result =
        run_metronome("bench-serve " + arguments + " --out " + folder.path() + "/out");
    INFO(arguments << ": " << result.err);
    CHECK(result.exit_code == exit_code);
    CHECK(contains(result.err, text));
    CHECK_FALSE(std::filesystem::exists(folder.path() + "/out"));
  };
  const std::string url = server.url() + " --scenario ";
  fails("https://h --scenario " + one, 2, "needs TLS");
  fails(server.url(), 2, "--scenario: is missing");
  fails(url + two, 2,
        "has 2 variants, but a server has the settings of one; allowed: whole, pieces");
  fails(url + two + " --variant x", 2, "has no variant 'x'");
  fails(url + one + " --endpoint chats", 2, "did you mean 'chat'?");
  fails(url + one + " --max-concurrency 0", 2, "--max-concurrency");
  fails(url + one + " --timeout 0", 2, "--timeout");
  for (const char* header : {"nothing", ":x", "'a b: x'", "'a(b): x'"}) {
    fails(url + one + " --header " + header, 2, "--header: is not a header");
  }
  for (const char* name : {"Host", "content-length", "Transfer-Encoding", "Connection"}) {
    fails(url + one + " --header " + name + ":x", 2,
          std::string("--header: the client sets ") + name + " itself; allowed: other headers");
  }
  fails(url + one +
            " --set workload.num_requests=1 --set workload.arrivals.process=steps --set "
            "'workload.arrivals.steps=[0]'",
        2, "engine steps");
  fails(url + one, 1, "/v1/models: HTTP 404 without a model");
  server.stop();
  fails(url + one, 1, "cannot connect");
}

}  // namespace metronome::TEST_FILE
