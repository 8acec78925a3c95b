// SPDX-License-Identifier: Apache-2.0
// `metronome verify`: did a change of a server's settings do what was promised?
#include <fmt/core.h>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "core/base/count_text.h"
#include "engines/log/engine_log.h"
#include "reports/terminal/text.h"
#include "study/verify/verify.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"

namespace metronome {
namespace {

constexpr const char* kVerifyExamples =
    "BEFORE and AFTER are logs of the same server under the same load, before and after a change\n"
    "of its settings: vLLM's with --enable-logging-iteration-details, or SGLang's. They may also\n"
    "be results of a client: JSON of `vllm bench serve --save-result --save-detailed`, or a\n"
    "folder of `bench-serve`. With both, the ITL, TTFT and throughput are the client's.\n"
    "\n"
    "The machine may have become faster or slower between them. The command therefore compares\n"
    "iterations of equal work: as many context requests, context tokens, generation requests and\n"
    "generation tokens. It prints the ratio of their times, and divides the durations after the\n"
    "change by it. Throughputs stay as they were measured.\n"
    "\n"
    "--advice reads what `diagnose --json` promised: the figures with the change, the limit of\n"
    "every gap, and the flags. A server that did not have these flags is an error. A figure is\n"
    "kept if it is no worse than promised by more than --tolerance; the limit has no tolerance.\n"
    "\n"
    "Several --before and as many --after are turns: the n-th belong together. Measure them in\n"
    "alternation. The figures are then means over the turns, with the lowest and the highest.\n"
    "\n"
    "examples:\n"
    "  metronome diagnose before.log --scenario served.yaml --target-itl 300 --json > advice.json\n"
    "  metronome verify --before before.log --after after.log --advice advice.json\n"
    "  metronome verify --before before.log --before before.json --after after.log \\\n"
    "      --after after.json --promise p99_itl_ms=199 --promise p99_ttft_ms=3088\n"
    "\n"
    "exit codes: 0 done, 2 bad input, 3 a promise was not kept\n";

constexpr CommandText kVerifyText = {
    .name = "verify",
    .arguments = "--before LOG --after LOG [OPTION...]",
    .summary = "Says whether a change of a server's settings did what was promised.\n",
    .examples = kVerifyExamples,
    .files = FileCount::None};

struct Options {
  std::vector<std::string> before, after, promises;
  std::optional<std::string> before_iterations, after_iterations;
  std::string advice;
  std::optional<double> limit_ms;
  VerifyOptions verify;
  bool wants_json = false;
};

std::optional<Options> parse_verify(const Arguments& arguments) {
  Options options;
  const OptionList option_list = {
      {"before LOG", &options.before, "log or results before the change; repeatable"},
      {"after LOG", &options.after, "log or results after it; repeatable"},
      {"advice FILE", &options.advice, "what `diagnose --json` printed: its promises"},
      {"promise FIGURE=VALUE", &options.promises,
       "a promise, in milliseconds or per second: p50_itl_ms, p99_itl_ms, max_itl_ms, "
       "p50_ttft_ms, p99_ttft_ms, output_throughput, request_throughput; replaces that of "
       "--advice; repeatable"},
      {"target-itl MS", &options.limit_ms,
       "limit of every gap in milliseconds (default: that of --advice, if it promises to keep it)",
       EmptyText::Refused, RealRange{0.001, 3.6e6, "milliseconds"}},
      {"tolerance SHARE", &options.verify.tolerance,
       "how much worse than promised a figure may be (default: 0.2)", EmptyText::Refused,
       RealRange{0, 10, "", false, true}},
      {"before-iterations RANGE", &options.before_iterations,
       "iterations of the logs before the change: FIRST:LAST by their numbers; either end may be "
       "left out"},
      {"after-iterations RANGE", &options.after_iterations, "those of the logs after it"},
      {"allow-differences", &options.verify.allows_differences,
       "compare although the server after does not have the advised flags"},
      {"json", &options.wants_json, "print JSON"},
  };
  if (!parse_command(kVerifyText, option_list, arguments)) return std::nullopt;
  if (options.before.empty() || options.after.empty()) {
    throw UsageError(
        "verify: needs --before and --after; allowed: at least one log or result of each (see "
        "`metronome verify --help`)");
  }
  if (!options.advice.empty()) options.verify.advice = read_advice(options.advice);
  for (const std::string& promise : options.promises) {
    add_promise(promise, options.verify.advice);
  }
  if (options.limit_ms) options.verify.advice.limit_ms = options.limit_ms;
  return options;
}

std::optional<IterationRange> range_of(const std::optional<std::string>& text) {
  return text ? std::optional(parse_iteration_range(*text)) : std::nullopt;
}

}  // namespace

int verify_command(const Arguments& arguments) {
  const std::optional<Options> options = parse_verify(arguments);
  if (!options) return kExitDone;
  const VerifiedSide before =
      read_side("--before", options->before, range_of(options->before_iterations));
  const VerifiedSide after =
      read_side("--after", options->after, range_of(options->after_iterations));
  if (before.num_turns() != after.num_turns()) {
    throw UsageError(fmt::format("--after: got {}, --before {}; allowed: as many of both",
                                 count_text(after.num_turns(), "turn"), before.num_turns()));
  }
  const Verification verification = verify(before, after, options->verify);
  std::cout << (options->wants_json ? verification.json() : verification.text(output_columns()));
  return verification.has_promises() && !verification.came_true() ? kExitNotKept : kExitDone;
}

}  // namespace metronome
