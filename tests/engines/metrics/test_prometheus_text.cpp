// SPDX-License-Identifier: Apache-2.0
// Pages of metrics: every form of a sample, and bytes that are none.
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "engines/metrics/prometheus_text.h"
#include "tests/catch.h"

namespace metronome::testing::TEST_FILE {
namespace {

struct Read {
  std::vector<MetricSample> samples;
  std::vector<std::string> names;
  MetricsRead counts;
};

Read read(std::string_view page) {
  Read all;
  all.counts = read_metrics(page, [&all](const MetricSample& sample) {
    all.names.emplace_back(sample.name);
    all.samples.push_back(sample);
  });
  return all;
}

}  // namespace

TEST_CASE("a page has samples with labels and values of every form", "[metrics]") {
  const std::string page =
      "# HELP a:b_total What it \"counts\"\\n\n"
      "# TYPE a:b_total counter\n"
      "a:b_total 3\n"
      "a:b_total{} 4.5\n"
      "  spaced { x = \"1\" , y=\"2\", } 1e+05 1395066363000\r\n"
      "escaped{path=\"C:\\\\DIR\",text=\"a\\nb \\\"c\\\" } , \\q\"} +Inf\n"
      "not_a_number NaN\n"
      "least{le=\"+Inf\"} -Inf # {trace_id=\"x\"} 0.5\n"
      "\n"
      "# EOF\n"
      "unended 7";
  const Read all = read(page);
  CHECK(all.names == std::vector<std::string>{"a:b_total", "a:b_total", "spaced", "escaped",
                                              "not_a_number", "least", "unended"});
  CHECK(all.counts.num_samples == 7);
  CHECK(all.counts.num_broken == 0);
  CHECK(all.samples[0].value == 3);
  CHECK(all.samples[1].value == 4.5);
  CHECK(all.samples[2].value == 1e5);
  CHECK(*all.samples[2].label("x") == "1");
  CHECK(*all.samples[2].label("y") == "2");
  CHECK(all.samples[2].label("z") == nullptr);
  CHECK(*all.samples[3].label("path") == "C:\\DIR");
  CHECK(*all.samples[3].label("text") == "a\nb \"c\" } , \\q");
  CHECK(all.samples[3].value == std::numeric_limits<double>::infinity());
  CHECK(std::isnan(all.samples[4].value));
  CHECK(all.samples[5].value == -std::numeric_limits<double>::infinity());
  CHECK(all.samples[6].value == 7);
}

TEST_CASE("lines that are no samples are counted, and the others read", "[metrics]") {
  for (const char* line :
       {"<html>", "a", "a{", "a{x}", "a{x=1} 2", "a{x=\"1} 2", "a{x=\"1\"", "a{x=\"1\" y=\"2\"} 3",
        "a{x=\"1\"}", "a b", "a 1 b", "a 1 2 3", "a --1", "a 0x10", "a 1.2.3", "a +-1", "1a 2",
        "{\"quoted\"} 1", "a{x=\"\\", "a nano", "a 1,000"}) {
    INFO(line);
    const Read all = read("good 1\n" + std::string(line) + "\nalso{a=\"b\"} 2\n");
    CHECK(all.names == std::vector<std::string>{"good", "also"});
    CHECK(all.counts.num_broken == 1);
    CHECK(all.counts.first_broken == 2);
  }
  CHECK(read("").counts.num_samples == 0);
  CHECK(read(std::string(3, '\0')).counts.num_broken == 1);
}

TEST_CASE("random changes of a page break lines, and nothing else", "[metrics]") {
  const std::string page =
      "# TYPE x histogram\nx_bucket{le=\"0.5\",m=\"a\\\"b\"} 3\nx_sum 1.5 17\nx_count 3 # {} 1\n";
  const std::uint32_t seed = 17;
  std::mt19937 random(seed);
  INFO("seed " << seed);
  for (int i = 0; i < 20'000; ++i) {
    std::string changed = page;
    for (int k = 0; k < 3; ++k) changed[random() % changed.size()] = static_cast<char>(random());
    changed.resize(random() % (changed.size() + 1));
    const Read all = read(changed);
    CHECK(all.counts.num_samples == static_cast<std::int64_t>(all.samples.size()));
    CHECK(all.counts.num_samples + all.counts.num_broken <=
          std::count(changed.begin(), changed.end(), '\n') + 1);
  }
}

}  // namespace metronome::testing::TEST_FILE
