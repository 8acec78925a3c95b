// SPDX-License-Identifier: Apache-2.0
// The table of figures: every list names rows of it, and values are found by key.
#include <cmath>
#include <set>
#include <string>

#include "core/metrics/figures.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;

namespace {

void check_shown(std::span<const std::string_view> keys) {
  std::set<std::string_view> seen;
  for (const std::string_view key : keys) {
    INFO(key);
    CHECK_FALSE(figure(key).shown.name.empty());
    CHECK(seen.insert(key).second);
  }
}

}  // namespace

TEST_CASE("a figure has one row, and lists name rows that are shown", "[metrics]") {
  std::set<std::string> keys;
  for (const Figure& one : all_figures()) {
    INFO(one.key);
    CHECK(keys.insert(one.key).second);
    CHECK_FALSE(one.meaning.empty());
  }
  for (const FigureBlock& block : figure_blocks()) check_shown(block.keys);
  std::size_t num_lists = 0;
  for (auto list = FigureList::Sweep; !figures_of(list).empty();
       list = static_cast<FigureList>(static_cast<int>(list) + 1)) {
    ++num_lists;
    check_shown(figures_of(list));
  }
  CHECK(num_lists == 11);
}

TEST_CASE("values of figures are found by key, and those of a distribution together", "[metrics]") {
  Summary summary;
  summary.itl = {.mean_ms = 4, .std_ms = 1, .min_ms = 2, .p50_ms = 3, .max_ms = 9};
  summary.output_throughput = 100;
  RunFacts facts;
  facts.num_gpus = 2;
  FigureValues values(summary, facts);
  CHECK(values.number("output_tokens_per_s_per_gpu") == 50);
  CHECK(values.distribution("itl").mean_ms == 4);
  CHECK(values.distribution("itl").p50_ms == 3);
  CHECK(values.distribution("itl").max_ms == 9);
  CHECK(std::isnan(values.distribution("itl").p99_ms));
  CHECK(std::isnan(FigureValues().number("output_throughput")));
  values.set("output_throughput", 7);
  CHECK(values.number("output_throughput") == 7);
}

}  // namespace TEST_FILE
