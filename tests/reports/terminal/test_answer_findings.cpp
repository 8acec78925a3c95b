// SPDX-License-Identifier: Apache-2.0
// The timings that llama-server prints as each answer ends.
#include <sstream>
#include <string>

#include "engines/log/log_dialect.h"
#include "reports/terminal/answer_findings.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

// Two short answers at 5 ms a token. The third decodes from 2 s to 6 s; the prompt of the fourth is
// computed from 3 s to 5.5 s.
constexpr const char* kTimed =
    "0.00.000.269 I srv          init: initializing ...\n"
    "0.01.000.000 I slot print_timing: id  3 | task 0 | prompt eval time =      50.00 ms /    20 "
    "tokens (    2.50 ms per token,   400.00 tokens per second)\n"
    "0.01.000.016 I slot print_timing: id  3 | task 0 |        eval time =      50.00 ms /    10 "
    "tokens (    5.00 ms per token,   200.00 tokens per second)\n"
    "0.01.000.031 I slot print_timing: id  3 | task 0 |       total time =     100.00 ms /    30 "
    "tokens\n"
    "0.01.500.000 I slot print_timing: id  2 | task 3 | prompt eval time =      25.00 ms /    10 "
    "tokens (    2.50 ms per token,   400.00 tokens per second)\n"
    "0.01.500.010 I slot print_timing: id  2 | task 3 |        eval time =     100.00 ms /    20 "
    "tokens (    5.00 ms per token,   200.00 tokens per second)\n"
    "0.06.000.000 I slot print_timing: id  1 | task 7 | prompt eval time =     100.00 ms /    40 "
    "tokens (    2.50 ms per token,   400.00 tokens per second)\n"
    "0.06.000.010 I slot print_timing: id  1 | task 7 |        eval time =    4000.00 ms /    40 "
    "tokens (  100.00 ms per token,    10.00 tokens per second)\n"
    "0.05.500.000 I slot print_timing: id  0 | task 9 | prompt eval time =    2500.00 ms /  6000 "
    "tokens (    0.42 ms per token,  2400.00 tokens per second)\n"
    "0.05.510.010 I slot print_timing: id  0 | task 9 |        eval time =      10.00 ms /     2 "
    "tokens (    5.00 ms per token,   200.00 tokens per second)\n";

EngineLog log_of(const std::string& text) {
  std::istringstream in(text);
  return read_engine_log(in, "case.log");
}

}  // namespace

TEST_CASE("timings of a llama-server are read with their times and tasks", "[reports][findings]") {
  const EngineLog log = log_of(kTimed);
  CHECK(log.engine_name() == "llama-server");
  REQUIRE(log.observations.size() == 4);
  const LogObservation& first = log.observations[0];
  CHECK(first.kind == Observed::Answer);
  CHECK(first.time == "00:00:01.000000");
  CHECK(first.number == 0);
  CHECK(first.num_prefill_tokens == 20);
  CHECK(first.prefill_ns == 50 * kNsPerMs);
  CHECK(first.num_decode_tokens == 10);
  CHECK(first.elapsed_ns == 50 * kNsPerMs);
  CHECK(log.observations[3].number == 9);
}

TEST_CASE("a slowed answer is told with the prompts beside it", "[reports][findings]") {
  std::vector<LogFinding> findings;
  append_slowed_answer(log_of(kTimed), findings);
  REQUIRE(findings.size() == 1);
  const std::string& text = findings[0].text;
  INFO(text);
  CHECK(contains(text, "100 ms for each of its 40 tokens (task 7, line 7), 20.0 times as long"));
  CHECK(contains(text, "1 answer of 4 took at least three times as long"));
  CHECK(contains(text,
                 "In the 4,000 ms that it decoded, prompts of others with 6,000 tokens were "
                 "computed for 2,500 ms (the longest: task 9, line 9)."));
  CHECK(contains(text, "--batch-size"));
  CHECK(findings[0].share == 0.25);
  CHECK(answers_text(log_of(kTimed)) ==
        "tokens of 4 answers: p50 5 ms, slowest 100 ms (task 7, line 7); prompts: 400.0 tok/s in "
        "the median");
}

TEST_CASE("timings of older releases have no times, and equal answers no finding",
          "[reports][findings]") {
  // Two lines for the name, and no time; as llama-cli prints them, with "runs".
  const std::string old =
      "slot print_timing: id  0 | task 0 | \n"
      "prompt eval time =     123.45 ms /   100 tokens (    1.23 ms per token,   810.00 tokens per "
      "second)\n"
      "       eval time =     400.00 ms /    40 tokens (   10.00 ms per token,   100.00 tokens per "
      "second)\n"
      "      total time =     523.45 ms /   140 tokens\n"
      "llama_perf_context_print: prompt eval time =      20.00 ms /    10 tokens (    2.00 ms per "
      "token,   500.00 tokens per second)\n"
      "llama_perf_context_print:        eval time =      99.00 ms /     9 runs   (   11.00 ms per "
      "token,    90.91 tokens per second)\n";
  const EngineLog log = log_of(old);
  REQUIRE(log.observations.size() == 2);
  CHECK(log.observations[0].time.empty());
  CHECK(log.observations[0].number == -1);
  CHECK(log.observations[1].num_decode_tokens == 9);
  std::vector<LogFinding> findings;
  append_slowed_answer(log, findings);
  CHECK(findings.empty());
  const std::string slow =
      old + "prompt eval time =  10.00 ms / 1 tokens\n       eval time =  9000.00 ms / 90 tokens\n";
  append_slowed_answer(log_of(slow), findings);
  REQUIRE(findings.size() == 1);
  CHECK(contains(findings[0].text, "The lines have no times"));
}

TEST_CASE("diagnose reads a llama-server's log", "[reports][findings]") {
  const ScratchFolder folder;
  const std::string path = folder.write("server.log", kTimed);
  const CommandResult done = run_metronome("diagnose '" + path + "'");
  INFO(done.out << done.err);
  CHECK(done.exit_code == 0);
  CHECK(contains(done.out, "llama-server log, 4 answers"));
  CHECK(contains(done.out, "slowed: An answer took 100 ms for each of its 40 tokens"));
}

}  // namespace metronome::testing::TEST_FILE
