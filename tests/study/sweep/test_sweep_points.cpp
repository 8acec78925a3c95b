// SPDX-License-Identifier: Apache-2.0
// Settings that a sweep varies: values, ranges, the section of a scenario, the points they make.
#include <algorithm>
#include <stdexcept>

#include "core/scenario/scenario.h"
#include "study/sweep/sweep_points.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tools/commands/cli.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

using Texts = std::vector<std::string>;

Texts values(const std::string& text) { return parse_values(text, "--over k"); }

SweepSpec spec_of(const std::string& section, const Texts& over = {}) {
  const ScratchFolder folder;
  const std::string path = folder.write("s.yaml", std::string(kSmallScenario) + section);
  return read_sweep(load_scenario(path, {}, std::nullopt), over);
}

// "a=1 b=2", one a point.
Texts points_of(const SweepSpec& spec) {
  Texts texts;
  for (const auto& point : expand_points(spec)) {
    std::string& text = texts.emplace_back();
    for (const auto& [key, value] : point) text += (text.empty() ? "" : " ") + key + "=" + value;
  }
  return texts;
}

std::string error_in(const std::string& section, const Texts& over = {}) {
  return error_of<std::runtime_error>([&] { spec_of(section, over); });
}

}  // namespace

TEST_CASE("values are split at commas outside of brackets and quotes", "[sweep]") {
  CHECK(values("1,2,3") == Texts{"1", "2", "3"});
  CHECK(values(" a , b ") == Texts{"a", "b"});
  CHECK(values("[1, 2],[3]") == Texts{"[1, 2]", "[3]"});
  CHECK(values("{a: 1, b: 2},null") == Texts{"{a: 1, b: 2}", "null"});
  CHECK(values("\"a,b\",'c,[d'") == Texts{"\"a,b\"", "'c,[d'"});
  CHECK(values("\"\"") == Texts{"\"\""});
  for (const char* text : {"", "1,", ",1", "1,,2"}) {
    INFO(text);
    CHECK(contains(error_of<UsageError>([&] { values(text); }), "--over k: has an empty value"));
  }
}

TEST_CASE("ranges are exact and include their ends", "[sweep]") {
  CHECK(values("100:500:100") == Texts{"100", "200", "300", "400", "500"});
  CHECK(values("1:6:2") == Texts{"1", "3", "5"});
  CHECK(values("0.1:0.5:0.1") == Texts{"0.1", "0.2", "0.3", "0.4", "0.5"});
  CHECK(values("1:2:0.25") == Texts{"1", "1.25", "1.5", "1.75", "2"});
  CHECK(values("-1:1:1") == Texts{"-1", "0", "1"});
  CHECK(values("-0.5:0:0.25") == Texts{"-0.5", "-0.25", "0"});
  CHECK(values("7:7:1") == Texts{"7"});
  CHECK(values("128:4096:x2") == Texts{"128", "256", "512", "1024", "2048", "4096"});
  CHECK(values("1:10:x1.5") == Texts{"1", "2", "3", "5", "8"});
  CHECK(values("0.5:4:x2") == Texts{"0.5", "1", "2", "4"});
  CHECK(values("1,10:20:5,a") == Texts{"1", "10", "15", "20", "a"});
  // No ranges: text with colons.
  for (const char* text : {"a:b:c", "a:2", "1:2:3:4", "12:30:", "1:2:-", "1.:2:1", "1:2:1e3"}) {
    CHECK(values(text) == Texts{text});
  }
  for (const char* text : {"1:2", "5:1:1", "1:5:0", "1:5:-1", "1:5:x1", "0:5:x2", "-1:5:x2",
                           "1:1000000:1", "5:1:x2", "1:9000000000000000:1"}) {
    INFO(text);
    CHECK(contains(error_of<UsageError>([&] { values(text); }), "is not a range"));
  }
}

TEST_CASE("a range written with dots is told how it is written", "[sweep]") {
  CHECK(contains(error_of<UsageError>([] { values("1..3"); }),
                 "--over k: '1..3' is neither a value nor a range; allowed: START:STOP:STEP, as in "
                 "1:3:1"));
  CHECK(contains(error_of<UsageError>([] { values("8,0.5..2"); }), "as in 0.5:2:1"));
  CHECK(values("../a.csv,a..b,..") == Texts{"../a.csv", "a..b", ".."});
}

TEST_CASE("a grid is every combination, the last key fastest", "[sweep]") {
  const SweepSpec spec = spec_of("", {"a=1,2", "b=x,y,z"});
  CHECK(points_of(spec) == Texts{"a=1 b=x", "a=1 b=y", "a=1 b=z", "a=2 b=x", "a=2 b=y", "a=2 b=z"});
  CHECK(swept_keys(spec) == Texts{"a", "b"});
}

TEST_CASE("the section of a scenario is a grid, a list, or both", "[sweep]") {
  CHECK(points_of(spec_of("sweep:\n  over: {a: [1, 2], b: 10:20:10}\n")) ==
        Texts{"a=1 b=10", "a=1 b=20", "a=2 b=10", "a=2 b=20"});
  CHECK(points_of(spec_of("sweep: {points: [{a: 1, b: 2}, {b: 3, c: [4, 5]}]}\n")) ==
        Texts{"a=1 b=2", "b=3 c=[4, 5]"});
  const SweepSpec both = spec_of("sweep:\n  points: [{a: 1}, {b: 2}]\n  over: {c: [x, y]}\n");
  CHECK(points_of(both) == Texts{"a=1 c=x", "a=1 c=y", "b=2 c=x", "b=2 c=y"});
  CHECK(swept_keys(both) == Texts{"a", "b", "c"});
}

TEST_CASE("--over replaces and adds to the section", "[sweep]") {
  const std::string section = "sweep: {over: {a: [1, 2], b: [3]}}\n";
  CHECK(points_of(spec_of(section, {"a=9"})) == Texts{"a=9 b=3"});
  CHECK(points_of(spec_of(section, {"c=7"})) == Texts{"a=1 b=3 c=7", "a=2 b=3 c=7"});
}

TEST_CASE("values of the section mean what they mean in the file", "[sweep]") {
  const SweepSpec spec =
      spec_of("sweep: {over: {a: [\"7\", yes, null, .inf, \"x, y\", {b: [1, c]}]}}\n");
  CHECK(spec.over[0].values == Texts{"\"7\"", "yes", "null", ".inf", "\"x, y\"", "{b: [1, c]}"});
  // Paths are relative to the file, those of --over to the current folder.
  const ScratchFolder folder;
  const std::string path = folder.write(
      "s.yaml", std::string(kSmallScenario) +
                    "sweep: {over: {workload.trace: [t.csv], model: [llama-3.2-1b, ./m, c.json], "
                    "variants.x.workload.trace.file: [/abs.csv, ../t.csv]}}\n");
  const SweepSpec placed =
      read_sweep(load_scenario(path, {}, std::nullopt), {"workload.trace.file=t.csv"});
  CHECK(placed.over[0].values == Texts{folder.path() + "/t.csv"});
  CHECK(placed.over[1].values ==
        Texts{"llama-3.2-1b", folder.path() + "/m", folder.path() + "/c.json"});
  CHECK(placed.over[2].values ==
        Texts{"/abs.csv", std::filesystem::path(folder.path()).parent_path().string() + "/t.csv"});
  CHECK(placed.over[3].values == Texts{"t.csv"});
}

TEST_CASE("mistakes in what varies name their place", "[sweep]") {
  CHECK(contains(error_in(""), "nothing to vary"));
  CHECK(contains(error_in("", {"a"}), "--over a: has no values"));
  CHECK(contains(error_in("", {"=1"}), "--over =1: has no values"));
  CHECK(contains(error_in("", {"a=1,2,1"}), "--over a: has 1 twice"));
  CHECK(contains(error_in("", {"a=1", "a=2"}), "--over a: is given twice"));
  CHECK(contains(error_in("", {"a=1:1000:1", "b=1:1000:1"}), "more than 100000 points"));
  CHECK(contains(error_in("sweep: {points: [{a: 1}]}\n", {"a=2"}), "--over a: is also a key of "));
  CHECK(contains(error_in("sweep: {points: [{a: 1, b: 2}, {a: 2}, {b: 2, a: 1}]}\n"),
                 "s.yaml:10: sweep.points: has {a: 1, b: 2} twice; allowed: each point once"));
  CHECK(contains(error_in("sweep: {over: {a: []}}\n"), "s.yaml:10: sweep.over.a: has no values"));
  CHECK(contains(error_in("sweep: {over: {a: 3}}\n"), "sweep.over.a: must be a list of values"));
  CHECK(contains(error_in("sweep: {over: [a]}\n"), "sweep.over: must be a mapping, got a list"));
  CHECK(contains(error_in("sweep: {points: {a: 1}}\n"), "sweep.points: must be a list of points"));
  CHECK(contains(error_in("sweep: {points: [a]}\n"), "sweep.points.0: must be a mapping"));
  CHECK(contains(error_in("sweep: {ovr: {}}\n"), "sweep.ovr: unknown key (did you mean 'over'?)"));
  CHECK(contains(error_in("sweep: 3\n"), "sweep: must be a mapping, got '3'"));
}

TEST_CASE("a scenario with a section `sweep` is a scenario as before", "[sweep]") {
  const ScratchFolder folder;
  const std::string plain = folder.write("s.yaml", kSmallScenario);
  const std::string resolved = load_scenario(plain, {}, std::nullopt).variants[0].to_json();
  folder.write("s.yaml", std::string(kSmallScenario) + "sweep: {over: {seed: [1, 2]}}\n");
  CHECK(load_scenario(plain, {}, std::nullopt).variants[0].to_json() == resolved);
  CHECK(contains(error_of([&] { load_scenario(plain, {"sweep.over=3"}, std::nullopt); }),
                 "--set sweep.over: the points of a sweep can only be set in the file"));
}

}  // namespace TEST_FILE
