// `metronome diagnose`: why tokens of a run came late, and which prefill delayed other requests.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <optional>

#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/base/number_text.h"
#include "core/base/progress.h"
#include "core/base/wrapped_text.h"
#include "reports/files/iteration_log.h"
#include "reports/files/result_reader.h"
#include "reports/terminal/diagnosis.h"
#include "reports/terminal/text.h"
#include "study/run/variant_run.h"
#include "study/what_if/what_if.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"
#include "tools/commands/run_choice.h"

namespace metronome {
namespace {

struct DiagnoseOptions {
  std::string run;
  std::string top = "5";
  std::size_t max_entries = 0;
  std::optional<std::string> target_itl;
  std::optional<double> target_itl_ms;
  std::string hardware;  // to simulate; empty: the run's
  std::string scenario;  // its requests are replayed for a log
  std::string variant;   // of the scenario
  bool has_no_replay = false;
  bool wants_json = false;
};

constexpr const char* kExamples =
    "RUN is a folder that `metronome run` wrote (every variant in it is diagnosed), or a log of\n"
    "vLLM with --enable-logging-iteration-details. Such a log has iterations but no requests:\n"
    "--scenario describes the engine, its settings, model, GPU and requests to replay.\n"
    "\n"
    "A gap is an inter-token latency (ITL): the time between two tokens of a request. Its parts:\n"
    "  decode     decodes of the step that gave the token\n"
    "  prefill    chunks of prompts in that step or in steps before it\n"
    "  host       idle time of the device\n"
    "  waiting    decodes of steps that did not include the request\n"
    "  preempted  the whole gap, if the request lost its KV blocks in it\n"
    "\n"
    "If a gap is longer than the limit, the simulator replays the requests with other settings:\n"
    "first smaller token budgets or chunks of the same policy, in powers of two, then its other\n"
    "settings, then other policies. The command prints the smallest change that keeps every gap\n"
    "within the limit: the fewest keys, then the nearest value, to a multiple of 64 tokens. It\n"
    "also prints the cost of the change, and the changes of vLLM's and SGLang's flags. A change\n"
    "that loses requests or more than a tenth of the throughput does not count. The replay of a\n"
    "measured run needs a GPU: the key `hardware` of its scenario, or --hardware.\n"
    "\n"
    "examples:\n"
    "  metronome diagnose results/quickstart/unchunked\n"
    "  metronome diagnose results/quickstart --top 3 --target-itl 30\n"
    "  metronome diagnose vllm.log --json | python3 -m json.tool\n"
    "  metronome diagnose vllm.log --scenario scenarios/engines.yaml --variant vllm \\\n"
    "      --target-itl 30\n"
    "\n"
    "exit codes: 0 done, 2 bad input\n";

constexpr CommandText kText = {
    .name = "diagnose",
    .arguments = "RUN [OPTION...]",
    .summary =
        "Splits every inter-token latency (ITL) of a run into its causes, lists the longest\n"
        "stalls, ranks the prefill that delayed other requests, and finds the smallest\n"
        "change of settings that avoids such stalls.\n",
    .examples = kExamples,
    .file_name = "RUN",
    .file_kind = "result folder or iteration log"};

OptionList option_list(DiagnoseOptions& options) {
  return {
      {"top N", &options.top, "stalls, chunks and requests to list (default: 5)"},
      {"target-itl MS", &options.target_itl,
       "limit of the ITL, milliseconds (default: slo.itl_ms of the run or --scenario)"},
      {"hardware NAME", &options.hardware,
       "GPU that the replay simulates (default: `hardware` of the scenario)"},
      {"scenario FILE", &options.scenario,
       "scenario of a log: its requests are replayed with its settings and others"},
      {"variant NAME", &options.variant, "variant of --scenario"},
      {"no-replay", &options.has_no_replay, "do not search for settings without the stall"},
      {"json", &options.wants_json, "print JSON: a list with one object per run"},
  };
}

template <class Number>
Number parse_number(const std::string& option, const std::string& text, Number min, Number max,
                    const std::string& allowed) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (!is_number || !(number >= min && number <= max)) {
    throw UsageError(option + ": '" + text + "' is not valid; allowed: " + allowed);
  }
  return number;
}

// nullopt if help was requested and printed.
std::optional<DiagnoseOptions> parse(const Arguments& arguments) {
  DiagnoseOptions options;
  const auto line = parse_command(kText, option_list(options), arguments);
  if (!line) return std::nullopt;
  options.run = line->file();
  options.max_entries = parse_number<std::size_t>("--top", options.top, 1, 10000, "1 to 10000");
  if (options.scenario.empty() && !options.variant.empty()) {
    throw UsageError("--variant: has no effect; allowed: with --scenario");
  }
  if (options.target_itl) {
    options.target_itl_ms = parse_number<double>("--target-itl", *options.target_itl, 0.001, 3.6e6,
                                                 "milliseconds, 0.001 to 3600000");
  }
  return options;
}

std::string itl_text(const Distribution& itl) {
  if (itl.count == 0) return "no request got a second token";
  return "ITL p50 " + ms_text(itl.p50_ms) + " ms, p99 " + ms_text(itl.p99_ms) + " ms, longest " +
         ms_text(itl.max_ms) + " ms";
}

// "Of the time in gaps over the p99, 97.5 % is prefill."
std::string verdict(const Diagnosis& diagnosis) {
  const auto row = std::find_if(diagnosis.rows.begin(), diagnosis.rows.end(),
                                [](const GapRow& r) { return r.name == kOverP99; });
  if (row == diagnosis.rows.end() || row->sum.num_gaps == 0) return {};
  const GapParts& parts = row->sum.parts;
  const std::pair<TimeNs, const char*> shares[] = {
      {parts.decode_ns, "decode"},
      {parts.prefill_ns, "prefill"},
      {parts.host_ns, "time of the host"},
      {parts.waiting_ns, "waiting for steps without the request"},
      {parts.preemption_ns, "preemption"}};
  const auto largest = std::max_element(std::begin(shares), std::end(shares));
  const double share =
      100 * static_cast<double>(largest->first) / static_cast<double>(parts.total_ns());
  return "of the time in gaps over the p99, " + fixed_text(share, 1) + " % is " + largest->second;
}

// One run or log: its title, its findings, and remarks on the figures.
struct Finding {
  std::string title;
  std::vector<std::string> facts;
  Diagnosis diagnosis;
  std::vector<std::string> notes;
  Distribution itl;
  std::optional<double> limit_ms;
  std::optional<WhatIf> what_if;
};

// Searches for better settings, or states why it cannot.
void replay(const StoredRun& run, const DiagnoseOptions& options, Finding& finding) {
  if (options.has_no_replay || finding.itl.count == 0) return;
  if (!finding.limit_ms) {
    finding.notes.push_back(
        "There is no limit for gaps: give --target-itl MS to search for settings that keep every "
        "gap within it.");
    return;
  }
  if (finding.itl.max_ms <= *finding.limit_ms) {
    finding.notes.push_back("No gap is longer than " + ms_text(*finding.limit_ms) +
                            " ms: there is nothing to change.");
    return;
  }
  ProgressBar bar(true);
  finding.what_if = find_smallest_change(
      run, *finding.limit_ms, options.hardware,
      [&bar](const std::string& name) { bar.start(name); },
      [&bar](const RunProgress& now) {
        bar.update(now.num_ended, now.num_total);
        return true;
      });
  bar.clear();
}

// Empty if no request was preempted.
std::string preemption_note(const Diagnosis& diagnosis) {
  const std::vector<DiagnosedStall>& stalls = diagnosis.stalls;
  const auto num_preempted =
      std::count_if(stalls.begin(), stalls.end(),
                    [](const DiagnosedStall& stall) { return stall.parts.preemption_ns > 0; });
  if (num_preempted == 0) return {};
  return "Preemptions caused " + grouped_text(std::int64_t{num_preempted}) + " of the " +
         grouped_text(static_cast<std::int64_t>(stalls.size())) +
         " longest stalls: the KV cache was full, and a request lost its KV blocks. Smaller chunks "
         "do not help; more KV memory does (vLLM: --gpu-memory-utilization, SGLang: "
         "--mem-fraction-static), or fewer requests at once (--max-num-seqs, "
         "--max-running-requests).";
}

Finding examine_run(const StoredRun& run, const DiagnoseOptions& options) {
  const RunInfo& info = run.result.info;
  const Summary& summary = run.result.summary;
  Finding finding;
  finding.title = info.label;
  finding.facts = {info.model + " on " + info.hardware + ", policy " + info.policy + ", backend " +
                       info.backend + ", " + grouped_text(summary.num_requests) + " requests, " +
                       grouped_text(summary.num_steps) + " steps",
                   itl_text(summary.itl)};
  finding.itl = summary.itl;
  finding.limit_ms = options.target_itl_ms ? options.target_itl_ms : info.slo.itl_ms;
  finding.diagnosis = diagnose(run.record, summary.itl, finding.limit_ms, options.max_entries);
  if (finding.diagnosis.is_estimated) {
    finding.notes.push_back(
        "The split of a mixed step into decode and prefill is an estimate from the steps without "
        "prefill.");
  }
  if (const std::int64_t lost = summary.failed + summary.unfinished; lost > 0) {
    finding.notes.push_back(grouped_text(lost) +
                            " requests did not complete; the tables include their gaps, the "
                            "percentiles do not.");
  }
  if (std::string note = preemption_note(finding.diagnosis); !note.empty()) {
    finding.notes.push_back(std::move(note));
  }
  replay(run, options, finding);
  return finding;
}

// The number of tokens per iteration that keeps the limit, by the token cost of the longest
// iteration. Empty if no iteration with prefill is too long.
std::string budget_note(const Diagnosis& diagnosis, double limit_ms) {
  if (diagnosis.stalls.empty()) return {};
  const DiagnosedStall& stall = diagnosis.stalls.front();
  if (!stall.worst || to_ms(stall.gap_ns) <= limit_ms || stall.worst->added_ns <= 0) return {};
  const double token_ms = to_ms(stall.worst->added_ns) / stall.worst->num_tokens;
  const double room_ms = limit_ms - to_ms(stall.parts.decode_ns);
  const auto num_tokens = static_cast<std::int64_t>(room_ms / token_ms);
  if (num_tokens < 1) {
    return "The decodes of iteration " + std::to_string(stall.step) + " alone take longer than " +
           ms_text(limit_ms) +
           " ms: no token budget can avoid this, but fewer requests at once "
           "(vLLM: --max-num-seqs) may.";
  }
  return "In iteration " + std::to_string(stall.step) + " a context token cost " +
         grouped_text(1000 * token_ms, 1) + " us, so about " + grouped_text(num_tokens) +
         " of them and its decodes fit in " + ms_text(limit_ms) +
         " ms. In vLLM: --max-num-batched-tokens " +
         std::to_string(num_tokens + stall.num_waiting) +
         ". This is a linear estimate, not a replay.";
}

// Runs the scenario of --scenario; its run represents that of the log.
StoredRun run_scenario(const DiagnoseOptions& options) {
  std::vector<std::string> assignments;
  if (!options.hardware.empty()) assignments.push_back("hardware=" + options.hardware);
  const ScenarioFile file = load_scenario(options.scenario, assignments, std::nullopt);
  std::vector<std::string> names;
  if (!options.variant.empty()) names.push_back(options.variant);
  std::vector<Scenario> variants = chosen_variants(file, names);
  if (variants.size() != 1) {
    std::vector<std::string_view> known;
    for (const Scenario& variant : variants) known.push_back(variant.name);
    throw UsageError(
        "--scenario: " + file.path +
        " has several variants; allowed: one of them with --variant: " + join_names(known));
  }
  const std::unique_ptr<Backend> backend = make_backend(std::string(kBackendNames[0]));
  std::vector<PreparedVariant> prepared = prepare_variants(*backend, std::move(variants));
  ProgressBar bar(true);
  bar.start(options.scenario);
  VariantOutcome outcome =
      run_variant(*backend, prepared.front(), nullptr, [&bar](const RunProgress& now) {
        bar.update(now.num_ended, now.num_total);
        return true;
      });
  bar.clear();
  return {options.scenario, std::move(outcome.result), std::move(outcome.record)};
}

Finding examine_log(const IterationLog& log, const DiagnoseOptions& options) {
  std::optional<StoredRun> run;
  if (!options.scenario.empty()) {
    run = run_scenario(options);
  } else if (!options.hardware.empty()) {
    throw UsageError(
        "--hardware: the replay of a log needs its scenario; allowed: --scenario in addition");
  }
  Finding finding;
  finding.title = log.path;
  finding.limit_ms = options.target_itl_ms;
  if (run && !finding.limit_ms) finding.limit_ms = run->result.info.slo.itl_ms;
  finding.diagnosis = diagnose(log, finding.limit_ms, options.max_entries, finding.itl);
  finding.facts = {"iteration log of vLLM, " +
                       grouped_text(static_cast<std::int64_t>(log.iterations.size())) +
                       " iterations",
                   itl_text(finding.itl)};
  finding.notes = {
      "The log has no requests: each generation request of an iteration counts as waiting for all "
      "of it. The time between iterations is not in the log.",
      "The split of a mixed iteration into decode and prefill is an estimate from the iterations "
      "without context tokens."};
  if (log.num_implausible > 0) {
    finding.notes.push_back(
        grouped_text(log.num_implausible) +
        " iterations took less than 0.2 ms, which is too fast for a GPU. With asynchronous "
        "scheduling vLLM logs how long it waited for a result. Log again with "
        "--no-async-scheduling.");
  }
  if (run) {
    replay(*run, options, finding);
    // The simulated run is compared with the log, which it represents.
    if (finding.what_if) {
      finding.what_if->scenario = options.scenario;
      finding.what_if->recorded_itl = finding.itl;
      finding.what_if->is_same_run = false;
    }
    return finding;
  }
  if (finding.limit_ms) {
    std::string note = budget_note(finding.diagnosis, *finding.limit_ms);
    if (!note.empty()) finding.notes.push_back(std::move(note));
  }
  if (!options.has_no_replay) {
    finding.notes.push_back(
        "Not replayed with other settings: the log does not have the arrivals, prompt lengths and "
        "output lengths of the requests. Describe them in a scenario, with the model, the hardware "
        "and the engine's settings, and give it with --scenario.");
  }
  return finding;
}

std::string finding_text(const Finding& finding) {
  std::string text = printable(finding.title) + "\n";
  std::vector<std::string> facts = finding.facts;
  if (std::string words = verdict(finding.diagnosis); !words.empty()) facts.push_back(words);
  for (const std::string& fact : facts) {
    text += "  " + wrapped(printable(fact), 2, output_columns());
  }
  text += "\n" + diagnosis_text(finding.diagnosis);
  if (!finding.notes.empty()) text += '\n';
  for (const std::string& note : finding.notes) text += wrapped(note, 0, output_columns());
  if (finding.what_if) text += "\n" + what_if_text(*finding.what_if, output_columns());
  return text;
}

void append_finding(const Finding& finding, JsonText& json) {
  json.begin_object();
  json.field("label", finding.title);
  json.key("itl_limit_ms");
  if (finding.limit_ms) {
    json.value(*finding.limit_ms);
  } else {
    json.null();
  }
  json.field("p50_itl_ms", finding.itl.p50_ms);
  json.field("p99_itl_ms", finding.itl.p99_ms);
  json.field("max_itl_ms", finding.itl.max_ms);
  append_diagnosis(finding.diagnosis, json);
  json.key("notes").begin_array();
  for (const std::string& note : finding.notes) json.value(note);
  json.end_array();
  json.key("what_if");
  if (finding.what_if) {
    append_what_if(*finding.what_if, json);
  } else {
    json.null();
  }
  json.end_object();
}

}  // namespace

int diagnose_command(const Arguments& arguments) {
  const std::optional<DiagnoseOptions> options = parse(arguments);
  if (!options) return kExitDone;
  JsonText json(JsonText::Style::Indented);
  json.begin_array();
  bool is_first = true;
  const auto report = [&](const Finding& finding) {
    if (options->wants_json) return append_finding(finding, json);
    std::cout << (is_first ? "" : "\n\n") << finding_text(finding) << std::flush;
    is_first = false;
  };
  if (std::filesystem::is_regular_file(options->run)) {
    report(examine_log(read_iteration_log(options->run), *options));
  } else if (!options->scenario.empty()) {
    throw UsageError("--scenario: has no effect, as " + options->run +
                     " has its own scenario; allowed: with a log");
  } else {
    for (const std::string& folder : result_folders(options->run)) {
      const StoredRun run = read_result(folder);
      require_steps(run);
      report(examine_run(run, *options));
    }
  }
  json.end_array();
  if (options->wants_json) std::cout << json.view() << '\n';
  return kExitDone;
}

}  // namespace metronome
