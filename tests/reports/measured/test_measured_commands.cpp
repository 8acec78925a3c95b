// SPDX-License-Identifier: Apache-2.0
// Results of benchmarks' clients in commands: what diagnose finds in one, and that validate, report
// and calibrate take or refuse it.
#include <string>
#include <vector>

#include "core/base/json.h"
#include "reports/terminal/client_findings.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

std::string fixture(const std::string& name) {
  return source_dir() + "/tests/fixtures/results/" + name;
}

constexpr const char* kRunWithoutStarts =
    R"({"backend": "sglang", "request_rate": 2.0, "max_concurrency": 4, "duration": 2.0, )"
    R"("completed": 2, "mean_e2e_latency_ms": 140.0, "input_lens": [10, 20], )"
    R"("output_lens": [2, 1], "ttfts": [0.1, 0.2], "itls": [[0.05], []], "errors": ["", ""]})";

}  // namespace

TEST_CASE("what a client's result says about late tokens", "[reports][measured]") {
  MeasuredRun run;
  run.has_gaps = true;
  const auto add = [&](TimeNs start, TimeNs ttft, const std::vector<TimeNs>& gaps,
                       std::int32_t num_prompt_tokens) {
    MeasuredRequest request;
    request.start = start * kNsPerMs;
    request.ttft_ns = request.e2el_ns = ttft * kNsPerMs;
    request.num_prompt_tokens = num_prompt_tokens;
    request.num_output_tokens = static_cast<std::int32_t>(gaps.size()) + 1;
    for (const TimeNs gap : gaps) {
      request.gaps.push_back(gap * kNsPerMs);
      request.e2el_ns += request.gaps.back();
    }
    run.requests.push_back(request);
  };
  add(0, 10, {5, 40, 5}, 100);  // its second gap lasts from 15 to 55 ms
  add(20, 30, {6}, 2000);       // first token at 50 ms, within that gap
  add(30, 70, {7}, 300);        // first token at 100 ms
  run.num_completed = 3;
  const ClientFindings findings = examine_client(run, 6.0, 2);
  CHECK(findings.num_gaps == 5);
  CHECK(findings.num_gaps_over == 2);  // 40 and 7; 6 is no longer than the limit
  CHECK(findings.num_requests_over == 2);
  REQUIRE(findings.longest_gaps.size() == 2);
  const ClientGap& gap = findings.longest_gaps[0];
  CHECK(gap.request == 0);
  CHECK(gap.chunk == 2);
  CHECK(gap.began == 15 * kNsPerMs);
  CHECK(gap.num_first_tokens == 1);
  CHECK(gap.num_prompt_tokens == 2000);
  CHECK(findings.latest_first_tokens[0].request == 2);
  const std::string text = client_findings_text(run, findings);
  CHECK(contains(text, "2 of 5 gaps (40.00 %) longer than "));
  CHECK(contains(text, " ms, in 2 of 3 requests"));
}

TEST_CASE("commands take the result of a client", "[cli][measured]") {
  const ScratchFolder folder;
  const std::string scenario = folder.write("s.yaml", R"(model: llama-3.1-8b
hardware: h200
workload:
  num_requests: 6
  arrivals: {process: closed_loop, concurrency: 3}
  prompt_tokens: {value: 40}
  output_tokens: {value: 6}
scheduler: {policy: vllm}
)");
  const std::string sim = "'" + folder.path() + "/sim'";
  REQUIRE(run_metronome("run '" + scenario + "' -q --out " + sim).exit_code == 0);
  const std::string aiperf = "'" + fixture("aiperf-0.13") + "' ";
  const CommandResult same = run_metronome("validate " + aiperf + sim);
  CHECK(same.err.empty());
  CHECK(same.exit_code == 0);
  CHECK(contains(same.out, "AIPerf 0.13.0, at most 3 at once, 6 requests"));
  CHECK(contains(same.out, "mean |error| of TTFT, TPOT and E2EL "));
  const CommandResult figures =
      run_metronome("validate '" + fixture("aiperf-0.13/profile_export_aiperf.json") + "' " + sim);
  CHECK(figures.exit_code == 0);
  CHECK(contains(figures.out, "measured figures are the client's own"));
  CHECK(contains(figures.out, "it has no requests"));
  const CommandResult other =
      run_metronome("validate '" + fixture("guidellm-0.8") + "' " + sim + " --run 2");
  CHECK(other.exit_code == 2);
  CHECK(contains(other.err, "5 requests, not 6"));
  CHECK(contains(run_metronome("validate '" + fixture("guidellm-0.8") + "' " + sim).err,
                 ": has 2 runs; allowed: --run N with one of 1 (2.00 requests/s, "));
  CHECK(contains(run_metronome("validate " + sim + ' ' + sim + " --run 1").err,
                 "--run: has no effect"));

  const CommandResult found = run_metronome("diagnose " + aiperf + "--target-itl 10");
  CHECK(found.exit_code == 0);
  CHECK(contains(found.out, "longest gaps, ms"));
  CHECK(contains(found.out, "A client sees no steps."));
  CHECK(contains(run_metronome("diagnose " + aiperf + "--flags '--max-num-seqs 2'").err,
                 "--flags: has no effect, as "));
  const Json json = Json::parse(run_metronome("diagnose " + aiperf + "--json").out);
  CHECK(json.at(0).at("gaps") == Json(30));

  const std::string page = folder.path() + "/page.html";
  const CommandResult report = run_metronome("report " + aiperf + sim + " --out '" + page + "'");
  CHECK(report.err.empty());
  CHECK(contains(report.out, "2 runs"));
  CHECK(contains(read_text_file(page), "AIPerf 0.13.0"));
  const CommandResult rates = run_metronome("report '" + fixture("guidellm-0.8") + "' --out '" +
                                            folder.path() + "/rates.html'");
  CHECK(contains(rates.out, "2 runs"));
  // Its requests have no gaps, and nobody knows their seed.
  CHECK(contains(rates.out,
                 "figures of single steps and requests are left out: no result has "
                 "the times of all tokens\n"));
  const std::string rates_page = read_text_file(folder.path() + "/rates.html");
  CHECK(contains(rates_page, "need the start and every gap of each request, which these clients"));
  CHECK_FALSE(contains(rates_page, "<dt>seed</dt>"));
  CHECK(contains(rates_page, "\"seed\":null"));

  const CommandResult no_starts =
      run_metronome("calibrate --scenario '" + scenario + "' --from '" +
                    folder.write("sglang.jsonl", kRunWithoutStarts) + "'");
  CHECK(no_starts.exit_code == 2);
  CHECK(contains(no_starts.err,
                 "is a result of SGLang's benchmark without the times at which "
                 "requests were sent; allowed: "));
}

}  // namespace metronome::testing::TEST_FILE
