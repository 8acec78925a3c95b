// SPDX-License-Identifier: Apache-2.0
// `metronome decisions`: replays recorded workloads; writes or compares the decisions.
#include <algorithm>
#include <fmt/core.h>
#include <iostream>
#include <optional>

#include "core/config/config_reader.h"
#include "study/decisions/decisions.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"

namespace metronome {
namespace {

struct DecisionOptions {
  std::string engine;
  std::string version;
  std::string cases;
  bool is_check = false;
};

constexpr const char* kExamples =
    "examples:\n"
    "  metronome decisions --engine vllm tests/goldens/vllm_v1_sync.jsonl --check\n"
    "  metronome decisions --engine nano_vllm tests/goldens/nano_vllm.jsonl > own.jsonl\n"
    "\n"
    "A case is one line of JSON: {\"seed\", \"config\", \"requests\", \"steps\"}; without --check "
    "the\n"
    "steps may be left out. See tests/goldens/README.md.\n"
    "\n"
    "exit codes: 0 done, or all cases identical; 1 some differ; 2 bad input\n";

OptionList option_list(DecisionOptions& options) {
  static const std::string engines = "engine of the decisions: " + join_names(decision_engines());
  return {
      {"engine NAME", &options.engine, engines.c_str()},
      {"version NAME", &options.version,
       "vllm: decide by the rules of this version, whatever the cases say"},
      {"check", &options.is_check,
       "compare with the recorded steps, and print the first difference of each case"},
  };
}

void require_engine(const std::string& engine) {
  const auto known = decision_engines();
  const std::string allowed = "; allowed: " + join_names(known);
  if (engine.empty()) throw UsageError("decisions: give an engine with --engine" + allowed);
  if (std::find(known.begin(), known.end(), engine) != known.end()) return;
  throw UsageError("--engine: unknown engine '" + engine + "'" + did_you_mean(engine, known) +
                   allowed);
}

constexpr CommandText kText = {
    .name = "decisions",
    .arguments = "--engine NAME CASES.jsonl [--version NAME] [--check]",
    .summary =
        "Runs the scheduling policy that reproduces an engine on recorded cases, and\n"
        "writes each case with its own steps, or compares them with the engine's.\n",
    .examples = kExamples,
    .file_name = "CASES.jsonl",
    .file_kind = "file of cases"};

// nullopt if help was requested and printed.
std::optional<DecisionOptions> parse(const Arguments& arguments) {
  DecisionOptions options;
  const auto line = parse_command(kText, option_list(options), arguments);
  if (!line) return std::nullopt;
  require_engine(options.engine);
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
  std::cout << printable(fmt::format("{}:{}: seed {}, step {}, {}: expected {}, got {}", file,
                                     difference.line, difference.seed, difference.step,
                                     difference.field, excerpt(expected, position),
                                     excerpt(got, position)))
            << '\n';
}

}  // namespace

int decisions_command(const Arguments& arguments) {
  const std::optional<DecisionOptions> options = parse(arguments);
  if (!options) return kExitDone;
  if (!options->is_check) {
    write_decisions(options->engine, options->cases, std::cout, options->version);
    return kExitDone;
  }
  const DecisionCheck check = check_decisions(options->engine, options->cases, options->version);
  for (const DecisionDifference& difference : check.differences) {
    print_difference(options->cases, difference);
  }
  std::cout << check.num_cases - check.differences.size() << " of " << check.num_cases
            << " cases identical\n";
  return check.differences.empty() ? kExitDone : kExitRunFailed;
}

}  // namespace metronome
