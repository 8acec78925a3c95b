// SPDX-License-Identifier: Apache-2.0
// `metronome sweep`: folders named by content, runs done once, summaries that depend on the points
// alone.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "core/base/json.h"
#include "study/sweep/sweep_plan.h"
#include "tests/catch.h"
#include "tests/study/sweep/sweep_place.h"

namespace TEST_FILE {

namespace fs = std::filesystem;
using namespace metronome;
using namespace metronome::testing;
namespace {

constexpr const char* kGrid =
    " --over workload.arrivals.rate=5,20 --over engine.max_num_seqs=2,4,8 ";  // 6 points

std::vector<std::string> ids(const SweepPlan& plan) {
  std::vector<std::string> all;
  for (const SweepRun& run : plan.runs) all.push_back(run.id);
  return all;
}

}  // namespace

TEST_CASE("a sweep writes a folder a point and summaries with vLLM's keys", "[sweep]") {
  const SweepPlace place;
  const CommandResult result = place.sweep(kGrid);
  require_done(result);
  CHECK(contains(result.out, "6 runs done now, 0 before, 0 failed"));
  CHECK(contains(result.out,
                 "* best of its column in its group; no value is the best of all 6 rows: "
                 "the runs had different"));
  const Json rows = place.summary();
  REQUIRE(rows.size() == 6);
  CHECK(rows[0].at("workload.arrivals.rate") == 5);
  CHECK(rows[1].at("engine.max_num_seqs") == 4);
  CHECK(rows[3].at("workload.arrivals.rate") == 20);
  for (const Json& row : rows) {
    // A row is what `metronome run` would say of the point, with what varied behind it.
    const std::string alone = place.folder.path() + "/alone";
    require_done(
        run_metronome("run '" + place.scenario + "' -q --out '" + alone +
                      "' --set workload.arrivals.rate=" + row.at("workload.arrivals.rate").dump() +
                      " --set engine.max_num_seqs=" + row.at("engine.max_num_seqs").dump()));
    Json expected = Json::parse(read_text_file(alone + "/summary.json"))[0];
    expected["workload.arrivals.rate"] = row.at("workload.arrivals.rate");
    expected["engine.max_num_seqs"] = row.at("engine.max_num_seqs");
    expected["point"] = row.at("point");
    CHECK(row.dump() == expected.dump());
    // Points write only result.json unless the scenario asks for more.
    const std::string id = row.at("point").string();
    CHECK(folder_content(place.out + "/" + id).size() == 1);
    const Json stored = Json::parse(read_text_file(place.out + "/" + id + "/result.json"));
    CHECK(stored.at("digest") == row.at("digest"));
    CHECK(stored.at("config").at("results").at("steps") == false);
  }
  // `vllm bench sweep plot` takes every summary.json below the folder.
  for (const auto& [name, text] : place.content()) {
    CHECK((name == "summary.json" || !contains(name, "summary.json")));
  }
}

TEST_CASE("summary.csv has the rows of summary.json", "[sweep]") {
  const SweepPlace place;
  // Rows with drafts have keys that the others lack.
  require_done(
      place.sweep("--over workload.arrivals.rate=5,inf --over slo.itl_ms=null "
                  "--set speculative.method=ngram --set scheduler.policy=vllm "
                  "--over speculative.num_speculative_tokens=0,2"));
  std::istringstream csv(read_text_file(place.out + "/summary.csv"));
  const auto cells = [&csv] {
    std::string line;
    std::getline(csv, line);
    std::vector<std::string> parts(1);
    bool is_quoted = false;  // no cell here has a quote of its own
    for (const char c : line) {
      if (c == '"') {
        is_quoted = !is_quoted;
      } else if (c == ',' && !is_quoted) {
        parts.emplace_back();
      } else {
        parts.back() += c;
      }
    }
    return parts;
  };
  const std::vector<std::string> names = cells();
  CHECK(std::set(names.begin(), names.end()).size() == names.size());
  std::set<std::size_t> widths;
  for (const Json& row : place.summary()) {
    const std::vector<std::string> line = cells();
    REQUIRE(line.size() == names.size());
    widths.insert(row.size());
    std::size_t num_found = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const Json* const value = row.find(names[i].c_str());
      num_found += value != nullptr ? 1 : 0;
      // Numbers are written as in summary.json, which may differ from this parser's digits.
      if (value != nullptr && value->is_number()) {
        CHECK(std::stod(line[i]) == value->get<double>());
      } else if (value == nullptr || value->is_null()) {
        CHECK(line[i].empty());
      } else {
        CHECK(line[i] == (value->is_string() ? value->get<std::string>() : value->dump()));
      }
    }
    CHECK(num_found == row.size());
  }
  CHECK(widths.size() == 2);
  CHECK(*widths.rbegin() == names.size());
}

TEST_CASE("the same bytes for any number of jobs, and nothing is run twice", "[sweep]") {
  const SweepPlace one, two;
  require_done(one.sweep(std::string(kGrid) + "--jobs 1"));
  require_done(two.sweep(std::string(kGrid) + "--jobs 3"));
  CHECK(one.content() == two.content());
  CHECK(one.logged("start").size() == 6);
  const CommandResult again = one.sweep(kGrid);
  require_done(again);
  CHECK(contains(again.out, "0 runs done now, 6 before"));
  CHECK(one.logged("start").size() == 6);
  CHECK(one.content() == two.content());
  // A larger sweep takes over what is there.
  require_done(one.sweep("--over workload.arrivals.rate=5,20 --over engine.max_num_seqs=2,4,8,16"));
  CHECK(one.logged("start").size() == 8);
  CHECK(one.summary().size() == 8);
}

TEST_CASE("processes that are killed or share a folder lose and repeat nothing", "[sweep]") {
  const SweepPlace place, undisturbed;
  const std::string grid =
      "--over seed=1:12:1 --set workload.num_requests=3000 --set workload.arrivals.rate=100 -q ";
  require_done(undisturbed.sweep(grid));
  // Each is killed when so many runs have begun, however fast this machine is.
  for (const char* begun : {"1", "3", "5", "8"}) {
    const std::string count = "cat \"" + place.log + "\" 2>/dev/null | grep -c ^start";
    place.sweep(grid + "-j 2", "sh -c '\"$@\" & p=$!; while kill -0 $p && [ \"$(" + count +
                                   ")\" -lt " + begun +
                                   " ]; do sleep 0.01; done; kill -s KILL $p; wait $p' sh");
  }
  REQUIRE(place.logged("start").size() >= 8);
  const std::vector<std::string> before = place.run_folders();
  const std::size_t num_before = place.logged("start").size();
  // Two at once.
  const std::string both = "sh -c '\"$@\" & p=$!; \"$@\"; r=$?; wait $p && exit $r' sh";
  require_done(place.sweep(grid + "-j 1", both));
  CHECK(place.content() == undisturbed.content());
  std::vector<std::string> started = place.logged("start");
  started.erase(started.begin(), started.begin() + static_cast<std::ptrdiff_t>(num_before));
  std::sort(started.begin(), started.end());
  CHECK(std::adjacent_find(started.begin(), started.end()) == started.end());
  for (const std::string& id : before) {
    if (!id.starts_with(".")) CHECK(std::count(started.begin(), started.end(), id) == 0);
  }
  for (const std::string& name : place.run_folders()) CHECK_FALSE(name.starts_with("."));
}

TEST_CASE("two processes at once share the work", "[sweep]") {
  const SweepPlace place, alone;
  const std::string grid = "--over seed=1:60:1 --set workload.num_requests=500 -q ";
  require_done(alone.sweep(grid));
  const std::string both = "sh -c '\"$@\" & p=$!; \"$@\"; r=$?; wait $p && exit $r' sh";
  require_done(place.sweep(grid + "-j 1", both));
  CHECK(place.content() == alone.content());
  std::vector<std::string> started = place.logged("start");
  CHECK(started.size() == 60);
  std::sort(started.begin(), started.end());
  CHECK(std::adjacent_find(started.begin(), started.end()) == started.end());
  CHECK(place.logged("done").size() == 60);
}

TEST_CASE("Ctrl-C leaves what is done", "[sweep]") {
  const SweepPlace place;
  const std::string grid = "--over seed=1:8:1 --over workload.num_requests=100,3000000 -j 2 ";
  const CommandResult result = place.sweep(grid, interrupted_by("INT", 100));
  INFO(result.err);
  CHECK(result.exit_code == 130);
  CHECK(contains(result.err, "and the same command continues from there"));
  CHECK_FALSE(fs::exists(place.out + "/summary.json"));
  for (const std::string& name : place.run_folders()) CHECK_FALSE(name.starts_with("."));
}

TEST_CASE("variants are run at every point, equal ones once", "[sweep]") {
  const SweepPlace place;
  place.folder.write("small.yaml", std::string(kSmallScenario) + kTwoVariants);
  require_done(place.sweep("--over variants.pieces.scheduler.prefill_chunk_size=64,256"));
  const Json rows = place.summary();
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].at("label") == "whole");
  CHECK(rows[1].at("label") == "pieces");
  CHECK(rows[0].at("point") == rows[2].at("point"));
  CHECK(rows[1].at("point") != rows[3].at("point"));
  CHECK(rows[3].at("variants.pieces.scheduler.prefill_chunk_size") == 256);
  CHECK(place.logged("start").size() == 3);
  // Both at one setting are two runs all the same: their labels differ.
  require_done(
      place.sweep("--over scheduler.order=fcfs --set variants.whole.scheduler.policy=chunked "
                  "--set variants.whole.scheduler.prefill_chunk_size=128"));
  CHECK(place.summary()[0].at("point") != place.summary()[1].at("point"));
}

TEST_CASE("lengths that are cut below their median are warned of once", "[sweep][tune]") {
  const ScratchFolder folder;
  const std::string scenario = folder.write("small.yaml", kSmallScenario);
  const std::string rest =
      scenario +
      " --quiet --set 'workload.prompt_tokens={distribution: lognormal, median: "
      "800, p99: 4000, max: 512}' --over engine.max_num_seqs=4,8";
  for (const std::string command : {"sweep ", "tune --set slo.ttft_ms=500 --time-limit 1 "}) {
    const std::string out = folder.path() + "/" + command.substr(0, command.find(' '));
    const CommandResult result = run_metronome(command + rest + " --out '" + out + "'");
    INFO(result.err);
    const std::size_t first = result.err.find("warning: workload.prompt_tokens.max 512 is below");
    CHECK(first != std::string::npos);
    CHECK(result.err.find("prompt_tokens.max 512 is below", first + 40) == std::string::npos);
  }
}

TEST_CASE("a variant that a key does not vary is named", "[sweep]") {
  const SweepPlace place;
  place.folder.write("small.yaml", std::string(kSmallScenario) + kTwoVariants);
  const auto warnings = [&place](const std::string& options) {
    const CommandResult result = place.sweep(options);
    CHECK(result.exit_code == 0);
    return result.err;
  };
  // Only `pieces` has chunks of its own.
  const std::string chunks = "--set variants.whole.scheduler.policy=chunked ";
  CHECK(contains(warnings(chunks + "--over scheduler.prefill_chunk_size=64,256"),
                 "--over scheduler.prefill_chunk_size: does not vary pieces, which is the same for "
                 "all its values"));
  CHECK(warnings("--over engine.max_num_seqs=2,4") == "");
  CHECK(warnings("--over variants.pieces.scheduler.prefill_chunk_size=64,256") == "");
}

TEST_CASE("a key that changes no run is refused", "[sweep]") {
  const SweepPlace place;
  place.folder.write("small.yaml", std::string(kSmallScenario) + kTwoVariants);
  const auto is_refused = [&place](const std::string& options) {
    const CommandResult result = place.sweep(options + " --dry-run");
    INFO(result.err);
    CHECK((result.exit_code == 2) ==
          contains(result.err, ": has no effect: every run is the same"));
    return result.exit_code == 2;
  };
  const std::string chunk = "--over variants.pieces.scheduler.prefill_chunk_size=64,256 ";
  CHECK(is_refused("--variant whole " + chunk));
  CHECK(is_refused("--variant whole --over seed=1,2 " + chunk));
  CHECK(is_refused("--variant whole " + chunk + "--over seed=1,2"));
  CHECK(is_refused("--over description=a,b"));
  CHECK_FALSE(is_refused(chunk));
  CHECK_FALSE(is_refused(chunk + "--over seed=1,2,3 --over engine.max_num_seqs=2,4"));
  CHECK_FALSE(
      is_refused("--variant whole --over variants.pieces.scheduler.prefill_chunk_size=64 "
                 "--over seed=1,2"));
  place.folder.write("small.yaml", std::string(kSmallScenario) + kTwoVariants +
                                       "sweep: {points: [{seed: 1}, {seed: 2}, {seed: 3}]}\n");
  CHECK_FALSE(is_refused(chunk));
  CHECK(is_refused("--variant whole " + chunk));
}

TEST_CASE("an id stands for all that a result depends on", "[sweep]") {
  const SweepPlace place;
  const std::string trace = place.folder.write("t.csv",
                                               "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                               "2023-11-16 18:15:46.6805900,374,44\n"
                                               "2023-11-16 18:15:50.9951690,396,109\n");
  SweepRequest traced;
  traced.assignments = {"workload.trace=" + trace};
  const std::vector<std::string> over = {"seed=1,2"};
  const auto base = ids(plan_of(place, over));
  CHECK(ids(plan_of(place, over)) == base);
  CHECK(base[0] != base[1]);
  CHECK(base[0].size() == 32);
  // Listed the other way around, as a setting, as the seed: the same runs.
  CHECK(ids(plan_of(place, {"seed=2,1"})) == std::vector<std::string>{base[1], base[0]});
  CHECK(ids(plan_of(place, {"seed=1", "hardware=h200"}))[0] == base[0]);
  std::set<std::string> all(base.begin(), base.end());
  const auto is_new = [&](const SweepPlan& plan) {
    for (const std::string& id : ids(plan)) CHECK(all.insert(id).second);
  };
  is_new(plan_of(place, {"seed=1,2", "slo.itl_ms=30"}));
  is_new(plan_of(place, {"seed=1,2", "hardware=h100-sxm"}));
  is_new(plan_of(place, {"seed=1,2", "results.steps=true"}));
  is_new(plan_of(place, over, traced));
  std::ofstream(trace, std::ios::app) << "2023-11-16 18:15:55.0000000,10,10\n";
  is_new(plan_of(place, over, traced));  // same path, other content
  SweepRequest changed;
  changed.program = "0123456789abcdef";
  is_new(plan_of(place, over, changed));
  SweepRequest computed;
  computed.backend = "cpu";
  computed.num_runs = 3;
  const SweepPlan runs = plan_of(place, over, computed);
  CHECK(runs.rows.size() == 6);
  is_new(runs);
}

TEST_CASE("the digest of the sources stands for their names and contents", "[sweep]") {
  const ScratchFolder folder;
  const auto digest = [&folder](const std::string& files) {
    const std::string out = folder.path() + "/digest.cpp";
    const std::string command = "cmake -DROOT=" + folder.path() + " '-DFILES=" + files +
                                "' -DOUTPUT=" + out + " -P '" + source_dir() +
                                "/tools/source_digest.cmake'";
    REQUIRE(std::system(command.c_str()) == 0);
    const std::string text = read_text_file(out);
    const std::size_t start = text.find(" = \"") + 4;
    return text.substr(start, text.find('"', start) - start);
  };
  folder.write("a.h", "one");
  folder.write("b.h", "two");
  const std::string first = digest("a.h;b.h");
  CHECK(first.size() == 16);
  CHECK(kSourceDigest.size() == 16);
  CHECK(digest("a.h;b.h") == first);
  CHECK(digest("a.h") != first);
  folder.write("c.h", "one");
  CHECK(digest("c.h") != digest("a.h"));
  folder.write("b.h", "three");
  CHECK(digest("a.h;b.h") != first);
  folder.write("a.h", "two");
  folder.write("b.h", "one");
  CHECK(digest("a.h;b.h") != first);
}

TEST_CASE("a key that a point does not set is what its configuration says", "[sweep]") {
  const SweepPlace place;
  place.folder.write("small.yaml",
                     std::string(kSmallScenario) +
                         "sweep:\n  points:\n    - {workload.arrivals.rate: 20}\n"
                         "    - {scheduler.policy: chunked, scheduler.prefill_chunk_size: 64}\n"
                         "    - {scheduler.policy: static}\n");
  require_done(place.sweep(""));
  const Json rows = place.summary();
  REQUIRE(rows.size() == 3);
  CHECK(rows[1].at("workload.arrivals.rate") == 10);
  CHECK(rows[1].at("scheduler.prefill_chunk_size") == 64);
  CHECK(rows[2].at("scheduler.prefill_chunk_size").is_null());
  CHECK(rows[2].at("scheduler.policy") == "static");
}

TEST_CASE("a key has the value that is in force in the row", "[sweep]") {
  const SweepPlace place;
  place.folder.write("small.yaml",
                     std::string(kSmallScenario) +
                         "scheduler: {policy: chunked}\n"
                         "variants:\n"
                         "  - {name: plain}\n"
                         "  - {name: own, engine: {max_num_seqs: 3}, slo: {ttft_ms: 9}}\n"
                         "  - {name: whole, scheduler: {policy: static}}\n");
  const CommandResult result = place.sweep(
      "--over engine.max_num_seqs=4,5 --over scheduler.prefill_chunk_size=64,128 "
      "--over 'slo={itl_ms: 30}' --over variants.own.seed=7");
  require_done(result);
  // Of `own` two rows look the same, and of `whole` two as well, at each of two settings.
  CHECK(contains(result.out, "of all 8 rows"));
  const Json rows = place.summary();
  REQUIRE(rows.size() == 12);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool is_own = i % 3 == 1;
    const std::size_t num_seqs = i < 6 ? 4 : 5;
    const std::size_t chunk = i / 3 % 2 == 0 ? 64 : 128;
    INFO(rows[i].dump(2));
    CHECK(rows[i].at("engine.max_num_seqs") == (is_own ? 3 : num_seqs));
    CHECK(rows[i].at("scheduler.prefill_chunk_size") == (i % 3 == 2 ? Json(nullptr) : Json(chunk)));
    // A variant may have a part of a section.
    CHECK(contains(rows[i].at("slo").string(), "ttft_ms\":9") == is_own);
    CHECK(contains(rows[i].at("slo").string(), is_own ? "itl_ms\":30" : "{itl_ms: 30}"));
    // A key of one variant tells the rows of all of them apart.
    CHECK(rows[i].at("variants.own.seed") == 7);
    CHECK(rows[i].at("seed") == (is_own ? 7 : 3));
  }
  CHECK(rows[1].at("point") == rows[7].at("point"));
}

namespace {

// The lines of a sweep's table, the header first, up to what its marks mean.
std::vector<std::string> table_lines(const std::string& out) {
  std::istringstream text(out.substr(out.find("\n\n") + 2));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line) && !contains(line, "best");) {
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

TEST_CASE("a sweep marks and sorts only rows that compare", "[sweep]") {
  const SweepPlace place;
  const auto first_cells = [](const std::vector<std::string>& lines) {
    std::string cells;
    for (const std::string& line : lines) cells += line.substr(0, line.find(' ')) + ",";
    return cells;
  };
  SECTION("all of them") {
    const CommandResult result = place.sweep(
        "--over engine.max_num_seqs=1,2,8 "
        "--set cost_model.eager_us_per_layer=0");
    CHECK(contains(result.out, "* best of its column, of all 3 rows; latencies in ms; sorted by"));
    CHECK_FALSE(contains(result.out, "completed"));
    // By the longest gap: the p99 of 2 and 8 does not see the gaps in which they computed prompts.
    CHECK(first_cells(table_lines(result.out)) == "max_num_seqs,1,2,8,");
    CHECK(contains(result.out, "*  "));
  }
  SECTION("none, by their workloads") {
    const CommandResult result = place.sweep("--over workload.arrivals.rate=20,1,5");
    CHECK(contains(result.out,
                   "no value is marked as the best: the runs had different workloads; latencies"));
    CHECK(first_cells(table_lines(result.out)) == "rate,20,1,5,");
    CHECK_FALSE(contains(result.out, "*"));
  }
  SECTION("none, by their limits") {
    const CommandResult result = place.sweep("--over slo.itl_ms=3,100,5");
    CHECK(contains(result.out, "no value is marked as the best: the runs had different SLOs"));
    CHECK(first_cells(table_lines(result.out)) == "itl_ms,3,100,5,");
    CHECK_FALSE(contains(result.out, "*"));
  }
  SECTION("those that completed the same requests") {
    const CommandResult result = place.sweep(
        "--over kv_cache.num_blocks=20,400,500,600 --over engine.max_num_seqs=2,8 "
        "--set slo.ttft_ms=50");
    CHECK(contains(result.out, "no value is the best of all 8 rows: the runs did not complete"));
    const std::vector<std::string> lines = table_lines(result.out);
    REQUIRE(lines.size() == 1 + 2 + 1 + 6);
    CHECK(contains(lines[0], "num_blocks  max_num_seqs  completed  TTFT p50"));
    CHECK((contains(lines[1], "20 ") && contains(lines[2], "20 ") && lines[3].empty()));
    for (std::size_t i = 4; i < lines.size(); ++i) CHECK(contains(lines[i], "  20         "));
    const auto has_mark = [](const std::string& line) { return contains(line, "*"); };
    CHECK(std::any_of(lines.begin() + 4, lines.end(), has_mark));
  }
}

TEST_CASE("a warning of a sweep names its point", "[sweep]") {
  const SweepPlace place;
  const CommandResult result =
      place.sweep("--over kv_cache.num_blocks=20 --over engine.max_num_seqs=2");
  require_done(result);
  CHECK(contains(result.err,
                 "warning: small kv_cache.num_blocks=20 engine.max_num_seqs=2: 17 of 20 requests "
                 "can never fit"));
}

TEST_CASE("--dry-run lists the points and writes nothing", "[sweep]") {
  const SweepPlace place;
  const CommandResult result =
      place.sweep("--over seed=1,2 --over engine.max_num_seqs=4 --dry-run");
  require_done(result);
  CHECK(contains(result.out, "  small seed=2 engine.max_num_seqs=4\n"));
  CHECK(std::count(result.out.begin(), result.out.end(), '\n') == 2);
  CHECK_FALSE(fs::exists(place.out));
}

TEST_CASE("--json prints the summary and nothing else", "[sweep]") {
  const SweepPlace place;
  const CommandResult result = place.sweep("--over seed=1,2 --json");
  require_done(result);
  CHECK(result.out == read_text_file(place.out + "/summary.json"));
}

}  // namespace TEST_FILE
