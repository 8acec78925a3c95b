// SPDX-License-Identifier: Apache-2.0
// Pages of real servers, and hostile ones.
#include <cstdlib>
#include <optional>
#include <set>
#include <string>

#include "engines/metrics/server_metrics.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/scratch_folder.h"
#include "tests/shared_data.h"

namespace metronome::testing::TEST_FILE {
namespace {

using Figure = ServerFigure;

ServerMetrics page(const std::string& text) {
  std::string why;
  const auto metrics = read_server_metrics(text, why);
  INFO(why);
  REQUIRE(metrics);
  return *metrics;
}

// The text of a packed file.
std::optional<std::string> unpacked(const std::string& path) {
  const auto packed = shared_path(path);
  if (!packed) return std::nullopt;
  const ScratchFolder scratch;
  const std::string file = scratch.path() + "/page.txt";
  REQUIRE(std::system(("xz -dc '" + *packed + "' > '" + file + "'").c_str()) == 0);
  return read_text_file(file);
}

}  // namespace

TEST_CASE("a page of vLLM has figures for each engine", "[metrics]") {
  const ServerMetrics metrics = page(R"(process_start_time_seconds 1.5e9
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 5.0
vllm:num_requests_waiting{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="1",model_name="m",reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:gpu_cache_usage_perc{engine="1",model_name="m"} 0.7
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 4.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 6.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.5",model_name="m"} 2.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 3.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 3.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 4.5
vllm:time_to_first_token_seconds_created{engine="0",model_name="m"} 1.7e9
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1000"} 1.0
)");
  CHECK(metrics.names->title == "vLLM");
  CHECK(metrics.models == std::set<std::string>{"m"});
  CHECK(metrics.started_at == 1.5e9);
  CHECK(metrics.block_size == 16);
  CHECK(metrics.num_blocks == 1000);
  REQUIRE(metrics.engines.size() == 2);
  const EngineFigures& first = metrics.engines.at(0);
  const EngineFigures& second = metrics.engines.at(1);
  CHECK(first.number(Figure::Running) == 3);
  CHECK_FALSE(first.number(Figure::Waiting));
  CHECK(first.number(Figure::Ended) == 10);
  CHECK(first.histogram(Figure::Ttft).counts == std::vector<double>{2, 3});
  CHECK(first.histogram(Figure::Ttft).sum == 4.5);
  CHECK(second.number(Figure::CacheUse) == 0.75);  // the newer name counts
  const EngineFigures all = all_engines_together(metrics.engines);
  CHECK(all.number(Figure::Running) == 8);
  CHECK(all.number(Figure::Waiting) == 2);
  CHECK(all.number(Figure::CacheUse) == 0.75);
  CHECK(all.number(Figure::Ended) == 10);
}

TEST_CASE("a page of SGLang counts an engine's workers once", "[metrics]") {
  const ServerMetrics metrics = page(R"(
sglang:num_running_reqs{dp_rank="1",engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 7
sglang:num_running_reqs{dp_rank="1",engine_type="unified",model_name="m",pp_rank="0",tp_rank="1"} 7
sglang:num_queue_reqs{model_name="m"} 2.0
sglang:token_usage{model_name="m"} 0.28
sglang:cache_hit_rate{model_name="m"} 0.5
sglang:time_per_output_token_seconds_bucket{le="0.01",model_name="m"} 4
sglang:time_per_output_token_seconds_bucket{le="+Inf",model_name="m"} 5
)");
  CHECK(metrics.names->policy == "sglang");
  CHECK(metrics.engines.at(1).number(Figure::Running) == 7);
  CHECK(metrics.engines.at(0).number(Figure::Waiting) == 2);
  CHECK(metrics.engines.at(0).number(Figure::HitRate) == 0.5);
  CHECK(metrics.engines.at(0).histogram(Figure::Itl).count() == 5);
}

TEST_CASE("with data-parallel attention each rank has workers of its own", "[metrics]") {
  const ServerMetrics metrics = page(R"(
sglang:num_running_reqs{dp_rank="0",moe_ep_rank="0",tp_rank="0"} 10
sglang:num_running_reqs{dp_rank="1",moe_ep_rank="1",tp_rank="1"} 40
sglang:token_usage{dp_rank="1",moe_ep_rank="1",tp_rank="1",model_name="a"} 0.9
sglang:token_usage{dp_rank="1",moe_ep_rank="1",tp_rank="1",model_name="b"} 0.5
)");
  CHECK(metrics.engines.at(0).number(Figure::Running) == 10);
  CHECK(metrics.engines.at(1).number(Figure::Running) == 40);
  CHECK(metrics.engines.at(1).number(Figure::CacheUse) == 0.9);  // shares are not added
}

TEST_CASE("counters that fall are those of a server that started again", "[metrics]") {
  EngineFigures before;
  EngineFigures now;
  const auto set = [](EngineFigures& engine, Figure figure, double value) {
    engine.numbers[static_cast<std::size_t>(figure)] = value;
  };
  set(before, Figure::Running, 9);
  set(before, Figure::OutputTokens, 100);
  set(now, Figure::Running, 2);
  set(now, Figure::OutputTokens, 130);
  const auto since = figures_since(before, now);
  REQUIRE(since);
  CHECK(since->number(Figure::Running) == 2);  // a state
  CHECK(since->number(Figure::OutputTokens) == 30);
  set(now, Figure::OutputTokens, 5);
  CHECK_FALSE(figures_since(before, now));
}

TEST_CASE("pages of other servers are refused with a reason", "[metrics]") {
  std::string why;
  CHECK_FALSE(read_server_metrics("<html><body>Not found</body></html>", why));
  CHECK(why == "is no page of metrics");
  CHECK_FALSE(read_server_metrics("go_goroutines 7\nup 1\n", why));
  CHECK(why.starts_with("has metrics, but none of vLLM"));
  CHECK_FALSE(read_server_metrics("vllm:num_requests_running nan\n", why));
  CHECK_FALSE(read_server_metrics("vllm:num_requests_running -3\n", why));
  CHECK_FALSE(read_server_metrics("vllm:num_requests_running_total 3\n", why));
  CHECK_FALSE(read_server_metrics("vllm:num_requests_running 1e300\n", why));
  const ServerMetrics odd = page(
      "vllm:inter_token_latency_seconds_bucket{le=\"-Inf\"} 1\n"
      "vllm:inter_token_latency_seconds_bucket{le=\"1e308\"} 1\n"
      "vllm:inter_token_latency_seconds_bucket{le=\"NaN\"} 1\n"
      "vllm:inter_token_latency_seconds_bucket{le=\"2\"} 1\n");
  CHECK(odd.engines.at(0).histogram(Figure::Itl).bounds.size() == 2);  // and infinity
}

TEST_CASE("a page cannot make the reader keep much", "[metrics]") {
  std::string text;
  for (int i = 0; i < 30'000; ++i) {
    const std::string n = std::to_string(i);
    text += "vllm:num_requests_running{engine=\"" + n + "\",model_name=\"m" + n + "\"} 1\n";
    text += "vllm:inter_token_latency_seconds_bucket{engine=\"0\",le=\"" + n + "\"} " + n + "\n";
  }
  const ServerMetrics metrics = page(text);
  CHECK(metrics.engines.size() == 10'000);
  CHECK(metrics.models.size() == 10'000);
  CHECK(metrics.engines.at(0).histogram(Figure::Itl).bounds.size() == 1'001);
}

TEST_CASE("the pages before and after a real run say what the client counted", "[metrics]") {
  const auto before = unpacked("data/real_vllm/A2048/metrics_before.txt.xz");
  const auto after = unpacked("data/real_vllm/A2048/metrics_after.txt.xz");
  if (!before || !after) return;
  const ServerMetrics first = page(*before);
  const ServerMetrics last = page(*after);
  const auto since = figures_since(first.engines.at(0), last.engines.at(0));
  REQUIRE(since);
  // bench.json: num_prompts, total_input_tokens, total_output_tokens.
  CHECK(since->number(Figure::Ended) == 60);
  CHECK(since->number(Figure::PromptTokens) == 36'750);
  CHECK(since->number(Figure::OutputTokens) == 3'259);
  CHECK(since->histogram(Figure::Ttft).count() == 60);
  CHECK(last.block_size == 128);
  CHECK(last.num_blocks == 728);
  CHECK(last.models == std::set<std::string>{"smollm2"});
  CHECK(last.num_broken == 0);
  // The client sees tokens a little later: median_itl_ms 76.5, p99_itl_ms 1540.2.
  const BucketCounts& itl = since->histogram(Figure::Itl);
  CHECK(itl.count() == 3'259 - 60);
  const auto median = quantile_band(itl, 0.5);
  const auto most = quantile_band(itl, 0.99);
  REQUIRE(median);
  REQUIRE(most);
  CHECK((median->least <= 0.0765 && 0.0765 <= median->most + 0.002));
  CHECK((most->least <= 1.54 && 1.54 <= most->most));
}

}  // namespace metronome::testing::TEST_FILE
