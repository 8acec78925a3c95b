// SPDX-License-Identifier: Apache-2.0
// The order of a sweep's table and its marks: the steadiest is not the row with the rarest and
// longest stalls, and a mark needs more than noise.
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/study/sweep/sweep_place.h"

namespace TEST_FILE {
using namespace metronome::testing;

namespace {

// An answer, and a long prompt that arrives while it is given.
constexpr const char* kOneLongPrompt = R"(model: llama-3.1-8b
hardware: rtx-4090
quantization: int4
engine: {max_num_seqs: 8, max_model_len: 40960}
)";

// The rows of the table, by the first cell, as cells by title; and the first cells in order.
struct Table {
  std::vector<std::string> order;
  std::map<std::string, std::map<std::string, std::string>> cells;

  explicit Table(const std::string& out) {
    std::istringstream text(out.substr(out.find("\n\n") + 2));
    std::string line;
    std::getline(text, line);
    // Titles have single spaces within, and at least two between them.
    std::vector<std::pair<std::string, std::size_t>> titles;  // and where the column begins
    for (std::size_t at = 0; at < line.size();) {
      const std::size_t end = std::min(line.find("  ", at), line.size());
      titles.emplace_back(line.substr(at, end - at), at);
      at = std::min(line.find_first_not_of(' ', end), line.size());
    }
    while (std::getline(text, line) && !line.starts_with("* best") && !line.empty()) {
      const std::string name = line.substr(0, line.find(' '));
      order.push_back(name);
      for (const auto& [title, begin] : titles) {
        if (begin >= line.size()) continue;
        const std::string rest = line.substr(begin);
        cells[name][title] = rest.substr(0, rest.find(' '));
      }
    }
  }
  bool is_marked(const std::string& row, const std::string& title) const {
    return cells.at(row).at(title).ends_with('*');
  }
};

struct Swept {
  ScratchFolder scratch;
  CommandResult result;

  Swept(const std::string& scenario, const std::string& trace, const std::string& over) {
    scratch.write("t.csv", "arrival_s,prompt_tokens,output_tokens\n" + trace);
    const std::string path = scratch.write("s.yaml", scenario);
    result =
        run_metronome("sweep '" + path + "' --out '" + scratch.path() + "/out' --over " + over);
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
  }
};

constexpr const char* kWorkload = "workload: {trace: {file: t.csv, format: vidur}}\n";

}  // namespace

TEST_CASE("a sweep does not put the rarest and longest stalls first", "[sweep][cli]") {
  struct Case {
    std::string scheduler;
    std::string over;
    std::vector<std::string> order;
  };
  for (const Case& one :
       {Case{"scheduler: {policy: llama_cpp}\n",
             "scheduler.n_batch=16384,2048,8192,4096",
             {"2048", "4096", "8192", "16384"}},
        Case{"scheduler: {policy: vllm, version: \"0.33\"}\nkv_cache: {num_blocks: 4000}\n",
             "scheduler.max_num_batched_tokens=32768,1024,8192",
             {"1024", "8192", "32768"}}}) {
    CAPTURE(one.over);
    const Swept swept(std::string(kOneLongPrompt) + one.scheduler + kWorkload,
                      "0,100,400\n1,32000,8\n", one.over);
    INFO(swept.result.out);
    const Table table(swept.result.out);
    CHECK(table.order == one.order);
    CHECK(table.is_marked(one.order.front(), "longest"));
    // The p99 of the last is the lowest, and says nothing.
    CHECK_FALSE(table.is_marked(one.order.back(), "ITL p99"));
    CHECK_FALSE(table.is_marked(one.order.back(), "longest"));
    CHECK(contains(swept.result.out, "sorted by longest"));
    CHECK(contains(swept.result.out, "fewer than 1 % of the gaps"));
  }
}

TEST_CASE("figures within 1 % have no mark, and of equal goodputs the steadiest is first",
          "[sweep][cli]") {
  // All requests keep the limits: goodputs differ by the end of the last request alone.
  std::string trace;
  for (int i = 0; i < 60; ++i) {
    trace += std::to_string(0.32 * i) + "," + (i % 3 == 0 ? "6000" : "200") + ",60\n";
  }
  const Swept swept(std::string(kOneLongPrompt) +
                        "scheduler: {policy: vllm}\nslo: {ttft_ms: 20000, itl_ms: 20000}\n" +
                        kWorkload,
                    trace, "scheduler.max_num_batched_tokens=8192,512,2048");
  INFO(swept.result.out);
  const Table table(swept.result.out);
  CHECK(table.order.front() == "512");
  CHECK(table.is_marked("512", "ITL p99"));
  CHECK(table.is_marked("512", "longest"));
  for (const std::string& row : table.order) {
    CHECK_FALSE(table.is_marked(row, "goodput/s"));
    CHECK_FALSE(table.is_marked(row, "out tok/s"));
  }
  CHECK(contains(swept.result.out, "figures within 1 %"));
}

TEST_CASE("a sweep runs again what another content of any file changes", "[sweep][cli]") {
  const ScratchFolder scratch;
  const std::string acceptance =
      "SpecDecoding metrics: Mean acceptance length: 2.50, Accepted: 150 "
      "tokens, Drafted: 200 tokens, Per-position acceptance rate: ";
  scratch.write("log.txt", acceptance + "0.800, 0.700\n");
  const std::string path = scratch.write(
      "s.yaml", std::string(kSmallScenario) +
                    "scheduler: {policy: vllm}\nspeculative: {method: eagle, "
                    "num_speculative_tokens: 2, acceptance: {kind: log, log: log.txt}}\n");
  const std::string command =
      "sweep '" + path + "' --over seed=1,2 --out '" + scratch.path() + "/out'";
  const CommandResult first = run_metronome(command);
  INFO(first.err);
  REQUIRE(first.exit_code == 0);
  CHECK(contains(run_metronome(command).out, "0 runs done now, 2 before"));
  scratch.write("log.txt", acceptance + "0.500, 0.100\n");
  CHECK(contains(run_metronome(command).out, "2 runs done now, 0 before"));
}

}  // namespace TEST_FILE
