// report.html: whole without scripts, safe whatever the names are, and the commands that write it.
#include <nlohmann/json.hpp>

#include "reports/report_html.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

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

bool contains(const std::string& text, const std::string& part) { return count(text, part) > 0; }

RunResult named(const std::string& label, const std::string& backend = "sim") {
  RunResult result;
  result.info.label = label;
  result.info.backend = backend;
  result.info.digest = "d1ge57";
  result.info.config_json = nlohmann::json{{"model", label}, {"seed", 7}}.dump();
  return result;
}

std::string report_of(const std::vector<RunResult>& results) {
  ReportBuilder report(results.size());
  for (const RunResult& result : results) report.add(result.info, result_json(result), nullptr);
  return report.html();
}

// The data that scripts read.
nlohmann::json data_of(const std::string& html) {
  const std::string open = "id=\"report-data\">";
  const std::size_t begin = html.find(open) + open.size();
  return nlohmann::json::parse(html.substr(begin, html.find("</script>", begin) - begin));
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

TEST_CASE("a report is text and numbers without scripts", "[reports][html]") {
  RunResult result = named("chunked-512");
  result.summary.itl.p99_ms = 22.75;
  result.summary.completed = 1400;
  result.info.slo.itl_ms = 25;
  result.info.seed = 99;
  const std::string html = report_of({result});
  const std::string visible = html.substr(0, html.find("<script type="));
  for (const char* part : {"chunked-512", "1,400", ">22.8<", "every ITL &lt;= 25 ms", "d1ge57",
                           "<dd>99</dd>", "every gap between two tokens", "&quot;seed&quot;: 7"}) {
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
  const nlohmann::json data = data_of(html);
  for (const auto& run : data["runs"]) names.push_back(run["name"]);
  CHECK(names == std::vector<std::string>{"a (sim)", "a (cpu)", "b", "c (sim) #1", "c (sim) #2",
                                          "a (cuda)"});
}

TEST_CASE("run writes a report, and report writes the same again", "[cli][html]") {
  const Finished run("--set slo.itl_ms=20", "description: Two & <more>\n");
  const std::string first = read_text_file(run.out + "/report.html");
  CHECK(contains(first, "<p class=\"description\">Two &amp; &lt;more&gt;</p>"));
  CHECK(contains(first, "<h1>small</h1>"));
  const nlohmann::json data = data_of(first);
  REQUIRE(data["runs"].size() == 2);
  CHECK(data["runs"][0]["name"] == "whole");
  CHECK(data["runs"][1]["detail"]["stalls"].size() > 0);
  CHECK_FALSE(data["runs"][0]["result"].contains("formulas"));

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

TEST_CASE("several folders are compared in one report", "[cli][html]") {
  const Finished one("--set workload.arrivals.rate=20"), two;
  const std::string out = one.scratch.path() + "/both.html";
  const std::string folders = "'" + one.out + "' '" + two.out + "/pieces'";
  REQUIRE(run_metronome("report " + folders + " --out '" + out + "'").exit_code == 0);
  const nlohmann::json data = data_of(read_text_file(out));
  REQUIRE(data["runs"].size() == 3);
  CHECK(data["runs"][1]["name"] == "pieces (sim) #1");
  CHECK(data["runs"][2]["name"] == "pieces (sim) #2");
}

TEST_CASE("a run without its lines is in the report by its figures", "[cli][html]") {
  const Finished run("--set variants.whole.results.steps=false");
  REQUIRE(run_metronome("report '" + run.out + "'").exit_code == 0);
  const std::string html = read_text_file(run.out + "/report.html");
  CHECK(data_of(html)["runs"][0]["detail"].is_null());
  CHECK(data_of(html)["runs"][1]["detail"].is_object());
  CHECK(contains(html, "Of 1 of the 2 runs only the figures of the summary are here (whole)"));
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
  CHECK(contains(message("'" + run.out + "' --out '" + foreign + "'"), "exists and is no report"));
  CHECK(read_text_file(foreign) == "mine");
  CHECK(contains(message(""), "give one result folder, not 0"));
  CHECK(contains(message("/nowhere"), "/nowhere: holds no result"));
  CHECK(contains(message("'" + run.out + "' --out '" + run.out + "'"), "is a folder"));
  CHECK(contains(message("'" + run.out + "' --out ''"), "is empty"));
  run.scratch.write("out/whole/steps.jsonl", "{\n");
  CHECK(contains(message("'" + run.out + "'"), "steps.jsonl:1: is no JSON"));
}
