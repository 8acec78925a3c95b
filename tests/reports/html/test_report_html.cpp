// SPDX-License-Identifier: Apache-2.0
// report.html: whole without scripts, safe whatever the names are, and the commands that write it.
#include <algorithm>
#include <sstream>

#include "core/base/json.h"
#include "reports/html/report_html.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/reports/files/vlq_reader.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

constexpr const char* kHostile = "</script><script>alert(1)</script>\"'&<b>{{data}}";

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t number = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++number;
  }
  return number;
}

RunResult named(const std::string& label, const std::string& backend = "sim") {
  RunResult result;
  result.info.label = label;
  result.info.backend = backend;
  result.info.digest = "d1ge57";
  result.info.config = {{"model", label}, {"seed", 7}};
  return result;
}

std::string report_of(const std::vector<RunResult>& results) {
  ReportBuilder report(results.size());
  for (const RunResult& result : results) report.add(ResultContent(result), {});
  return report.html();
}

// The names that the scripts define at their top level, as often as they do.
std::vector<std::string> script_names(const std::string& html) {
  std::istringstream text(html);
  std::vector<std::string> names;
  for (std::string line; std::getline(text, line);) {
    for (const std::string_view keyword : {"function ", "const ", "let ", "class "}) {
      if (!line.starts_with(keyword)) continue;
      const std::string rest = line.substr(keyword.size());
      names.push_back(rest.substr(0, rest.find_first_of(" (=;")));
    }
  }
  return names;
}

// The data that scripts read.
Json data_of(const std::string& html) {
  const std::string open = "id=\"report-data\">";
  const std::size_t begin = html.find(open) + open.size();
  return Json::parse(html.substr(begin, html.find("</script>", begin) - begin));
}

std::vector<Json> lines_of(const std::string& path) {
  std::istringstream text(read_text_file(path));
  std::vector<Json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

// Of the chunks in the steps that end in (from_us, until_us], the one whose share of its step took
// longest. From steps.jsonl alone, for steps without decodes beside their prefills.
struct SlowestChunk {
  std::int64_t request = -1, first_position = -1, num_tokens = 0, step = -1;
  std::int64_t num_steps = 0, total_tokens = 0;  // of all prefill there
};
SlowestChunk slowest_chunk(const std::vector<Json>& steps, std::int64_t from_us,
                           std::int64_t until_us) {
  SlowestChunk slowest;
  double longest = 0;
  for (const Json& step : steps) {
    const std::int64_t end_us = step["finished_ns"].get<std::int64_t>() / 1000;
    // Times and lengths are rounded down one by one; steps are far longer than that.
    if (end_us <= from_us + 2 || end_us > until_us + 2 || step["prefills"].empty()) continue;
    REQUIRE(step["decode_tokens"] == 0);
    ++slowest.num_steps;
    const double time = step["finished_ns"].get<double>() - step["started_ns"].get<double>();
    slowest.total_tokens += step["prefill_tokens"].get<std::int64_t>();
    for (const Json& chunk : step["prefills"]) {
      const double share = time * chunk[2].get<double>() / step["prefill_tokens"].get<double>();
      if (share <= longest + 1) continue;
      longest = share;
      slowest.request = chunk[0].get<std::int64_t>();
      slowest.first_position = chunk[1].get<std::int64_t>();
      slowest.num_tokens = chunk[2].get<std::int64_t>();
      slowest.step = step["step"].get<std::int64_t>();
    }
  }
  return slowest;
}

struct Finished {
  ScratchFolder scratch;
  std::string file;
  std::string out = scratch.path() + "/out";

  explicit Finished(const std::string& options = "", const std::string& head = "")
      : file(scratch.write("small.yaml", head + kSmallScenario + kTwoVariants)) {
    const CommandResult run = run_metronome("run '" + file + "' -q --out '" + out + "' " + options);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
  }
};

}  // namespace

TEST_CASE("no two scripts of a report define the same name", "[reports][html]") {
  // All scripts are one in the page. The later of two functions would replace the other silently.
  std::vector<std::string> names = script_names(report_of({named("a")}));
  CHECK(names.size() > 100);
  for (const char* name : {"bestRun", "bestOfCell", "kLight", "Columns"}) {
    INFO(name);
    CHECK(std::count(names.begin(), names.end(), name) == 1);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  CHECK((twice == names.end() ? "" : *twice) == "");
}

TEST_CASE("scripts take names, units and lists of figures from the program's table",
          "[reports][html]") {
  const std::string html = report_of({named("a")});
  const Json data = data_of(html);
  const Json& itl = data["figures"]["p99_itl_ms"];
  CHECK(itl["words"] == "p99 ITL");
  CHECK(itl["unit"] == "ms");
  CHECK(itl["better"] == -1);
  CHECK(data["figures"]["slo_attainment"]["scale"] == 100);
  for (const auto& [name, keys] : data["lists"].items()) {
    INFO(name);
    CHECK(keys.size() > 3);
    for (const Json& key : keys) CHECK(data["figures"].contains(key.string()));
  }
  // Keys in the scripts are those of the table.
  int num_named = 0;
  for (const std::string call : {"axisName('", "wordsOf('", "figureText('"}) {
    for (std::size_t at = html.find(call); at != std::string::npos; at = html.find(call, at + 1)) {
      const std::size_t begin = at + call.size();
      const std::string key = html.substr(begin, html.find('\'', begin) - begin);
      INFO(key);
      CHECK(data["figures"].contains(key));
      ++num_named;
    }
  }
  CHECK(num_named > 3);
}

TEST_CASE("a report is text and numbers without scripts", "[reports][html]") {
  RunResult result = named("chunked-512");
  result.summary.itl.p99_ms = 22.75;
  result.summary.completed = 1400;
  result.info.slo.itl_ms = 25;
  result.info.seed = 99;
  const std::string html = report_of({result});
  const std::string visible = html.substr(0, html.find("<script type="));
  for (const char* part :
       {"chunked-512", "1,400", ">22.75<", "every ITL &lt;= 25 ms", "d1ge57", "<dd>99</dd>",
        "the time between two consecutive tokens", "&quot;seed&quot;: 7"}) {
    INFO(part);
    CHECK(contains(visible, part));
  }
  CHECK(contains(html, "content=\"default-src 'none';"));
  CHECK(contains(html, "d3js.org v5.16"));
  CHECK_FALSE(contains(html, "{{"));
  CHECK_FALSE(contains(visible, " src="));
  CHECK_FALSE(contains(html, "url("));
}

TEST_CASE("names are shown, never run", "[reports][html]") {
  RunResult hostile = named(kHostile);
  hostile.info.description = kHostile;
  hostile.info.scenario = kHostile;
  hostile.info.model = kHostile;
  const std::string html = report_of({hostile, named("plain")});
  CHECK_FALSE(contains(html, "<script>alert"));
  CHECK_FALSE(contains(html, "<b>"));
  CHECK(count(html, "<script") == count(report_of({named("a"), named("b")}), "<script"));
  CHECK(contains(html, "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;"));
  CHECK(data_of(html)["runs"][0]["name"] == kHostile);
  CHECK(data_of(html)["runs"][0]["result"]["config"]["model"] == kHostile);
}

TEST_CASE("runs of one name are told apart", "[reports][html]") {
  const std::string html = report_of(
      {named("a"), named("a", "cpu"), named("b"), named("c"), named("c"), named("a", "cuda")});
  std::vector<std::string> names;
  const Json data = data_of(html);
  for (const auto& run : data["runs"]) names.push_back(run["name"].string());
  CHECK(names == std::vector<std::string>{"a (sim)", "a (cpu)", "b", "c #1", "c #2", "a (cuda)"});
}

TEST_CASE("runs of one name that differ in many settings are told apart by those they need",
          "[reports][html]") {
  std::vector<RunResult> results;
  for (int i = 0; i < 8; ++i) {
    RunResult result = named("a");
    Json config;
    for (const char* key : {"p", "q", "r", "s", "t"}) config["always"][key] = i / 4;
    config["engine"] = {{"max_num_seqs", i / 2 % 2 == 0 ? 16 : 32}};
    config["idle"] = {{"same", 1}, {"again", i / 2 % 2}};
    config["workload"]["arrivals"] = {{"rate", i % 2 == 0 ? 4.0 : 8.5}};
    result.info.config = config;
    results.push_back(result);
  }
  const Json data = data_of(report_of(results));
  CHECK(data["runs"][0]["name"] == "a p=0 q=0 r=0 s=0 max_num_seqs=16 rate=4");
  CHECK(data["runs"][3]["name"] == "a p=0 q=0 r=0 s=0 max_num_seqs=32 rate=8.5");
  CHECK(data["runs"][7]["name"] == "a p=1 q=1 r=1 s=1 max_num_seqs=32 rate=8.5");
}

TEST_CASE("run writes a report, and report writes the same again", "[cli][html]") {
  const Finished run("--set slo.itl_ms=20", "description: Two & <more>\n");
  const std::string first = read_text_file(run.out + "/report.html");
  CHECK(contains(first, "<p class=\"description\">Two &amp; &lt;more&gt;</p>"));
  CHECK(contains(first, "<h1>small</h1>"));
  const Json data = data_of(first);
  REQUIRE(data["runs"].size() == 2);
  CHECK(data["runs"][0]["name"] == "whole");
  CHECK(data["runs"][1]["detail"]["stalls"].size() > 0);
  const Json& result = data["runs"][0]["result"];
  CHECK_FALSE(result.contains("formulas"));
  // Else it is the run's result.json, without the id of that file.
  Json file = Json::parse(read_text_file(run.out + "/whole/result.json"));
  file.erase("formulas");
  file.erase("content_id");
  CHECK(result.dump() == file.dump());

  const std::string again = run.scratch.path() + "/again.html";
  const CommandResult report = run_metronome("report '" + run.out + "' --out '" + again + "'");
  INFO(report.err);
  REQUIRE(report.exit_code == 0);
  CHECK(contains(report.out, "again.html, 2 runs\n"));
  CHECK(read_text_file(again) == first);
  // In its place it is replaced, and a later run replaces the folder with it.
  CHECK(run_metronome("report '" + run.out + "'").exit_code == 0);
  CHECK(read_text_file(run.out + "/report.html") == first);
  CHECK(run_metronome("report '" + run.out + "/whole'").exit_code == 0);
  CHECK(data_of(read_text_file(run.out + "/whole/report.html"))["runs"].size() == 1);
  const std::string rerun = "run '" + run.file + "' -q --out '" + run.out + "' ";
  CHECK(run_metronome(rerun + "--set results.report=false").exit_code == 0);
  CHECK_FALSE(std::filesystem::exists(run.out + "/report.html"));
}

// SGLang prefills in steps of their own: a gap spans as many of them as a prompt has chunks, and
// the step that ends it has none.
TEST_CASE("a gap over several prefill steps is put down to the slowest chunk in them",
          "[cli][html]") {
  const ScratchFolder scratch;
  const std::string file = scratch.write("small.yaml", kSmallScenario);
  const std::string out = scratch.path() + "/out";
  const CommandResult run =
      run_metronome("run '" + file + "' -q --out '" + out +
                    "' --set scheduler.policy=sglang --set scheduler.chunked_prefill_size=512 "
                    "--set scheduler.max_prefill_tokens=512 --set workload.arrivals.rate=40 "
                    "--set cost_model.host_gap_us=400 --set engine.async_depth=1");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const Json detail = data_of(read_text_file(out + "/report.html"))["runs"][0]["detail"];
  const std::vector<Json> steps = lines_of(out + "/steps.jsonl");
  int num_long = 0;
  for (const Json& stall : detail["stalls"]) {
    const auto began = stall["began"].get<std::int64_t>();
    const auto gap = stall["gap"].get<std::int64_t>();
    INFO(stall.dump());
    const SlowestChunk slowest = slowest_chunk(steps, began, began + gap);
    CHECK(stall["prefill_tokens"] == slowest.total_tokens);
    if (slowest.num_steps == 0) {
      CHECK(stall["chunk"].is_null());
      continue;
    }
    num_long += slowest.num_steps > 1 ? 1 : 0;
    CHECK(stall["chunk"]["request"] == slowest.request);
    CHECK(stall["chunk"]["first_position"] == slowest.first_position);
    CHECK(stall["chunk"]["tokens"] == slowest.num_tokens);
    CHECK(stall["chunk"]["step"] == slowest.step);
  }
  CHECK(num_long > 3);
  // And so it is in the timeline.
  const auto column = [&](const char* name, bool is_delta = false) {
    return read_vlq(detail["gaps"][name].get<std::string>(), is_delta);
  };
  const auto after = column("after", true), gaps = column("gap"), cause = column("cause"),
             tokens = column("cause_tokens");
  int num_caused = 0;
  for (std::size_t i = 0; i < gaps.size(); ++i) {
    const SlowestChunk slowest = slowest_chunk(steps, after[i] - gaps[i], after[i]);
    INFO("gap of " << gaps[i] << " us until " << after[i]);
    CHECK(cause[i] == slowest.request + 1);
    CHECK(tokens[i] == slowest.num_tokens);
    num_caused += cause[i] > 0 ? 1 : 0;
  }
  CHECK(num_caused > 20);
}

TEST_CASE("several folders are compared in one report", "[cli][html]") {
  const Finished one("--set workload.arrivals.rate=20 --set results.trace=false"), two;
  const std::string out = one.scratch.path() + "/both.html";
  const std::string folders = "'" + one.out + "' '" + two.out + "/pieces'";
  const CommandResult both = run_metronome("report " + folders + " --out '" + out + "'");
  REQUIRE(both.exit_code == 0);
  CHECK_FALSE(contains(both.out, "remark"));
  const Json data = data_of(read_text_file(out));
  REQUIRE(data["runs"].size() == 3);
  CHECK(data["runs"][1]["name"] == "pieces rate=20");
  CHECK(data["runs"][2]["name"] == "pieces rate=10");

  const Finished other("--set model=qwen3-0.6b --set workload.num_requests=5");
  const CommandResult mixed =
      run_metronome("report '" + one.out + "/whole' '" + other.out + "/whole' --out '" + out + "'");
  REQUIRE(mixed.exit_code == 0);
  CHECK(contains(mixed.out,
                 "remark: the runs have different models (llama-3.2-1b, qwen3-0.6b) and "
                 "different numbers of requests (5 to 20): their figures cannot be "));
}

TEST_CASE("a run without its lines is in the report by its figures", "[cli][html]") {
  const Finished run("--set variants.whole.results.steps=false");
  REQUIRE(run_metronome("report '" + run.out + "'").exit_code == 0);
  const std::string html = read_text_file(run.out + "/report.html");
  CHECK(data_of(html)["runs"][0]["detail"].is_null());
  CHECK(data_of(html)["runs"][1]["detail"].is_object());
  CHECK(contains(html, "1 of the 2 runs are only in the summary (whole)"));
}

TEST_CASE("report says what is wrong in one line", "[cli][html]") {
  const Finished run;
  const std::string foreign = run.scratch.write("foreign.html", "mine");
  const auto message = [](const std::string& arguments) {
    const CommandResult report = run_metronome("report " + arguments);
    CHECK(report.exit_code == 2);
    CHECK(count(report.err, "\n") == 1);
    return report.err;
  };
  CHECK(
      contains(message("'" + run.out + "' --out '" + foreign + "'"), "exists and is not a report"));
  CHECK(read_text_file(foreign) == "mine");
  // Nor are the results themselves.
  for (const char* file : {"/whole/result.json", "/summary.json"}) {
    const std::string text = read_text_file(run.out + file);
    CHECK(contains(message("'" + run.out + "' --out '" + run.out + file + "'"),
                   "exists and is not a report"));
    CHECK(read_text_file(run.out + file) == text);
  }
  CHECK(contains(message(""), "report: give at least one result folder or client's result (see"));
  CHECK(contains(message("/nowhere"), "/nowhere: does not exist; allowed: "));
  CHECK(contains(message("'" + run.out + "' --out '" + run.out + "'"), "is a folder"));
  CHECK(contains(message("'" + run.out + "' --out ''"), "is empty"));
  CHECK(contains(message("'" + run.out + "' --out /nowhere/x.html"),
                 "--out: /nowhere/x.html: no such folder: /nowhere; allowed: a file in a folder"));
  // A report draws from steps.jsonl, not from an earlier report.html.
  const std::string drawn = read_text_file(run.out + "/report.html");
  REQUIRE(data_of(drawn)["runs"][0]["detail"].is_object());
  std::vector<std::string> steps;
  for (const auto& folder : std::filesystem::directory_iterator(run.out)) {
    if (folder.is_directory()) steps.push_back(folder.path().string() + "/steps.jsonl");
  }
  for (const std::string& path : steps) std::filesystem::rename(path, path + ".away");
  CHECK(contains(message("'" + run.out + "'"), "draws steps and requests, but the runs have no "));
  CHECK(read_text_file(run.out + "/report.html") == drawn);
  const std::string other = run.scratch.path() + "/figures.html";
  CHECK(run_metronome("report '" + run.out + "' --out '" + other + "'").exit_code == 0);
  CHECK(data_of(read_text_file(other))["runs"][0]["detail"].is_null());
  for (const std::string& path : steps) std::filesystem::rename(path + ".away", path);
  run.scratch.write("out/whole/steps.jsonl", "{\n");
  CHECK(contains(message("'" + run.out + "'"), "steps.jsonl:1: is not JSON"));
}

TEST_CASE("a page has an answer at its start, and may have nothing else", "[reports][html]") {
  TextTable table({"ms", "settings"}, 1);
  table.row({"7", kHostile});
  const std::vector<TextBlock> answer = {
      {.title = kHostile, .lines = {{kHostile}, {"part", 4, 4}}, .table = std::move(table)},
      {.copied = "--flag 1\n"}};
  ReportBuilder report(1);
  report.add(ResultContent(named("one")), {});
  report.add_answer(answer);
  const std::string with_runs = report.html();
  const std::string alone = report_html({.title = kHostile, .answer = answer}, {});
  for (const std::string& page : {with_runs, alone}) {
    CHECK(contains(page, "<section id=\"answer\">"));
    CHECK(contains(page, "<p class=\"part\">part</p>"));
    CHECK(contains(page, "<th scope=\"col\" class=\"text\">settings</th>"));
    CHECK(contains(page, "<tr><td>7</td><td class=\"text\">&lt;/script&gt;"));
    CHECK(contains(page, "<pre>--flag 1\n</pre>"));
    CHECK_FALSE(contains(page, "alert(1)</script>"));
  }
  CHECK(contains(with_runs, "id=\"report-data\""));
  CHECK_FALSE(contains(alone, "<script"));
}

TEST_CASE("diagnose writes its page of a run and of a log, and replaces only a page",
          "[reports][html][cli]") {
  const ScratchFolder scratch;
  const std::string page = scratch.path() + "/page.html";
  REQUIRE(run_metronome("run scenarios/quickstart.yaml --variant unchunked --out " +
                        scratch.path() + "/run")
              .exit_code == 0);
  const CommandResult result =
      run_metronome("diagnose " + scratch.path() + "/run" + " --target-itl 30 --html " + page);
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const std::string text = read_text_file(page);
  CHECK(contains(text, "which change keeps every gap within 30 ms"));
  CHECK(contains(text, ", to copy</h3>\n<pre>--"));
  CHECK(contains(text, "metronome verify --advice"));
  CHECK(contains(text, "id=\"report-data\""));
  const std::string log = "diagnose tests/expected/logs/vllm.log --html ";
  REQUIRE(run_metronome(log + scratch.path() + "/log.html").exit_code == 0);
  CHECK(
      contains(read_text_file(scratch.path() + "/log.html"), "longest stalls, one per iteration"));
  CHECK(contains(run_metronome(log + page).err, "--html: " + page + " draws steps and requests"));
  const std::string notes = scratch.write("notes.txt", "mine");
  const CommandResult refused = run_metronome(log + notes);
  CHECK(refused.exit_code == 2);
  CHECK(contains(refused.err, "exists and is not a report"));
  CHECK(read_text_file(notes) == "mine");
}

}  // namespace TEST_FILE
