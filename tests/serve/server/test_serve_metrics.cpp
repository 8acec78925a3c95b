// SPDX-License-Identifier: Apache-2.0
// The page of /metrics.
#include <string>

#include "core/base/json.h"
#include "serve/server/serve_metrics.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/serve/server/service_desk.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

TEST_CASE("metrics have vLLM's names and count what was served", "[serve]") {
  Desk desk;
  const auto client = desk.complete(R"("max_tokens": 10, "ignore_eos": true, "n": 2)");
  REQUIRE(desk.wait_idle());
  desk.complete(R"("max_tokens": 100, "seed": 1)");  // ends by itself
  REQUIRE(desk.wait_idle());
  CHECK(desk.metric("vllm:prompt_tokens_total") == 15);
  CHECK(desk.metric("vllm:generation_tokens_total") > 20);
  CHECK(desk.metric("vllm:time_to_first_token_seconds_count") == 3);
  CHECK(desk.metric("vllm:e2e_request_latency_seconds_count") == 3);
  CHECK(desk.metric("vllm:inter_token_latency_seconds_count") ==
        desk.metric("vllm:generation_tokens_total") - 3);
  CHECK(desk.metric("vllm:request_generation_tokens_sum") ==
        desk.metric("vllm:generation_tokens_total"));
  CHECK(desk.metric("vllm:request_queue_time_seconds_count") == 3);
  CHECK(desk.metric("vllm:request_time_per_output_token_seconds_count") == 3);
  CHECK(desk.metric("vllm:request_max_num_generation_tokens_count") == 2);
  CHECK(desk.metric("vllm:request_max_num_generation_tokens_sum") ==
        desk.metric("vllm:generation_tokens_total") - 10);
  CHECK(desk.metric("vllm:request_params_n_sum") == 3);
  const std::string page = desk.ask("GET", "/metrics")->last.body;
  CHECK(contains(page,
                 "vllm:request_success_total{engine=\"0\",model_name=\"tiny\","
                 "finished_reason=\"length\"} 2\n"));
  CHECK(contains(page, "finished_reason=\"stop\"} 1\n"));
  CHECK(contains(page,
                 "vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"tiny\","
                 "le=\"+Inf\"} 3\n"));
  CHECK(contains(page,
                 "vllm:cache_config_info{engine=\"0\",model_name=\"tiny\",block_size=\"16\","
                 "num_gpu_blocks=\"64\"} 1\n"));
}

TEST_CASE("metrics count drafts as vLLM does", "[serve]") {
  Desk desk({.num_drafts = 3});
  desk.complete(R"("max_tokens": 60, "ignore_eos": true)");
  REQUIRE(desk.wait_idle());
  const std::string drafts = "vllm:spec_decode_num_";
  const double num_accepted = desk.metric(drafts + "accepted_tokens_total");
  const double num_drafts = desk.metric(drafts + "drafts_total");
  CHECK(num_accepted > 0);
  CHECK(desk.metric(drafts + "draft_tokens_total") > num_accepted);
  // The prompt gives the first of 60 tokens; each decode gives one, and what it accepts. The last
  // may have no drafts, and lose tokens behind the end.
  CHECK(1 + num_drafts + num_accepted >= 59);
  CHECK(1 + num_drafts + num_accepted <= 62);
  double sum = 0, before = num_drafts;
  for (int i = 0; i < 3; ++i) {
    const std::string page = desk.ask("GET", "/metrics")->last.body;
    const std::string line = "model_name=\"tiny\",position=\"" + std::to_string(i) + "\"} ";
    const std::size_t at = page.find(line);
    REQUIRE(at != std::string::npos);
    const double count = std::stod(page.substr(at + line.size()));
    CHECK(count <= before);  // a token is accepted only behind an accepted one
    sum += count;
    before = count;
  }
  CHECK(sum == num_accepted);
  CHECK_FALSE(contains(desk.ask("GET", "/metrics")->last.body, "position=\"3\""));
  CHECK_FALSE(contains(Desk().ask("GET", "/metrics")->last.body, "spec_decode"));
}

TEST_CASE("a refused request has no end in the metrics, one that is aborted has", "[serve]") {
  Desk desk({.speed = kSlow, .max_model_len = 512});
  const auto refused = desk.complete(R"("max_tokens": 400, "n": 3)");
  REQUIRE(desk.wait_idle());
  CHECK(refused->last.status == 400);  // the engine has no room for it
  const auto num_aborted = [&] {
    const std::string page = desk.ask("GET", "/metrics")->last.body;
    const std::string line = "finished_reason=\"abort\"} ";
    return std::stoi(page.substr(page.find(line) + line.size()));
  };
  CHECK(num_aborted() == 0);
  CHECK(desk.metric("metronome:refused_total") == 0);  // neither 429 nor 503
  const auto left = desk.complete(R"("max_tokens": 200, "ignore_eos": true, "n": 2)");
  desk.service.leave(left.get());
  CHECK(num_aborted() == 2);
}

TEST_CASE("the times of a page are real time, whatever the speed", "[serve]") {
  Desk desk;  // a thousand times as fast
  desk.complete(R"("max_tokens": 240, "ignore_eos": true)");
  REQUIRE(desk.wait_idle());
  const auto sum = [&](const std::string& name) {
    return desk.metric("vllm:" + name + "_seconds_sum");
  };
  const double e2e = sum("e2e_request_latency");
  CHECK(sum("request_queue_time") + sum("request_inference_time") <= e2e);
  CHECK(sum("request_decode_time") <= sum("request_inference_time"));
  CHECK(sum("request_queue_time") + sum("request_prefill_time") <= sum("time_to_first_token"));
  CHECK(sum("request_time_per_output_token") * 239 <= e2e);
}

TEST_CASE("a histogram counts what is at most each bound", "[serve]") {
  constexpr double kBounds[] = {0.5, 1, 2};
  Histogram histogram(kBounds);
  for (const double value : {0.5, 0.6, 1.0, 1.5, 3.0, 0.0}) histogram.add(value);
  std::string text;
  histogram.write("h", "Help.", "a=\"b\"", text);
  CHECK(text ==
        "# HELP h Help.\n# TYPE h histogram\n"
        "h_bucket{a=\"b\",le=\"0.5\"} 2\nh_bucket{a=\"b\",le=\"1.0\"} 4\n"
        "h_bucket{a=\"b\",le=\"2.0\"} 5\nh_bucket{a=\"b\",le=\"+Inf\"} 6\n"
        "h_sum{a=\"b\"} 6.6\nh_count{a=\"b\"} 6\n");
}

}  // namespace TEST_FILE
