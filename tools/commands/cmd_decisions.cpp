// SPDX-License-Identifier: Apache-2.0
// `metronome decisions`: replays recorded workloads; writes or compares the decisions.
#include <algorithm>
#include <fmt/core.h>
#include <iostream>
#include <optional>

#include "core/config/config_reader.h"
#include "study/decisions/decisions.h"
#include "study/decisions/router_decisions.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"

namespace metronome {
namespace {

struct DecisionOptions {
  std::string engine;
  std::string router;
  std::string version;
  std::string cases;
  bool is_check = false;
};

constexpr const char* kDecisionsExamples =
    "examples:\n"
    "  metronome decisions --engine vllm tests/goldens/vllm_v1_sync.jsonl --check\n"
    "  metronome decisions --engine nano_vllm tests/goldens/nano_vllm.jsonl > own.jsonl\n"
    "  metronome decisions --router dynamo dynamo_select.jsonl --check\n"
    "\n"
    "A case is one line of JSON: {\"seed\", \"config\", \"requests\", \"steps\"}; without --check "
    "the\n"
    "steps may be left out. Of a router: {\"workers\", \"config\", \"events\", ...}. See\n"
    "tests/goldens/README.md.\n"
    "\n"
    "exit codes: 0 done, or all cases identical; 1 some differ; 2 bad input\n";

OptionList option_list(DecisionOptions& options) {
  static const std::string engines = "engine of the decisions: " + join_names(decision_engines());
  static const std::string routers = "or their router: " + join_names(decision_routers());
  return {
      {"engine NAME", &options.engine, engines.c_str()},
      {"router NAME", &options.router, routers.c_str()},
      {"version NAME", &options.version,
       "vllm: decide by the rules of this version, whatever the cases say"},
      {"check", &options.is_check,
       "compare with the recorded steps, and print the first difference of each case"},
  };
}

void require_known(const std::string& option, const std::string& name,
                   std::span<const std::string_view> known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  throw UsageError("--" + option + ": unknown " + option + " '" + name + "'" +
                   did_you_mean(name, known) + "; allowed: " + join_names(known));
}

void check_options(const DecisionOptions& options) {
  if (options.engine.empty() && options.router.empty()) {
    throw UsageError(
        "decisions: give an engine with --engine; allowed: " + join_names(decision_engines()) +
        "; or a router with --router; allowed: " + join_names(decision_routers()));
  }
  if (options.router.empty()) return require_known("engine", options.engine, decision_engines());
  if (!options.engine.empty()) {
    throw UsageError("decisions: --engine and --router were both given; allowed: one of them");
  }
  require_known("router", options.router, decision_routers());
  if (!options.version.empty()) {
    throw UsageError("--version: a router has one version; allowed: with --engine alone");
  }
}

constexpr CommandText kDecisionsText = {
    .name = "decisions",
    .arguments = "--engine NAME | --router NAME CASES.jsonl [--version NAME] [--check]",
    .summary =
        "Runs the scheduling policy that reproduces an engine, or the rule of a router, on\n"
        "recorded cases, and writes each case with its own decisions, or compares them with\n"
        "the recorded ones.\n",
    .examples = kDecisionsExamples,
    .file_name = "CASES.jsonl",
    .file_kind = "file of cases"};

// nullopt if help was requested and printed.
std::optional<DecisionOptions> parse_decisions(const Arguments& arguments) {
  DecisionOptions options;
  const auto line = parse_command(kDecisionsText, option_list(options), arguments);
  if (!line) return std::nullopt;
  check_options(options);
  options.cases = line->file();
  return options;
}

// At most 200 characters of a text: all of it, or the part around `position`.
std::string excerpt(const std::string& text, std::size_t position) {
  constexpr std::size_t kMaxLength = 200;
  if (text.empty()) return "nothing";
  if (text.size() <= kMaxLength) return text;
  const std::size_t half = kMaxLength / 2;
  const std::size_t begin =
      std::min(position > half ? position - half : 0, text.size() - kMaxLength);
  const bool is_end = begin + kMaxLength == text.size();
  return (begin > 0 ? "..." : "") + text.substr(begin, kMaxLength) + (is_end ? "" : "...");
}

void print_difference(const std::string& file, const DecisionDifference& difference) {
  const std::string& expected = difference.expected;
  const std::string& got = difference.got;
  const auto first = std::mismatch(expected.begin(), expected.end(), got.begin(), got.end()).first;
  const auto position = static_cast<std::size_t>(first - expected.begin());
  const std::string place =
      difference.name.empty() ? fmt::format("seed {}, step {}", difference.seed, difference.step)
                              : fmt::format("case {}, event {}", difference.name, difference.step);
  std::cout << printable(fmt::format("{}:{}: {}, {}: expected {}, got {}", file, difference.line,
                                     place, difference.field, excerpt(expected, position),
                                     excerpt(got, position)))
            << '\n';
}

}  // namespace

int decisions_command(const Arguments& arguments) {
  const std::optional<DecisionOptions> options = parse_decisions(arguments);
  if (!options) return kExitDone;
  const bool is_router = !options->router.empty();
  if (!options->is_check) {
    if (is_router) {
      write_router_decisions(options->router, options->cases, std::cout);
    } else {
      write_decisions(options->engine, options->cases, std::cout, options->version);
    }
    return kExitDone;
  }
  const DecisionCheck check =
      is_router ? check_router_decisions(options->router, options->cases)
                : check_decisions(options->engine, options->cases, options->version);
  for (const DecisionDifference& difference : check.differences) {
    print_difference(options->cases, difference);
  }
  std::cout << check.num_cases - check.differences.size() << " of " << check.num_cases
            << " cases identical\n";
  return check.differences.empty() ? kExitDone : kExitRunFailed;
}

}  // namespace metronome
