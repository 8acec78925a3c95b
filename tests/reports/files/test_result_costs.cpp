// SPDX-License-Identifier: Apache-2.0
// The figures of users, GPUs and money in result.json.
#include "core/base/json.h"
#include "reports/files/result_files.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;

TEST_CASE("result.json gives tokens per second of a user and of a GPU", "[reports][result]") {
  RunResult result;
  result.info.tensor_parallel_size = 2;
  result.summary.tpot.mean_ms = 12.5;
  result.summary.output_throughput = 500;
  result.summary.duration_ns = 90 * kNsPerSecond;
  const Json json = Json::parse(result_json(result));
  CHECK(json["output_tokens_per_s_per_user"] == 80);
  CHECK(json["output_tokens_per_s_per_gpu"] == 250);
  CHECK(json["gpu_hours"] == 0.05);
  CHECK(json["price_per_gpu_hour"].is_null());
  CHECK(json["cost_per_million_output_tokens"].is_null());

  // Two GPUs cost 9 an hour, in which they give 1.8 million output tokens and twice as many in all.
  result.info.price_per_gpu_hour = 4.5;
  result.summary.total_token_throughput = 1000;
  const Json priced = Json::parse(result_json(result));
  CHECK(priced["price_per_gpu_hour"] == 4.5);
  CHECK(priced["cost_per_million_output_tokens"] == 5);
  CHECK(priced["cost_per_million_tokens"] == 2.5);
}

}  // namespace TEST_FILE
