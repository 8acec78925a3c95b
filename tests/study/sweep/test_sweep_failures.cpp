// SPDX-License-Identifier: Apache-2.0
// `metronome sweep` where not all is well: points that cannot be run, results that are damaged or
// of something else, and what reads a sweep's folder.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/base/json.h"
#include "reports/files/content_id.h"
#include "study/sweep/sweep_folder.h"
#include "tests/catch.h"
#include "tests/study/sweep/sweep_place.h"

namespace TEST_FILE {

namespace fs = std::filesystem;
using namespace metronome;
using namespace metronome::testing;
TEST_CASE("points that fail are listed and do not stop the rest", "[sweep]") {
  const SweepPlace place;
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
  CHECK(contains(Json::parse(failure->second).at("error").string(), "does not fit on h200"));
  CHECK(contains(place.sweep("--over model=llama-3.1-70b").err, "does not fit"));
  CHECK(place.summary().empty());
}

TEST_CASE("a sweep without a valid point, or with an unknown key, ends before anything runs",
          "[sweep]") {
  const SweepPlace place;
  const auto refused = [&place](const std::string& options, const std::string& message) {
    const CommandResult result = place.sweep(options);
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    CHECK(contains(result.err, message));
    CHECK_FALSE(fs::exists(place.out));
  };
  refused("--over seed=1,2 --over engine.max_num_seqs=none,0",
          "--over engine.max_num_seqs: at the point seed=1 engine.max_num_seqs=none: must be an "
          "integer, got 'none'; allowed: 1 to 1048576");
  refused("--over sed=1,2", "--over sed: at the point sed=1: unknown key (did you mean 'seed'?)");
  refused("--over scheduler.polici=vllm", "scheduler.polici: at the point");
  refused("--over variants.a.seed=1", "no such variant");
  refused("--over model=llama,qwen", "--over model: at the point model=llama: unknown name");
  refused("--over workload.trace=none.csv", "at the point workload.trace=none.csv: ");
  refused("--over seed=1 --set seed=2",
          "--set seed: has no effect, as the sweep varies the seed; allowed: one of them");
  refused("--over seed=1 --seed 2", "--seed: overrides every seed, but the sweep varies the seed");
  refused("--over seed=1 --runs 2", "--runs: a simulation gives the same result every time");
  refused("--over seed=1 --jobs 0", "--jobs: 0 is out of range");
  refused("--over seed=1 --variant none", "--variant: ");
  refused("--over seed=1 --backend gpu", "--backend: 'gpu' is not a backend");
  refused("", "nothing to vary");
}

TEST_CASE("a key that only one point has, mistyped, is refused as well", "[sweep]") {
  const SweepPlace place;
  place.folder.write("small.yaml",
                     std::string(kSmallScenario) +
                         "sweep: {points: [{scheduler.policy: vllm}, {sheduler.policy: orca}]}\n");
  const CommandResult result = place.sweep("");
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "sweep.points: at the point sheduler.policy=orca: "));
  CHECK_FALSE(fs::exists(place.out));
}

TEST_CASE("points that are no valid scenario are listed, and the rest is run", "[sweep]") {
  const SweepPlace place;
  const std::string sweep =
      "--over scheduler.policy=static,chunked --over scheduler.prefill_chunk_size=64,none,128 ";
  const CommandResult dry = place.sweep(sweep + "--dry-run");
  CHECK(dry.exit_code == 1);
  CHECK(std::count(dry.out.begin(), dry.out.end(), '\n') == 2);
  CHECK_FALSE(fs::exists(place.out));
  for (int attempt = 0; attempt < 2; ++attempt) {
    const CommandResult result = place.sweep(sweep);
    INFO(result.err);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.out, "6 points, 2 rows, 2 different runs; 4 points are not valid"));
    CHECK(contains(result.err, "metronome: error: 4 points are not valid scenarios:\n"));
    CHECK(contains(result.err,
                   "  --over scheduler.prefill_chunk_size: at the point scheduler.policy=static "
                   "scheduler.prefill_chunk_size=64: static batching cannot prefill in chunks"));
    CHECK(contains(result.err, "scheduler.prefill_chunk_size=none: must be an integer"));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 5);
    const Json rows = place.summary();
    REQUIRE(rows.size() == 2);
    CHECK(rows[0].at("scheduler.prefill_chunk_size") == 64);
    CHECK(rows[1].at("scheduler.prefill_chunk_size") == 128);
  }
  CHECK(place.logged("start").size() == 2);
}

TEST_CASE("a folder of something else is left alone", "[sweep]") {
  const SweepPlace place;
  place.folder.write("out/notes.txt", "notes");
  const CommandResult result = place.sweep("--over seed=1,2");
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "is not the folder of a sweep"));
  CHECK(place.content().size() == 1);
}

TEST_CASE("a damaged result is run again, another's is refused", "[sweep]") {
  const SweepPlace place;
  require_done(place.sweep("--over seed=1,2,3"));
  const auto before = place.content();
  const std::vector<std::string> folders = place.run_folders();
  const std::string first = place.out + "/" + folders[0] + "/result.json";
  const std::string second = place.out + "/" + folders[1] + "/result.json";
  const std::string whole = read_text_file(first);
  std::string edited = whole;
  const std::size_t figure = edited.find("\"completed\": ") + 13;
  edited[figure] = edited[figure] == '9' ? '8' : '9';
  for (const std::string& rest : {edited, whole.substr(0, whole.size() / 2), std::string()}) {
    std::ofstream(first, std::ios::binary) << rest;
    const CommandResult result = place.sweep("--over seed=1,2,3");
    require_done(result);
    CHECK(contains(result.err, folders[0] + ": was damaged or changed, and is run again"));
    CHECK(contains(result.out, "1 run done now, 2 before"));
    // A file without Metronome's mark is never removed.
    const std::string kept = place.out + "/" + folders[0] + ".damaged";
    CHECK(fs::exists(kept + "/result.json") == rest.empty());
    fs::remove_all(kept);
    CHECK(place.content() == before);
  }
  // A file that was asked for is missing.
  const std::string detailed =
      "--over seed=1,2,3 --set results.requests=true --set results.steps=true";
  require_done(place.sweep(detailed));
  for (const char* name : {"requests.jsonl", "steps.jsonl"}) {
    const std::string id = place.summary()[1].at("point").string();
    REQUIRE(fs::remove(place.out + "/" + id + "/" + name));
    CHECK(contains(place.sweep(detailed).out, "1 run done now, 2 before"));
    CHECK(fs::exists(place.out + "/" + id + "/" + name));
    // One that was edited is run again, and kept.
    const std::string path = "/" + std::string(name);
    const std::string folder = place.out + "/" + id;
    const std::string lines = read_text_file(folder + path);
    std::ofstream(folder + path, std::ios::binary) << lines << "{}\n";
    CHECK(contains(place.sweep(detailed).out, "1 run done now, 2 before"));
    CHECK(read_text_file(folder + path) == lines);
    CHECK(read_text_file(folder + ".damaged" + path) == lines + "{}\n");
    fs::remove_all(folder + ".damaged");
  }
  fs::remove(first);
  fs::copy(second, first);
  const auto check_refused = [&](const std::string& options, const std::string& id) {
    const CommandResult result = place.sweep(options);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, id + ": contains the result of another configuration"));
  };
  check_refused("--over seed=1,2,3", folders[0]);
  // A file that is missing as well does not change that.
  const std::string id = place.summary()[1].at("point").string();
  const std::string folder = place.out + "/" + id;
  Json other = Json::parse(read_text_file(folder + "/result.json"));
  other["label"] = "another";
  std::ofstream(folder + "/result.json", std::ios::binary) << other.dump(2);
  fs::remove(folder + "/steps.jsonl");
  fs::remove(first);
  check_refused(detailed, id);
  CHECK(fs::exists(folder + "/requests.jsonl"));
}

TEST_CASE("a sweep follows no link out of its folder", "[sweep]") {
  const SweepPlace place;
  require_done(place.sweep("--over seed=1,2"));
  const std::string run = place.out + "/" + place.run_folders()[0];
  const std::string elsewhere = place.folder.path() + "/elsewhere";
  fs::remove_all(run);
  place.folder.write("elsewhere/result.json", "{}");
  place.folder.write("elsewhere/steps.jsonl", "mine");
  fs::create_directory_symlink(elsewhere, run);
  const CommandResult result = place.sweep("--over seed=1,2");
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, ": is a link; allowed: another --out, or remove the link"));
  CHECK(read_text_file(elsewhere + "/steps.jsonl") == "mine");
  CHECK(read_text_file(elsewhere + "/result.json") == "{}");
}

TEST_CASE("a sweep's log is appended to no other file", "[sweep]") {
  const SweepPlace place;
  const std::string notes = place.folder.write("notes.txt", "start the day\n");
  const CommandResult result =
      run_metronome("sweep '" + place.scenario + "' --over seed=1 --out '" + place.out +
                    "' --log '" + notes + "'");
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "--log: " + notes + ": is not the log of a sweep"));
  CHECK(result.out.empty());
  CHECK(read_text_file(notes) == "start the day\n");
}

TEST_CASE("whatever a run fails of is recorded, and the run is tried again", "[sweep]") {
  const SweepPlace place;
  // Files of at most 20 KiB: that of one run's requests is larger.
  const std::string sweep =
      "--over workload.num_requests=20,3000 --set results.requests=true -j 1 ";
  const auto limited = [](int num_blocks) {
    return "bash -c 'trap \"\" XFSZ; ulimit -f " + std::to_string(num_blocks) +
           "; exec \"$@\"' bash";
  };
  for (const char* options : {"", "--only 1/1 "}) {
    const CommandResult result = place.sweep(sweep + options, limited(20));
    INFO(result.err);
    // A share has done what it could; the merge lists what is missing.
    CHECK(result.exit_code == (*options == 0 ? 1 : 0));
    CHECK(contains(result.err, "1 run of 2 is not done:\n  small workload.num_requests=3000: "));
    CHECK(contains(result.err, "File too large"));
    CHECK(contains(place.sweep(sweep + "--merge").err, "File too large"));
  }
  CHECK(place.summary().size() == 1);
  require_done(place.sweep(sweep));
  for (const auto& [name, text] : place.content()) CHECK_FALSE(contains(name, "failure"));
  // A failure that cannot even be recorded ends the sweep.
  const std::string other = place.folder.path() + "/other";
  const CommandResult full = run_metronome(
      "sweep '" + place.scenario + "' -q -j 1 --over seed=1,2 --out '" + other + "'", limited(1));
  CHECK(full.exit_code == 1);
  CHECK(contains(full.err, "File too large"));
  CHECK(std::count(full.err.begin(), full.err.end(), '\n') == 1);
  for (const auto& [name, text] : folder_content(other)) CHECK(name == ".metronome_sweep");
}

TEST_CASE("every file that a run should have written is looked for", "[sweep]") {
  const SweepPlace place;
  SweepRequest request;
  request.assignments = {"results.outputs=true", "results.steps=true", "results.requests=true",
                         "results.trace=true"};
  const SweepPlan plan = plan_of(place, {"seed=1"}, request);
  const SweepFolder folder(place.out);
  const SweepRun& run = plan.runs[0];
  const std::string id = "out/" + run.id + "/";
  CHECK(folder.state_of(run) == SweepFolder::State::Missing);
  Json result = {{"label", run.scenario.name},
                 {"output_digest", "0123456789abcdef"},
                 {"config", run.scenario.resolved()}};
  // As result.json ends.
  const auto text_of = [](const Json& json) {
    std::string text = json.dump(2);
    text.resize(text.size() - 2);  // "\n}"
    return text + ",\n  \"content_id\": \"" + content_id_text(text) + "\"\n}\n";
  };
  const std::vector<std::string> names = {"steps.jsonl", "requests.jsonl", "trace.json",
                                          "outputs.jsonl"};
  place.folder.write(id + "result.json", text_of(result));
  for (const std::string& name : names) place.folder.write(id + name, "");
  CHECK(folder.state_of(run) == SweepFolder::State::Done);
  for (const std::string& name : names) {
    INFO(name);
    fs::remove(place.out + "/" + run.id + "/" + name);
    CHECK(folder.state_of(run) == SweepFolder::State::Damaged);
    place.folder.write(id + name, "");
  }
  // A simulation computes no tokens, and writes no outputs.jsonl.
  result["output_digest"] = nullptr;
  place.folder.write(id + "result.json", text_of(result));
  fs::remove(place.out + "/" + run.id + "/outputs.jsonl");
  CHECK(folder.state_of(run) == SweepFolder::State::Done);
}

TEST_CASE("results of other settings are counted, and not used", "[sweep]") {
  const SweepPlace place;
  CHECK_FALSE(contains(place.sweep("--over seed=1,2").out, "others  "));
  CHECK_FALSE(contains(place.sweep("--over seed=1,2,3").out, "others  "));
  CHECK(contains(place.sweep("--over seed=4").out, "others      3 runs with other settings"));
  CHECK(place.summary().size() == 1);
}

TEST_CASE("what reads a sweep's folder goes by its summary, and says what it needs", "[sweep]") {
  const SweepPlace place;
  require_done(place.sweep("--over seed=1,2,3"));
  require_done(place.sweep("--over engine.max_num_seqs=4,8 --over seed=2,1"));
  const CommandResult refused = run_metronome("diagnose '" + place.out + "'");
  CHECK(refused.exit_code == 2);
  CHECK(std::count(refused.err.begin(), refused.err.end(), '\n') == 1);
  CHECK(contains(refused.err, "/steps.jsonl, "));
  CHECK(contains(refused.err,
                 "/requests.jsonl: missing; allowed: a run with --set "
                 "results.steps=true --set results.requests=true"));
  require_done(run_metronome("report '" + place.out + "'"));
  const std::string html = read_text_file(place.out + "/report.html");
  std::size_t last = 0;
  for (const char* name :
       {"seed=2 max_num_seqs=4", "seed=1 max_num_seqs=4", "seed=2 max_num_seqs=8"}) {
    INFO(name);
    const std::string wanted = "small " + std::string(name);
    const std::size_t found = html.find(wanted);
    CHECK(found != std::string::npos);
    CHECK(found > last);
    last = found;
  }
  CHECK_FALSE(contains(html, "seed=3"));
  require_done(place.sweep("--over seed=1,2 --set results.steps=true --set results.requests=true"));
  const CommandResult result = run_metronome("diagnose --no-replay '" + place.out + "'");
  require_done(result);
  CHECK(contains(result.out, "20 requests"));
}

}  // namespace TEST_FILE
