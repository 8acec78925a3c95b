// SPDX-License-Identifier: Apache-2.0
// `metronome advise`: watches a running server, and says which flags keep its goals.
#include <fmt/core.h>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/number_text.h"
#include "engines/log/log_dialect.h"
#include "study/watch/watched_goals.h"
#include "system/progress.h"
#include "tools/commands/advise_session.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"
#include "tools/commands/goal_options.h"
#include "tools/commands/request_headers.h"

namespace metronome {
namespace {

constexpr const char* kAdviseExamples =
    "URL is the address of a server that shows its metrics: vLLM, SGLang with\n"
    "--enable-metrics, or `metronome serve`. The command reads URL/metrics at intervals and, with\n"
    "--log, the server's log as it grows. It changes nothing on the server.\n"
    "\n"
    "From the metrics alone it says the load, and whether a goal is broken. They lack the token\n"
    "budget, the limit of running requests and the time of a step. With a log that has every\n"
    "step (vLLM: --enable-logging-iteration-details) it rebuilds the requests and replays them\n"
    "with other settings, as `diagnose` does. It prints the flags that keep the goals, what they\n"
    "cost, how well the log knows it, and the command that starts the server so.\n"
    "\n"
    "Goals come from the --target options. Without one they are 99 % of the gaps within 200 ms,\n"
    "and the p99 TTFT within 2,000 ms: MLPerf Inference's limits for Llama 2 70B on servers.\n"
    "--target-rate needs the log. A histogram says between which bounds a figure is. Where the\n"
    "limit is between the same two, the goal is undecided, unless the log has the steps.\n"
    "\n"
    "On a terminal the report is drawn again at each look. Elsewhere a look is a line, and a\n"
    "whole report where a goal, a cause or an advice is new. What goes wrong is a line on\n"
    "standard error: a log that was rotated or cut, a server that does not answer or starts\n"
    "again.\n"
    "\n"
    "examples:\n"
    "  metronome advise http://localhost:8000\n"
    "  metronome advise http://localhost:8000 --log server.log --target-itl 100\n"
    "  tail -F server.log | metronome advise http://localhost:8000 --log -\n"
    "  metronome advise http://localhost:8000 --log server.log --once --json\n"
    "  metronome advise http://localhost:8000 --log server.log \\\n"
    "      --prometheus /var/lib/node_exporter/metronome.prom\n"
    "\n"
    "exit codes: 0 done, 1 an output failed, 2 bad input, or with --once nothing could be read,\n"
    "3 a goal is broken at the last look\n";

constexpr CommandText kAdviseText = {
    .name = "advise",
    .arguments = "URL [OPTION...]",
    .summary =
        "Watches a running server: its load, the goals that it breaks, why, and which flags keep\n"
        "them.\n",
    .examples = kAdviseExamples,
    .file_name = "URL",
    .file_kind = "server's URL"};

OptionList option_list(AdviseOptions& options) {
  OptionList list = {
      {"log FILE", &options.log, "the server's log, followed as it grows; - is standard input"},
      {"engine NAME", &options.engine, "the engine to read, if a log has lines of several"},
      {"once", &options.is_once, "one look over an interval, then end"},
      {"interval S (=10)", &options.interval_s, "seconds between two looks", EmptyText::Refused,
       RealRange{0.1, 3600, "seconds"}},
      {"window S (=60)", &options.window_s,
       "seconds of the figures and goals; with --once they are of the interval",
       EmptyText::Refused, RealRange{0.1, 86'400, "seconds"}},
      {"looks N", &options.most_looks, "end after so many looks (default: at Ctrl-C)",
       EmptyText::Refused, WholeRange{1, 1'000'000'000}},
      {"timeout S (=10)", &options.timeout_s, "time limit of an answer", EmptyText::Refused,
       RealRange{0.1, 600, "seconds"}},
      {"header NAME:VALUE", &options.headers, "send this header with every request; repeatable"},
      {"model NAME", &options.model,
       "model of the replays, where the log's name for it is not known"},
      {"gpu NAME", &options.gpu, "GPU of the replays, where the log has too few steps"},
      {"no-replay", &options.has_no_replay, "do not search for settings that keep the goals"},
      {"jobs,j N (=1)", &options.num_jobs, "threads of the search", EmptyText::Refused, kJobs},
      {"prometheus FILE", &options.prometheus,
       "write goals, causes and flags as metrics into this file at each look, for the textfile "
       "collector of Prometheus' node exporter, which reads names that end in .prom"},
      {"json", &options.wants_json,
       "print JSON: with --once one object, else a line for each look"},
  };
  add_goal_options(options.goals, list);
  // A server does not say its price.
  std::erase_if(list, [](const CommandOption& one) {
    return one.syntax.starts_with("target-cost");
  });
  return list;
}

// A file of other content stays.
void check_own_file(const std::string& path) {
  if (path.empty() || !path_exists(path)) return;
  constexpr std::string_view kBegin = "# HELP metronome_advise_";
  const std::string text = is_folder(path) ? "" : read_file(path, 1 << 20).value_or("");
  if (text.starts_with(kBegin)) return;
  throw UsageError("--prometheus: " + path +
                   " exists and is not of this command; allowed: a new file, or one that it wrote");
}

// nullopt if help was requested and printed.
std::optional<AdviseOptions> parse_advise(const Arguments& arguments) {
  AdviseOptions options;
  const auto line = parse_command(kAdviseText, option_list(options), arguments);
  if (!line) return std::nullopt;
  options.url = parse_server_url(line->file());
  complete_headers(options.headers);
  if (!options.engine.empty() && find_log_dialect(options.engine) == nullptr) {
    throw UsageError("--engine: '" + options.engine +
                     "' is not valid; allowed: " + log_dialect_names());
  }
  for (const char* name : {"engine", "model", "gpu", "jobs", "no-replay"}) {
    if (!line->has(name) || !options.log.empty()) continue;
    throw UsageError(fmt::format("--{}: has no effect; allowed: with --log", name));
  }
  for (const char* name : {"looks", "window"}) {
    if (!line->has(name) || !options.is_once) continue;
    throw UsageError(fmt::format("--{}: contradicts --once; allowed: one of them", name));
  }
  SloConfig& goals = options.goals;
  if (goals.itl_share && !is_known_share(*goals.itl_share)) {
    throw UsageError("--target-itl-share: " + ms_text(*goals.itl_share) +
                     " is not valid; allowed: 0.5, 0.9, 0.95, 0.99 or 1");
  }
  if (goals.itl_share && !goals.itl_ms) {
    throw UsageError("--target-itl-share: has no effect; allowed: with --target-itl");
  }
  options.has_usual_goals = goals_of(goals).empty();
  if (options.has_usual_goals) goals = usual_watch_goals();
  check_own_file(options.prometheus);
  return options;
}

}  // namespace

int advise_command(const Arguments& arguments) {
  std::optional<AdviseOptions> options = parse_advise(arguments);
  if (!options) return kExitDone;
  const bool is_once = options->is_once;
  catch_signals();
  AdviseSession session(std::move(*options));
  const WatchReport last = is_once ? session.look_once() : session.watch();
  return is_any_broken(last.goals) ? kExitNotKept : kExitDone;
}

}  // namespace metronome
