// SPDX-License-Identifier: Apache-2.0
// Parts of `metronome bench-serve`: URLs, requests, records of responses, warnings.
#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/json.h"
#include "core/metrics/client_record.h"
#include "core/metrics/summary.h"
#include "serve/client/bench_serve.h"
#include "serve/client/load_requests.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/serve/client/load_lab.h"
#include "tools/commands/cli.h"

namespace metronome::TEST_FILE {
namespace {

using namespace metronome::testing;
WatchedRequest watched(TimeNs sent, std::vector<TimeNs> times, std::int32_t num_tokens,
                       EndReason reason = EndReason::Length) {
  WatchedRequest request;
  request.request.arrival = sent;
  request.request.ended = times.empty() ? sent + 1 : times.back();
  request.request.reason = reason;
  request.request.num_prompt_tokens = 10;
  request.request.max_output_tokens = num_tokens;
  request.view = {sent - 1, num_tokens};
  request.token_times = std::move(times);
  return request;
}

}  // namespace

// ---- URLs and requests ----

TEST_CASE("URLs of servers are read", "[bench_serve]") {
  const auto text = [](const char* url) { return parse_server_url(url).text(); };
  CHECK(text("http://localhost:8000") == "http://localhost:8000");
  CHECK(text("http://localhost") == "http://localhost:80");
  CHECK(text("http://10.0.0.1:9/") == "http://10.0.0.1:9");
  CHECK(text("http://h:9/proxy/x//") == "http://h:9/proxy/x");
  CHECK(text("http://h:9/v1") == "http://h:9");
  CHECK(text("http://h:9/a/v1/") == "http://h:9/a");
  CHECK(text("localhost:8000") == "http://localhost:8000");
  CHECK(text("HTTP://h:9/v1/completions") == "http://h:9");
  CHECK(text("h:9/a/v1/chat/completions/") == "http://h:9/a");
  CHECK(text("http://[::1]:9") == "http://[::1]:9");
  CHECK(parse_server_url("http://[::1]:9").host == "::1");
  const auto error = [](const std::string& url) {
    return error_of<UsageError>([&] { parse_server_url(url); });
  };
  CHECK(contains(error("https://h"), "needs TLS"));
  CHECK(contains(error("https://h"), "ssh -L"));
  for (const char* bad :
       {"", "h", "quickstart.yaml", "h:x", "ftp://h", "http://", "http://:8",
        "http://h:", "http://h:0", "http://h:65536", "http://h:8x", "http://h h", "http://h/a b",
        "http://h\r\nX: y", "http://h/?a=1", "http://u@h", "http://[::1", "http://[::1]8"}) {
    INFO(bad);
    CHECK(contains(error(bad), "; allowed: [http://]HOST[:PORT][/PREFIX]"));
  }
}

TEST_CASE("requests are what vLLM's benchmark sends", "[bench_serve]") {
  const Workload workload = small_workload(2, 9);
  LoadRequestOptions options = request_options("http://h:8000/p", LoadEndpoint::Completions);
  options.model = "org/\"m\"";
  options.headers = {"X-Team: a"};
  const std::string text = load_request_text(workload, 1, options);
  const std::size_t end = text.find("\r\n\r\n") + 4;
  const std::string head = text.substr(0, end);
  CHECK(head.starts_with("POST /p/v1/completions HTTP/1.1\r\nHost: h:8000\r\n"));
  CHECK(contains(head, "\r\nContent-Length: " + std::to_string(text.size() - end) + "\r\n"));
  CHECK(contains(head, "\r\nX-Team: a\r\n"));
  Json body = Json::parse(text.substr(end));
  CHECK(body["model"] == "org/\"m\"");
  CHECK(body["max_tokens"] == 9);
  CHECK(body["ignore_eos"] == true);
  CHECK(body["temperature"] == 0);
  CHECK(body["stream"] == true);
  CHECK(body["stream_options"]["include_usage"] == true);
  REQUIRE(body["prompt"].size() == 7);
  options.endpoint = LoadEndpoint::Chat;
  const std::string chat = load_request_text(workload, 1, options);
  CHECK(chat.starts_with("POST /p/v1/chat/completions "));
  body = Json::parse(chat.substr(chat.find("\r\n\r\n")));
  CHECK(body["max_completion_tokens"] == 9);
  const std::string words = body["messages"][0]["content"].get<std::string>();
  CHECK(std::count(words.begin(), words.end(), ' ') == 6);
}

TEST_CASE("drawn prompts keep off the ends of the vocabulary and share their prefixes",
          "[bench_serve]") {
  Workload workload = small_workload(40, 1);
  for (RequestSpec& spec : workload.requests) spec.num_prompt_tokens = 300;
  for (std::uint32_t i = 0; i < workload.requests.size(); ++i) {
    workload.segment_begin.push_back(2 * i);
    workload.segments.push_back({content_id(ContentKind::Group, 1), 100});
    workload.segments.push_back({content_id(ContentKind::Request, i), 200});
  }
  workload.segment_begin.push_back(static_cast<std::uint32_t>(workload.segments.size()));
  const LoadRequestOptions options = request_options("http://h", LoadEndpoint::Completions);
  std::set<int> ids;
  std::vector<std::vector<int>> prompts;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    const std::string text = load_request_text(workload, i, options);
    const Json request = Json::parse(text.substr(text.find("\r\n\r\n")));
    prompts.emplace_back();
    for (const Json& id : request["prompt"]) prompts.back().push_back(id.get<int>());
    ids.insert(prompts.back().begin(), prompts.back().end());
  }
  CHECK(*ids.begin() == 32);  // of 1024: a 32nd at either end
  CHECK(*ids.rbegin() == 991);
  CHECK(std::equal(prompts[0].begin(), prompts[0].begin() + 100, prompts[1].begin()));
  CHECK_FALSE(std::equal(prompts[0].begin() + 100, prompts[0].end(), prompts[1].begin() + 100));
  // Ids that a trace gives are sent as they are.
  Workload given = small_workload(1, 1);
  given.requests[0].num_prompt_tokens = 2;
  given.token_ids = {TokenId(0), TokenId(1023)};
  given.token_begin = {0, 2};
  CHECK(contains(load_request_text(given, 0, options), "\"prompt\":[0,1023]"));
}

TEST_CASE("texts are made ahead within their memory, and each once", "[bench_serve]") {
  std::vector<int> num_made(10);
  const auto make = [&](std::size_t i) {
    ++num_made[i];
    return std::string(100, static_cast<char>('a' + i));
  };
  LoadRequestQueue queue(
      10, make, [] {}, 250);
  CHECK(std::count(num_made.begin(), num_made.end(), 1) == 3);
  CHECK(queue.take(0)[0] == 'a');
  CHECK(queue.take(4)[0] == 'e');  // not there yet
  queue.refill();
  queue.refill();
  CHECK(num_made[3] == 1);
  CHECK(num_made[5] == 0);  // full again
  for (const std::size_t i : std::vector<std::size_t>{1, 2, 3, 5, 6, 7, 8, 9}) {
    CHECK(queue.take(i)[0] == static_cast<char>('a' + i));
    queue.refill();
  }
  CHECK(num_made == std::vector<int>(10, 1));
}

// ---- Records ----

TEST_CASE("a watched run has vLLM's figures", "[bench_serve]") {
  // Two events of request 0 at once; request 1 interleaved; request 2 failed behind one event.
  const RunRecord record = make_client_record(std::vector<WatchedRequest>{
      watched(1'000'000, {5'000'000, 7'000'000, 7'000'000, 12'000'000}, 4),
      watched(2'000'000, {6'000'000, 7'000'000, 10'000'000}, 3),
      watched(3'000'000, {8'000'000}, 1, EndReason::Errored)});
  CHECK_FALSE(record.has_steps());
  CHECK(record.steps.size() == 7);
  CHECK(token_times(record, 0) == std::vector<TimeNs>{5'000'000, 7'000'000, 7'000'000, 12'000'000});
  CHECK(token_times(record, 1) == std::vector<TimeNs>{6'000'000, 7'000'000, 10'000'000});
  const Summary summary = summarize(record, {});
  CHECK(summary.completed == 2);
  CHECK(summary.errored == 1);
  CHECK(summary.failed == 1);
  CHECK(summary.total_output_tokens == 7);
  CHECK(summary.ttft.mean_ms == Approx(4));    // 4 and 4
  CHECK(summary.e2el.mean_ms == Approx(9.5));  // 11 and 8
  CHECK(summary.tpot.mean_ms == Approx((7.0 / 3 + 2) / 2));
  CHECK(summary.itl.count == 5);  // 2 0 5 1 3
  CHECK(summary.itl.mean_ms == Approx(11.0 / 5));
  CHECK(summary.itl.p50_ms == Approx(2));
  CHECK(summary.itl.min_ms == 0);
  CHECK(summary.jitter.mean_ms == Approx((5 + 2) / 2.0));
  CHECK(summary.duration_ns == 12'000'000);
  CHECK(summary.longest_stall.gap_ns == 5'000'000);
  CHECK(summary.longest_stall.began_at == 7'000'000);
  CHECK(summary.longest_stall.cause == StallCause::Unseen);
  CHECK_FALSE(summary.has_steps);
  CHECK(summary.num_steps == 0);
  for (const double unknown : {summary.mean_kv_use, summary.busy_share, summary.mean_running,
                               summary.mean_batch_tokens, summary.prefix_hit_rate}) {
    CHECK(std::isnan(unknown));
  }
}

TEST_CASE("tokens that share an event count as the server counts them", "[bench_serve]") {
  const RunRecord record = make_client_record(std::vector<WatchedRequest>{
      watched(0, {4'000'000, 10'000'000}, 7), watched(0, {3'000'000}, 5)});
  const Summary summary = summarize(record, {});
  CHECK(summary.total_output_tokens == 12);
  CHECK(summary.itl.count == 1);
  CHECK(summary.tpot.count == 2);
  CHECK(summary.tpot.max_ms == Approx(1));  // 6 ms over six tokens
  CHECK(summary.tpot.min_ms == 0);
  CHECK(summary.jitter.count == 1);  // the other has no gap
  CHECK(summary.longest_stall.gap_ns == 6'000'000);
}

// ---- Warnings ----

TEST_CASE("the client says when it was the bottleneck", "[bench_serve]") {
  ClientHealth health;
  health.send_late = {.count = 10, .p50_ms = 0.05, .p99_ms = 0.4, .max_ms = 1};
  health.loop_lag = {.count = 10, .p50_ms = 0.05, .p99_ms = 0.4, .max_ms = 1};
  health.num_events = 1000;
  health.median_itl_ms = 20;
  health.cpu_share = health.busiest_second = 0.5;
  health.num_merged = 10;
  CHECK(client_warnings(health).empty());
  ClientHealth late = health;
  late.send_late.p99_ms = 5.1;
  REQUIRE(client_warnings(late).size() == 1);
  CHECK(contains(client_warnings(late)[0], "p99 5.10 ms"));
  late = health;
  late.send_late.p50_ms = 0.21;  // more than a hundredth of 20 ms
  CHECK(contains(client_warnings(late).at(0), "median ITL 20.0 ms"));
  late.median_itl_ms = 30;
  CHECK(client_warnings(late).empty());
  ClientHealth busy = health;
  busy.busiest_second = 0.81;
  CHECK(contains(client_warnings(busy).at(0), "81.0 % of a second"));
  ClientHealth merged = health;
  merged.num_merged = 11;
  CHECK(contains(client_warnings(merged).at(0), "11 of 1,000 token events"));
  CHECK(contains(client_warnings(merged).at(0), "late by p99 0.40 ms; "));
  merged.loop_lag = {};
  CHECK(contains(client_warnings(merged).at(0), "was late, or the server sent them together"));
  const Json json = client_json(busy);
  CHECK(json["busiest_second_cpu_share"] == 0.81);
  CHECK(json["send_late_ms"]["p99"] == 0.4);
  CHECK(json["warnings"].size() == 1);
}

}  // namespace metronome::TEST_FILE
