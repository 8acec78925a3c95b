// SPDX-License-Identifier: Apache-2.0
// Metronome decides what real engines decided: their recorded logs are reproduced byte for byte.
// And the tools that say so: a planted difference is found and named, a bad log is refused.
#include <filesystem>
#include <map>
#include <sstream>

#include "core/base/json.h"
#include "study/decisions/decisions.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/expected.h"
#include "tests/scratch_folder.h"
#include "tests/shared_data.h"
#include "tests/study/decisions/small_case.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Every case is checked, none differs, and writing them gives the recorded file.
void check_file(const std::string& engine, const std::string& path, std::size_t num_cases) {
  const DecisionCheck check = check_decisions(engine, path);
  CHECK(check.num_cases == num_cases);
  std::string report;
  for (const DecisionDifference& difference : check.differences) {
    report += "line " + std::to_string(difference.line) + ", step " +
              std::to_string(difference.step) + ", " + difference.field + ": expected " +
              difference.expected + ", got " + difference.got + "\n";
  }
  INFO(report);
  CHECK(check.differences.empty());
  CHECK(lines_of(read_text_file(path)).size() == num_cases);
  const bool is_same_file = own_log(engine, path) == read_text_file(path);  // too long to print
  CHECK(is_same_file);
}

void check_golden(const std::string& engine, const std::string& name, std::size_t num_cases) {
  check_file(engine, golden_path(name), num_cases);
}

// Another value of the same kind.
Json other_value(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string()) return value.get<std::string>() + " planted";
  if (value.is_number()) return value.get<int>() + 1;
  Json other = value;
  if (value.is_object()) {
    other["planted"] = 0;
  } else if (value.size() > 1 && value[0] != value[1]) {
    std::swap(other[0], other[1]);  // the order counts
  } else {
    other.push_back("planted");
  }
  return other;
}

// `recorded` is the second line of a log whose other lines are blank or right.
void check_found(const std::string& engine, const Json& recorded, const std::string& right_line,
                 const DecisionDifference& planted) {
  INFO(engine << " seed " << planted.seed << ", step " << planted.step << ", " << planted.field);
  const ScratchFolder folder;
  const std::string path =
      folder.write("planted.jsonl", right_line + "\n" + recorded.dump() + "\n\n" + right_line);
  const DecisionCheck check = check_decisions(engine, path);
  CHECK(check.num_cases == 3);
  REQUIRE(check.differences.size() == 1);
  const DecisionDifference& found = check.differences.front();
  CHECK(found.line == 2);
  CHECK(found.seed == planted.seed);
  CHECK(found.step == planted.step);
  CHECK(found.field == planted.field);
  CHECK(found.expected == planted.expected);
  CHECK(found.got == planted.got);
}

// Where a field of the steps has its first value, by name; preferably one that is not empty.
struct FieldPlace {
  std::size_t line;
  std::size_t step;
};
std::map<std::string, FieldPlace> field_places(const std::vector<Json>& cases) {
  std::map<std::string, FieldPlace> places;
  for (std::size_t line = 0; line < cases.size(); ++line) {
    const Json& steps = cases[line].at("steps");
    for (std::size_t step = 0; step < steps.size(); ++step) {
      for (const auto& [field, value] : steps[step].items()) {
        const auto [place, is_new] = places.insert({field, {line, step}});
        const Json& first = cases[place->second.line]["steps"][place->second.step][field];
        if (!is_new && first.empty() && !value.empty()) place->second = {line, step};
      }
    }
  }
  return places;
}

// Changes, removes and adds each field of the engine's steps, one at a time.
void check_planted_differences(const std::string& engine, const std::string& name,
                               std::size_t num_fields) {
  const std::vector<std::string> lines = lines_of(read_text_file(golden_path(name)));
  std::vector<Json> cases;
  for (const std::string& line : lines) cases.push_back(Json::parse(line));
  const auto places = field_places(cases);
  CHECK(places.size() == num_fields);
  for (const auto& [field, place] : places) {
    const Json& original = cases[place.line];
    const Json& value = original.at("steps")[place.step].at(field);
    DecisionDifference planted = {.seed = original.at("seed").get<std::int64_t>(),
                                  .step = place.step,
                                  .field = field,
                                  .expected = other_value(value).dump(),
                                  .got = value.dump()};
    Json changed = original;
    changed["steps"][place.step][field] = other_value(value);
    check_found(engine, changed, lines[0], planted);

    changed = original;
    changed["steps"][place.step].erase(field);
    planted.expected = "";
    check_found(engine, changed, lines[0], planted);

    changed = original;
    changed["steps"][place.step]["extra"] = value;
    planted = {.seed = planted.seed,
               .step = place.step,
               .field = "extra",
               .expected = value.dump(),
               .got = ""};
    check_found(engine, changed, lines[0], planted);
  }
}

}  // namespace

TEST_CASE("vLLM's recorded decisions, one step in flight", "[decisions]") {
  check_golden("vllm", "vllm_v1_sync.jsonl", 300);
}

TEST_CASE("vLLM's recorded decisions, two steps in flight", "[decisions]") {
  check_golden("vllm", "vllm_v1_async2.jsonl", 50);
}

TEST_CASE("vLLM's recorded decisions, hybrid model with a sliding window", "[decisions]") {
  check_golden("vllm", "vllm_v1_hybrid_swa.jsonl", 75);
}

// Prompts that repeat earlier outputs, a window of one token, chunks undone in their own step.
TEST_CASE("vLLM 0.22's recorded decisions in rare situations", "[decisions]") {
  check_golden("vllm", "vllm_0.22.jsonl", 96);
}

TEST_CASE("vLLM 0.25's recorded decisions", "[decisions]") {
  check_golden("vllm", "vllm_0.25.jsonl", 96);
}

TEST_CASE("vLLM 0.33's recorded decisions, of every kind", "[decisions]") {
  check_golden("vllm", "vllm_0.33.jsonl", 95);
}

TEST_CASE("vLLM 0.33's recorded decisions with drafts and recurrent states", "[decisions]") {
  check_golden("vllm", "vllm_0.33_drafts_states.jsonl", 75);
  check_golden("vllm", "vllm_0.33_drafts_by_size.jsonl", 16);
}

TEST_CASE("vLLM 0.33's recorded decisions with windows, states and full attention together",
          "[decisions]") {
  check_golden("vllm", "vllm_0.33_all_groups.jsonl", 40);
}

TEST_CASE("vLLM 0.33's recorded decisions with images", "[decisions]") {
  check_golden("vllm", "vllm_0.33_images.jsonl", 64);
}

TEST_CASE("vLLM 0.33's recorded decisions in rare situations", "[decisions]") {
  check_golden("vllm", "vllm_0.33_rare.jsonl", 21);
}

TEST_CASE("the decisions of every version of vLLM, recorded from its package", "[decisions]") {
  check_golden("vllm", "vllm_versions.jsonl", 189);
}

TEST_CASE("the decisions of a real vLLM 0.32 server", "[decisions]") {
  check_golden("vllm", "vllm_0.32_served.jsonl", 6);
}

TEST_CASE("the given decisions of vLLM 0.33", "[decisions]") {
  const std::pair<const char*, std::size_t> files[] = {{"vllm_0.33_given.jsonl", 430},
                                                       {"vllm_0.33_options_given.jsonl", 85},
                                                       {"vllm_0.33_spec_given.jsonl", 150},
                                                       {"vllm_0.33_mamba_given.jsonl", 60},
                                                       {"vllm_0.33_minimal.jsonl", 22}};
  for (const auto& [name, num_cases] : files) {
    const auto path = shared_path(std::string("goldens/") + name);
    if (path) check_file("vllm", *path, num_cases);
  }
}

TEST_CASE("SGLang 0.5.23's recorded decisions, of every kind", "[decisions]") {
  check_golden("sglang", "sglang_0.5.23.jsonl", 96);
  check_golden("sglang", "sglang_0.5.23_receipts.jsonl", 9);
  check_golden("sglang", "sglang_0.5.23_rare.jsonl", 2);
}

TEST_CASE("the given decisions of SGLang 0.5.23", "[decisions]") {
  if (const auto path = shared_path("goldens/sglang_0.5.23_given.jsonl")) {
    const DecisionCheck check = check_decisions("sglang", *path);
    CHECK(check.num_cases == 150);
    CHECK(check.differences.empty());
  }
}

// A version before the recorded one decides differently, so each of these rules is seen.
TEST_CASE("another version's rules are found out", "[decisions]") {
  const std::string path = golden_path("vllm_0.33.jsonl");
  for (const char* version : {"0.32", "0.30", "0.28", "0.27", "0.25", "0.23", "0.22"}) {
    INFO(version);
    CHECK_FALSE(check_decisions("vllm", path, version).differences.empty());
  }
  CHECK(check_decisions("vllm", path, "0.33").differences.empty());
  CHECK(error_of([&] { check_decisions("vllm", path, "0.18"); }) ==
        "version: unknown version '0.18'; allowed: 0.19, 0.20, 0.21, 0.22, 0.23, 0.24, 0.25, 0.26, "
        "0.27, 0.28, 0.29, 0.30, 0.31, 0.32, 0.33");
  CHECK(error_of([&] { check_decisions("nano_vllm", path, "0.33"); }) ==
        "version: nano_vllm has one version; allowed: none");
}

TEST_CASE("nano-vllm's recorded decisions", "[decisions]") {
  check_golden("nano_vllm", "nano_vllm.jsonl", 75);
}

TEST_CASE("Sarathi-Serve's recorded decisions", "[decisions]") {
  check_golden("sarathi", "sarathi.jsonl", 75);
}

TEST_CASE("decisions of a real llama-server", "[decisions]") {
  check_golden("llama_cpp", "llama_cpp_served.jsonl", 13);
}

TEST_CASE("decisions of another llama-server, with lines added to its log", "[decisions]") {
  const auto path = shared_path("goldens/llama_cpp_given.jsonl");
  if (!path) return;
  const DecisionCheck check = check_decisions("llama_cpp", *path);
  CHECK(check.num_cases > 0);
  CHECK(check.differences.empty());
}

TEST_CASE("a planted difference is found in every field of vLLM", "[decisions]") {
  check_planted_differences("vllm", "vllm_v1_async2.jsonl", 8);
  check_planted_differences("vllm", "vllm_v1_hybrid_swa.jsonl", 8);
  check_planted_differences("vllm", "vllm_0.33_drafts_states.jsonl", 10);
  check_planted_differences("vllm", "vllm_0.33_images.jsonl", 12);
}

TEST_CASE("a planted difference is found in every field of nano-vllm", "[decisions]") {
  check_planted_differences("nano_vllm", "nano_vllm.jsonl", 9);
}

TEST_CASE("a planted difference is found in every field of llama-server", "[decisions]") {
  check_planted_differences("llama_cpp", "llama_cpp_served.jsonl", 7);
}

TEST_CASE("a planted difference is found in every field of SGLang", "[decisions]") {
  check_planted_differences("sglang", "sglang_0.5.23.jsonl", 15);
}

TEST_CASE("a planted difference is found in every field of Sarathi-Serve", "[decisions]") {
  check_planted_differences("sarathi", "sarathi.jsonl", 7);
}

TEST_CASE("a log that is longer or shorter than the replay", "[decisions]") {
  const std::string line = lines_of(read_text_file(golden_path("vllm_v1_sync.jsonl"))).at(1);
  const Json recorded = Json::parse(line);
  const std::size_t num_steps = recorded.at("steps").size();
  Json cut = recorded;
  cut["steps"].erase(num_steps - 1);
  check_found("vllm", cut, line,
              {.seed = 1,
               .step = num_steps - 1,
               .field = "number of steps",
               .expected = std::to_string(num_steps - 1),
               .got = std::to_string(num_steps)});
  Json longer = recorded;
  longer["steps"].push_back(recorded["steps"].back());
  check_found("vllm", longer, line,
              {.seed = 1,
               .step = num_steps,
               .field = "number of steps",
               .expected = std::to_string(num_steps + 1),
               .got = std::to_string(num_steps)});
}

TEST_CASE("a small case decided by hand", "[decisions]") {
  // The budget cuts a's prompt in 4 and 1; b joins when it arrives and ends with its first token.
  const std::string steps =
      R"([{"scheduled":{"a":4},"preempted":[],"running":["a"],"waiting":[],"free_blocks":4,)"
      R"("admitted_computed":{"a":0},"block_tables":{"a":[1]},"finished":[]},)"
      R"({"scheduled":{"a":1,"b":1},"preempted":[],"running":["a","b"],"waiting":[],)"
      R"("free_blocks":2,"admitted_computed":{"b":0},"block_tables":{"a":[1,2],"b":[3]},)"
      R"("finished":["b"]},)"
      R"({"scheduled":{"a":1},"preempted":[],"running":["a"],"waiting":[],"free_blocks":3,)"
      R"("block_tables":{"a":[1,2]},"finished":["a"]}])";
  const std::string whole = case_text(kConfig, kRequests, steps);
  CHECK(own_log_of(case_text(kConfig, kRequests)) == whole);
  CHECK(own_log_of(whole) == whole);
  CHECK(own_log_of(case_text(kConfig, kRequests, R"([{"scheduled":{}}])")) == whole);
  // Blanks, line ends and the last line's missing one make no difference.
  std::string spaced = replaced(whole, R"("config":{)", R"("config" : { )");
  spaced.back() = '\r';
  CHECK(own_log_of("\n" + spaced + "\n  \n" + spaced) == whole + whole);
}

TEST_CASE("two steps in flight: tokens come back a step late", "[decisions]") {
  // Step 1 completes a's prompt while step 0 is taken back; step 2 decodes before the first token
  // is known; in step 3 there is nothing to decide and the last tokens return.
  const std::string config = replaced(kConfig, R"("policy")", R"("async_depth":2,"policy")");
  const Json log = Json::parse(own_log_of(case_text(config, kRequests)));
  const Json& steps = log.at("steps");
  REQUIRE(steps.size() == 4);
  CHECK(steps[1].at("scheduled").dump() == R"({"a":1,"b":1})");
  CHECK(steps[1].at("finished").empty());
  CHECK(steps[2].at("scheduled").dump() == R"({"a":1})");
  CHECK(steps[2].at("finished").dump() == R"(["b"])");
  CHECK(steps[3].at("scheduled").empty());
  CHECK(steps[3].at("finished").dump() == R"(["a"])");
}

TEST_CASE("output tokens are named by place in the list and count", "[decisions]") {
  // a caches two blocks of 4: its 3 prompt tokens and the first 5 of its 6 output tokens. b, whose
  // prompt goes on from there, finds both.
  const std::string requests = R"([{"id":"b","arrival_step":9,"max_tokens":1,)"
                               R"("prompt":[1,2,3,101000,101001,101002,101003,101004,7]},)"
                               R"({"id":"a","arrival_step":0,"prompt":[1,2,3],"max_tokens":6}])";
  const std::string config =
      replaced(kConfig, R"("enable_prefix_caching":false)", R"("enable_prefix_caching":true)");
  const Json log = Json::parse(own_log_of(case_text(config, requests)));
  CHECK(log.at("steps").back().at("admitted_computed").dump() == R"({"b":8})");
}

TEST_CASE("a run that is stuck ends, and is compared in what its record says", "[decisions]") {
  // One usable block of 4 tokens: a's 5 never fit, and b waits behind it.
  const std::string config = replaced(kConfig, R"("num_blocks":6)", R"("num_blocks":2)");
  const std::string first =
      R"([{"scheduled":{},"preempted":[],"running":[],"waiting":["a"],"free_blocks":1,)"
      R"("block_tables":{},"finished":[]},)";
  const std::string last =
      R"({"scheduled":{},"preempted":[],"running":[],"waiting":["a","b"],"free_blocks":1,)"
      R"("block_tables":{},"finished":[],"stuck":true}])";
  CHECK(own_log_of(case_text(config, kRequests)) == case_text(config, kRequests, first + last));

  const ScratchFolder folder;
  const auto check = [&](const std::string& settings, const std::string& steps) {
    const std::string path = folder.write("stuck.jsonl", case_text(settings, kRequests, steps));
    return check_decisions("vllm", path).differences;
  };
  CHECK(check(config, first + last).empty());
  CHECK(check(config, first + R"({"stuck":true}])").empty());
  CHECK(check(config, first + R"({"scheduled":{},"stuck":true}])").empty());
  const auto wrong = check(config, first + R"({"free_blocks":2,"stuck":true}])");
  REQUIRE(wrong.size() == 1);
  CHECK(wrong[0].step == 1);
  CHECK(wrong[0].field == "free_blocks");
  const auto goes_on = check(kConfig, R"([{"stuck":true}])");
  REQUIRE(goes_on.size() == 1);
  CHECK(goes_on[0].field == "stuck");
  CHECK(goes_on[0].expected == "true");
  CHECK(goes_on[0].got.empty());
}

TEST_CASE("a run without an end is given up", "[decisions]") {
  // Without the reservation a is admitted for its first 4 tokens, preempted for want of a second
  // block, and admitted again.
  const std::string config =
      replaced(replaced(kConfig, R"("num_blocks":6)", R"("num_blocks":2)"),
               R"("scheduler_reserve_full_isl":true)", R"("scheduler_reserve_full_isl":false)");
  CHECK(complaint(case_text(config, kRequests)) ==
        "1: requests: no request of seed 7 ends in 100000 steps; allowed: requests that the engine "
        "can finish");
  // Waiting for an arrival is no standstill.
  const std::string late = replaced(kRequests, R"("arrival_step":1)", R"("arrival_step":100000)");
  CHECK(lines_of(own_log_of(case_text(kConfig, late))).size() == 1);
}

TEST_CASE("metronome decisions", "[decisions][cli]") {
  const ScratchFolder folder;
  const std::string bare = folder.write("bare.jsonl", case_text(kConfig, kRequests));
  const CommandResult written = run_metronome("decisions --engine vllm '" + bare + "'");
  CHECK(written.exit_code == 0);
  CHECK(written.err.empty());
  CHECK(written.out == own_log("vllm", bare));

  const std::string good = folder.write("good.jsonl", written.out);
  const CommandResult same = run_metronome("decisions --check --engine vllm '" + good + "'");
  CHECK(same.exit_code == 0);
  CHECK(same.out == "1 of 1 cases identical\n");

  const std::string wrong_steps = replaced(written.out, R"("a":[1,2],"b":[3])", R"("a":[2,1])");
  const std::string bad = folder.write("bad.jsonl", written.out + wrong_steps);
  const CommandResult differs = run_metronome("decisions '" + bad + "' --engine=vllm --check");
  CHECK(differs.exit_code == 1);
  CHECK(differs.out == bad +
                           ":2: seed 7, step 1, block_tables: expected {\"a\":[2,1]}, got "
                           "{\"a\":[1,2],\"b\":[3]}\n1 of 2 cases identical\n");
  CHECK(differs.err.empty());

  const CommandResult help = run_metronome("decisions --help");
  CHECK(help.exit_code == 0);
  CHECK(help.out.starts_with(
      "usage: metronome decisions --engine NAME | --router NAME CASES.jsonl [--version NAME]"));
  CHECK(help.out.find("examples:") != std::string::npos);
}

TEST_CASE("metronome decisions cuts long values around the first difference", "[decisions][cli]") {
  // 100 one-token prompts; the record has the last of them run on blocks of its own.
  std::string requests;
  for (int i = 0; i < 100; ++i) {
    requests += (i == 0 ? "[" : ",") + std::string(R"({"id":"r)") + std::to_string(i) +
                R"(","arrival_step":0,"prompt":[7],"max_tokens":1})";
  }
  const std::string config =
      replaced(replaced(replaced(kConfig, R"("max_num_seqs":2)", R"("max_num_seqs":100)"),
                        R"("num_blocks":6)", R"("num_blocks":101)"),
               R"(tokens":4)", R"(tokens":100)");
  const std::string log = own_log_of(case_text(config, requests + "]"));
  const ScratchFolder folder;
  const auto report = [&](const std::string& part, const std::string& by) {
    const std::string path = folder.write("long.jsonl", replaced(log, part, by));
    const CommandResult result = run_metronome("decisions --check --engine vllm '" + path + "'");
    CHECK(result.exit_code == 1);
    return result.out.substr(path.size(), result.out.find('\n') - path.size());
  };
  const std::string at_end = report(R"("r99":[100]})", R"("r99":[999]})");
  CHECK(at_end.starts_with(":1: seed 7, step 0, block_tables: expected ..."));
  CHECK(at_end.find("\"r99\":[999]}, got ...") != std::string::npos);
  CHECK(at_end.ends_with("\"r99\":[100]}"));
  CHECK(at_end.size() < 500);
  const std::string at_start = report(R"("r0":[1],)", R"("r0":[9],)");
  CHECK(at_start.starts_with(":1: seed 7, step 0, block_tables: expected {\"r0\":[9],"));
  CHECK(at_start.ends_with("..."));
  CHECK(at_start.size() < 500);
  const std::string absent = report(R"("finished")", R"("finisht")");
  CHECK(absent.find("finisht: expected [") != std::string::npos);
  CHECK(absent.ends_with(", got nothing"));
}

TEST_CASE("metronome decisions refuses what it cannot understand", "[decisions][cli]") {
  Answers answers("decisions/command_line.txt");
  for (const char* arguments :
       {"cases.jsonl", "cases.jsonl --engine vlm", "--engine vllm", "--engine vllm a b",
        "--engine vllm ''", "--engine vllm none.jsonl --check",
        "--engine vllm cases.jsonl --chek"}) {
    const CommandResult result = run_metronome("decisions " + std::string(arguments));
    INFO(arguments);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    answers.add("metronome decisions " + std::string(arguments), result.err);
  }

  if (!std::filesystem::exists("/dev/full")) return;
  const CommandResult full = run_metronome(
      "decisions --engine vllm tests/goldens/vllm_v1_sync.jsonl", "sh -c '\"$@\" >/dev/full' sh");
  CHECK(full.exit_code == 1);
  CHECK(full.err == "metronome: error: cannot write to standard output\n");
}

}  // namespace TEST_FILE
