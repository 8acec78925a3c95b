// `metronome sweep`: folders named by content, runs done once, summaries that depend on the points
// alone.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/error.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tools/sweep_plan.h"

namespace fs = std::filesystem;
using namespace metronome;
using namespace metronome::testing;
using Json = nlohmann::ordered_json;

namespace {

constexpr const char* kGrid =
    " --over workload.arrivals.rate=5,20 --over engine.max_num_seqs=2,4,8 ";  // 6 points

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Workplace {
  ScratchFolder folder;
  std::string scenario = folder.write("small.yaml", kSmallScenario);
  std::string out = folder.path() + "/out";
  std::string log = folder.path() + "/log";

  CommandResult sweep(const std::string& options, const std::string& prefix = "") const {
    return run_metronome(
        "sweep '" + scenario + "' --out '" + out + "' --log '" + log + "' " + options, prefix);
  }
  // What a sweep leaves behind.
  std::map<std::string, std::string> content() const { return folder_content(out); }
  Json summary() const { return Json::parse(read_text_file(out + "/summary.json")); }
  // Ids in the log behind `what`, in order.
  std::vector<std::string> logged(const std::string& what) const {
    std::vector<std::string> ids;
    std::istringstream lines(read_text_file(log));
    std::string word, id, process;
    while (lines >> word >> id >> process) {
      if (word == what) ids.push_back(id);
    }
    return ids;
  }
  std::vector<std::string> run_folders() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(out)) {
      if (entry.is_directory()) names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
};

void require_done(const CommandResult& result) {
  INFO("stderr: " << result.err);
  REQUIRE(result.exit_code == 0);
}

SweepPlan plan_of(const Workplace& place, const std::vector<std::string>& over,
                  const SweepRequest& base = {}) {
  SweepRequest request = base;
  request.scenario = place.scenario;
  if (request.backend.empty()) request.backend = "sim";
  const ScenarioFile file = load_scenario(place.scenario, request.assignments, request.seed);
  return plan_sweep(request, read_sweep(file, over), 2);
}

std::vector<std::string> ids(const SweepPlan& plan) {
  std::vector<std::string> all;
  for (const SweepRun& run : plan.runs) all.push_back(run.id);
  return all;
}

}  // namespace

TEST_CASE("a sweep writes a folder a point and summaries with vLLM's keys", "[sweep]") {
  const Workplace place;
  const CommandResult result = place.sweep(kGrid);
  require_done(result);
  CHECK(contains(result.out, "6 runs done now, 0 before, 0 failed"));
  CHECK(contains(result.out, "* best of its column, of all 6 rows"));
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
    const std::string id = row.at("point");
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
  const Workplace place;
  require_done(place.sweep("--over workload.arrivals.rate=5,inf --over slo.itl_ms=null"));
  std::istringstream csv(read_text_file(place.out + "/summary.csv"));
  const auto cells = [&csv] {
    std::string line;
    std::getline(csv, line);
    std::vector<std::string> parts;
    std::istringstream stream(line);
    for (std::string cell; std::getline(stream, cell, ',');) parts.push_back(cell);
    return parts;
  };
  const std::vector<std::string> names = cells();
  for (const Json& row : place.summary()) {
    const std::vector<std::string> line = cells();
    REQUIRE(line.size() == names.size());
    REQUIRE(row.size() == names.size());
    std::size_t i = 0;
    for (const auto& [key, value] : row.items()) {
      CHECK(names[i] == key);
      const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
      // Numbers are written as in summary.json, which may differ from this parser's digits.
      if (value.is_number()) {
        CHECK(std::stod(line[i]) == value.get<double>());
      } else {
        CHECK(line[i] == (value.is_null() ? "" : text));
      }
      ++i;
    }
  }
}

TEST_CASE("the same bytes for any number of jobs, and nothing is run twice", "[sweep]") {
  const Workplace one, two;
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
  const Workplace place, undisturbed;
  const std::string grid =
      "--over seed=1:12:1 --set workload.num_requests=3000 --set workload.arrivals.rate=100 -q ";
  require_done(undisturbed.sweep(grid));
  for (const char* after : {"0.05", "0.1", "0.15", "0.2"}) {
    place.sweep(grid + "-j 2", std::string("timeout -s KILL ") + after);
  }
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
  const Workplace place, alone;
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
  const Workplace place;
  const std::string grid = "--over seed=1:8:1 --over workload.num_requests=100,3000000 -j 2 ";
  const CommandResult result =
      place.sweep(grid, "timeout --foreground --preserve-status --signal=INT 2");
  INFO(result.err);
  CHECK(result.exit_code == 130);
  CHECK(contains(result.err, "and the same command goes on from there"));
  CHECK_FALSE(fs::exists(place.out + "/summary.json"));
  for (const std::string& name : place.run_folders()) CHECK_FALSE(name.starts_with("."));
}

TEST_CASE("variants are run at every point, equal ones once", "[sweep]") {
  const Workplace place;
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

TEST_CASE("points that fail are listed and do not stop the rest", "[sweep]") {
  const Workplace place;
  const std::string sweep = "--over model=llama-3.1-70b,llama-3.2-1b ";
  for (int attempt = 0; attempt < 2; ++attempt) {
    const CommandResult result = place.sweep(sweep);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, "1 run of 2 is not done:\n  small model=llama-3.1-70b: "));
    CHECK(contains(result.err, "does not fit on h200"));
    REQUIRE(place.summary().size() == 1);
    CHECK(place.summary()[0].at("model") == "llama-3.2-1b");
  }
  const auto content = place.content();
  const auto failure = std::find_if(content.begin(), content.end(), [](const auto& file) {
    return file.first.ends_with(".failure.json");
  });
  REQUIRE(failure != content.end());
  CHECK(contains(Json::parse(failure->second).at("error"), "does not fit on h200"));
  CHECK(contains(place.sweep("--over model=llama-3.1-70b").err, "does not fit"));
  CHECK(place.summary().empty());
}

TEST_CASE("a point that is no scenario is said before anything runs", "[sweep]") {
  const Workplace place;
  const auto refused = [&place](const std::string& options, const std::string& message) {
    const CommandResult result = place.sweep(options);
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    CHECK(contains(result.err, message));
    CHECK_FALSE(fs::exists(place.out));
  };
  refused("--over seed=1,2 --over engine.max_num_seqs=4,none",
          "--over engine.max_num_seqs: at the point seed=1 engine.max_num_seqs=none: must be an "
          "integer, got 'none'; allowed: 1 to 1048576");
  refused("--over sed=1,2", "--over sed: at the point sed=1: unknown key (did you mean 'seed'?)");
  refused("--over model=llama,qwen3-4b", "--over model: at the point model=llama: unknown name");
  refused("--over workload.trace=none.csv", "at the point workload.trace=none.csv: ");
  refused("--over seed=1 --seed 2", "--seed: overrides every seed, and the sweep varies it");
  refused("--over seed=1 --runs 2", "--runs: a simulation gives the same result every time");
  refused("--over seed=1 --jobs 0", "--jobs: 0 is out of range");
  refused("--over seed=1 --variant none", "--variant: ");
  refused("--over seed=1 --backend gpu", "--backend: 'gpu' is no backend");
  refused("", "nothing to vary");
}

TEST_CASE("a key that changes no run is refused", "[sweep]") {
  const Workplace place;
  place.folder.write("small.yaml", std::string(kSmallScenario) + kTwoVariants);
  const auto is_refused = [&place](const std::string& options) {
    const CommandResult result = place.sweep(options + " --dry-run");
    INFO(result.err);
    CHECK((result.exit_code == 2) ==
          contains(result.err, ": has no effect, every run is the same"));
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

TEST_CASE("a folder of something else is left alone", "[sweep]") {
  const Workplace place;
  place.folder.write("out/notes.txt", "notes");
  const CommandResult result = place.sweep("--over seed=1,2");
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "holds something else than a sweep"));
  CHECK(place.content().size() == 1);
}

TEST_CASE("a damaged result is run again, another's is refused", "[sweep]") {
  const Workplace place;
  require_done(place.sweep("--over seed=1,2,3"));
  const auto before = place.content();
  const std::vector<std::string> folders = place.run_folders();
  const std::string first = place.out + "/" + folders[0] + "/result.json";
  const std::string second = place.out + "/" + folders[1] + "/result.json";
  const std::string whole = read_text_file(first);
  for (const std::string& rest : {std::string(), whole.substr(0, whole.size() / 2)}) {
    std::ofstream(first, std::ios::binary) << rest;
    const CommandResult result = place.sweep("--over seed=1,2,3");
    require_done(result);
    CHECK(contains(result.err, folders[0] + ": was damaged, and is run again"));
    CHECK(contains(result.out, "1 run done now, 2 before"));
    CHECK(place.content() == before);
  }
  // A file that was asked for is missing.
  const std::string detailed =
      "--over seed=1,2,3 --set results.requests=true --set results.steps=true";
  require_done(place.sweep(detailed));
  for (const char* name : {"requests.jsonl", "steps.jsonl"}) {
    const std::string id = place.summary()[1].at("point");
    REQUIRE(fs::remove(place.out + "/" + id + "/" + name));
    CHECK(contains(place.sweep(detailed).out, "1 run done now, 2 before"));
    CHECK(fs::exists(place.out + "/" + id + "/" + name));
  }
  fs::remove(first);
  fs::copy(second, first);
  const CommandResult result = place.sweep("--over seed=1,2,3");
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, folders[0] + ": holds the result of another configuration"));
}

TEST_CASE("an id stands for all that a result depends on", "[sweep]") {
  const Workplace place;
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
  SweepRequest computed;
  computed.backend = "cpu";
  computed.num_runs = 3;
  const SweepPlan runs = plan_of(place, over, computed);
  CHECK(runs.rows.size() == 6);
  is_new(runs);
}

TEST_CASE("a key that a point does not set is what its configuration says", "[sweep]") {
  const Workplace place;
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

TEST_CASE("--dry-run lists the points and writes nothing", "[sweep]") {
  const Workplace place;
  const CommandResult result =
      place.sweep("--over seed=1,2 --over engine.max_num_seqs=4 --dry-run");
  require_done(result);
  CHECK(contains(result.out, "  small seed=2 engine.max_num_seqs=4\n"));
  CHECK(std::count(result.out.begin(), result.out.end(), '\n') == 2);
  CHECK_FALSE(fs::exists(place.out));
}

TEST_CASE("--json prints the summary and nothing else", "[sweep]") {
  const Workplace place;
  const CommandResult result = place.sweep("--over seed=1,2 --json");
  require_done(result);
  CHECK(result.out == read_text_file(place.out + "/summary.json"));
}
