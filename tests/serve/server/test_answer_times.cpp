// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <string>

#include "serve/server/answer_times.h"
#include "tests/catch.h"
#include "tests/error_of.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

TEST_CASE("an answer is measured by two clocks, and counted once in all", "[serve]") {
  using std::chrono::milliseconds;
  ServeMetrics metrics(0);
  const ServeClock clock(2);  // twice as fast as real time
  const AnswerTimes::WallTime came{};
  AnswerTimes times(metrics, clock, {7, 7, 7}, 3, came);
  const TimeNs s = 1'000'000'000;
  for (const std::int32_t i : {0, 1, 2}) times.on_arrival(i, 1 * s);
  for (const std::int32_t i : {0, 1}) times.on_admission(i, 2 * s);
  times.on_token(0, 6 * s, came + milliseconds(250));
  times.on_token(1, 6 * s, came + milliseconds(250));
  times.on_token(0, 8 * s, came + milliseconds(750));
  times.on_token(0, 8 * s, came + milliseconds(750));  // of the same step
  times.on_end(2, EndReason::Aborted, came + milliseconds(800), false);
  times.on_end(0, EndReason::Stop, came + milliseconds(1000), false);
  times.on_end(1, EndReason::Length, came + milliseconds(1000), true);
  const std::string page = metrics.text("m", 1, 1);
  const auto expect = [&](const std::string& name, const std::string& sum,
                          const std::string& count) {
    INFO(name << "\n" << page);
    const std::string labels = R"({engine="0",model_name="m"} )";
    CHECK(contains(page, "vllm:" + name + "_sum" + labels + sum + "\n"));
    CHECK(contains(page, "vllm:" + name + "_count" + labels + count + "\n"));
  };
  expect("time_to_first_token_seconds", "0.5", "2");
  expect("inter_token_latency_seconds", "0.5", "1");
  expect("e2e_request_latency_seconds", "2", "2");
  expect("request_queue_time_seconds", "1", "2");
  expect("request_prefill_time_seconds", "4", "2");
  expect("request_decode_time_seconds", "1", "2");
  expect("request_inference_time_seconds", "5", "2");
  expect("request_time_per_output_token_seconds", "0.5", "1");
  expect("request_prompt_tokens", "14", "2");  // not of the choice without a token
  expect("request_generation_tokens", "4", "2");
  expect("request_max_num_generation_tokens", "3", "1");
  expect("request_params_n", "3", "1");
  CHECK(metrics.num_prompt_tokens == 14);
  CHECK(metrics.num_generation_tokens == 4);
}

}  // namespace TEST_FILE
