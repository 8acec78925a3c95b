// SPDX-License-Identifier: Apache-2.0
#include "study/rebuilt/log_scenario.h"

#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <memory>
#include <numeric>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "core/base/real.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/simulated_model.h"
#include "engines/arguments/engine_settings.h"
#include "engines/log/log_dialect.h"
#include "reports/files/named_model.h"
#include "sim/fitted/fitted_file.h"
#include "study/compose/yaml_draft.h"
#include "study/rebuilt/batch_iterations.h"
#include "study/rebuilt/drawn_requests.h"
#include "study/rebuilt/rebuilt_steps.h"
#include "system/file_writer.h"

namespace metronome {
namespace {

namespace fs = std::filesystem;

// Attention over all positions in each layer, and no experts: what is taken of an unknown model.
// Its sizes do not matter, as step times and the size of the KV cache are the log's.
constexpr const char* kPlainModel = "llama-3.1-8b";
constexpr const char* kDefaultBlock = "16";  // vLLM's on a GPU; a log does not have it

struct ChosenModel {
  std::string name;
  ModelConfig config;
};

ChosenModel choose_model(const EngineLog& log, const LogScenarioOptions& options,
                         std::vector<std::string>& notes) {
  if (!options.model.empty()) {
    const SourceLocation where{std::make_shared<const std::string>("--model"), 0};
    const std::string path =
        fs::exists(options.model) ? fs::absolute(options.model).string() : options.model;
    return {path, find_served_model(path, where)};
  }
  const auto found = log.settings.find(std::string(log.dialect->server->model));
  const std::string logged = found == log.settings.end() ? std::string() : found->second;
  if (const NamedModel known = served_model(logged); known.config) {
    return {known.config->name, *known.config};
  }
  if (!options.gpu.empty()) {
    throw UsageError(
        logged.empty()
            ? "--model: is missing, as the log does not name its model; allowed: a name of "
              "`metronome list models`, or the path of a config.json"
            : fmt::format("--model: is missing, as '{}' of the log is no known model; allowed: a "
                          "name of `metronome list models`, or the path of a config.json",
                          printable(logged)));
  }
  notes.push_back(fmt::format(
      "{} Step times and KV cache are the log's; each layer is taken to attend to all positions. "
      "--model NAME, or the path of its config.json, says more.",
      logged.empty()
          ? "The log does not name its model."
          : fmt::format("The model '{}' of the log is not known here.", printable(logged))));
  return {kPlainModel, find_served_model(kPlainModel, {})};
}

// ---- requests ----

struct TraceRow {
  TimeNs arrival = 0;
  std::int64_t prompt = 0;
  std::int64_t output = 0;
  TimeNs ttft_ns = kNoTime;
};

std::string csv_of(std::vector<TraceRow> rows) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const TraceRow& a, const TraceRow& b) { return a.arrival < b.arrival; });
  std::string text = "arrival_s,prompt_tokens,output_tokens\n";
  const TimeNs first = rows.empty() ? 0 : rows.front().arrival;
  for (const TraceRow& row : rows) {
    const TimeNs us = (row.arrival - first) / 1000;
    text += fmt::format("{}.{:06},{},{}\n", us / 1'000'000, us % 1'000'000, row.prompt, row.output);
  }
  return text;
}

std::vector<TraceRow> rows_of(const RebuiltLog& rebuilt) {
  std::vector<TraceRow> rows;
  for (const RebuiltRequest& request : rebuilt.requests) {
    rows.push_back({request.arrival, std::max<std::int64_t>(request.num_prompt_tokens, 1),
                    std::max<std::int64_t>(request.num_output_tokens, 1)});
  }
  return rows;
}

// Completed requests, in the order of their starts.
std::vector<TraceRow> rows_of(const MeasuredRun& run) {
  std::vector<TraceRow> rows;
  for (const MeasuredRequest& request : run.requests) {
    const bool has_lengths = request.num_prompt_tokens > 0 && request.num_output_tokens > 0;
    if (!request.error.empty() || !has_lengths || request.start == kNoTime) continue;
    rows.push_back(
        {request.start, request.num_prompt_tokens, request.num_output_tokens, request.ttft_ns});
  }
  if (rows.empty()) {
    throw ConfigError(printable(run.path) +
                      ": has no requests with their starts and lengths; allowed: a detailed result "
                      "of a benchmark's client");
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const TraceRow& a, const TraceRow& b) { return a.arrival < b.arrival; });
  return rows;
}

// Where in the log the client's requests begin: most of its exact prompts are theirs. nullopt: they
// are not in the log.
std::optional<std::size_t> place_of(const std::vector<TraceRow>& rows, const RebuiltLog& rebuilt) {
  constexpr double kLeastShare = 0.8;
  std::optional<std::size_t> best;
  std::size_t most = 0;
  if (rebuilt.requests.size() < rows.size()) return std::nullopt;
  for (std::size_t at = 0; at + rows.size() <= rebuilt.requests.size(); ++at) {
    std::size_t num_exact = 0;
    std::size_t num_equal = 0;
    for (std::size_t k = 0; k < rows.size(); ++k) {
      const RebuiltRequest& request = rebuilt.requests[at + k];
      if (!request.is_prompt_exact) continue;
      ++num_exact;
      num_equal += request.num_prompt_tokens == rows[k].prompt ? 1 : 0;
    }
    if (num_equal <= most || real(num_equal) < kLeastShare * real(num_exact)) continue;
    most = num_equal;
    best = at;
  }
  return best;
}

std::string summary_of(const RebuiltLog& rebuilt) {
  const auto count = [&rebuilt](const auto& is) {
    return std::count_if(rebuilt.requests.begin(), rebuilt.requests.end(), is);
  };
  const std::size_t num_exact = rebuilt.num_exact();
  const std::string all =
      count_text(static_cast<std::int64_t>(rebuilt.requests.size()), "request") +
      " rebuilt from the log, ";
  if (num_exact == rebuilt.requests.size()) return all + "all exactly";
  const auto num_prompts = count([](const RebuiltRequest& r) { return !r.is_prompt_exact; });
  const auto num_outputs = count([](const RebuiltRequest& r) { return !r.is_output_exact; });
  std::string text = all + fmt::format("{} exactly", grouped_text(std::int64_t(num_exact)));
  if (num_prompts > 0) {
    text += fmt::format("; {} drawn, where steps have several prompts, so that their sums are kept",
                        count_text(num_prompts, "prompt"));
  }
  if (num_outputs > 0) {
    text += fmt::format("; {} drawn, where several requests might have ended",
                        count_text(num_outputs, "output"));
  }
  return text;
}

// ---- the KV cache ----

// Tokens of the cache, by the requests in it and the share that they use; nullopt: it was hardly
// used.
std::optional<std::int64_t> pool_by_use(const RebuiltLog& rebuilt) {
  constexpr double kLeastShare = 0.02;
  std::vector<std::int64_t> change(rebuilt.iterations.size() + 1);
  for (std::size_t i = 0; i < rebuilt.chunks.size(); ++i) {
    for (const RebuiltChunk& chunk : rebuilt.chunks[i]) change[i] += chunk.num_tokens;
    const LogObservation& seen = rebuilt.iterations[i];
    change[i] += seen.num_decode_tokens > 0 ? seen.num_running : 0;
  }
  for (const RebuiltRequest& request : rebuilt.requests) {
    if (request.last != kNoIteration && request.first != kNoIteration) {
      change[request.last + 1] -= request.num_prompt_tokens + request.num_output_tokens - 1;
    }
  }
  std::vector<double> pools;
  std::int64_t used = 0;
  for (std::size_t i = 0; i < rebuilt.iterations.size(); ++i) {
    used += change[i];
    const double share = rebuilt.iterations[i].cache_usage.value_or(0);
    if (share >= kLeastShare && used > 0) pools.push_back(real(used) / share);
  }
  if (pools.empty()) return std::nullopt;
  std::nth_element(pools.begin(), pools.begin() + static_cast<std::ptrdiff_t>(pools.size() / 2),
                   pools.end());
  return static_cast<std::int64_t>(pools[pools.size() / 2]);
}

void set_pool(const EngineLog& log, const EngineSettings& settings, const RebuiltLog& rebuilt,
              YamlDraft& draft, std::vector<std::string>& notes) {
  const std::string blocks = "kv_cache.num_blocks";
  const std::string size = "kv_cache.block_size";
  if (draft.has(blocks)) {  // with the tokens that they hold, their size is known
    const auto given = number_in<std::int64_t>(draft.value(blocks));
    const auto tokens = count_of(log.settings, std::string(log.dialect->server->pool));
    if (given && tokens && !draft.has(size) && *given > 0 && *tokens % *given == 0) {
      draft.set(size, std::to_string(*tokens / *given), "tokens of the cache by its blocks");
    }
    return;
  }
  if (!draft.has(size)) draft.set(size, kDefaultBlock, "the log does not have it");
  std::int64_t block = number_in<std::int64_t>(draft.value(size)).value_or(16);
  if (block < 1) {
    draft.set(size, kDefaultBlock, "the log's is no size");
    block = number_in<std::int64_t>(draft.value(size)).value_or(16);
  }
  if (settings.pool_tokens) {
    draft.set(blocks, std::to_string(*settings.pool_tokens / block),
              fmt::format("{} in the log", count_text(*settings.pool_tokens, "token")));
    return;
  }
  if (draft.has("hardware")) return;
  std::int64_t all = 0;
  for (const RebuiltRequest& request : rebuilt.requests) {
    all += request.num_prompt_tokens + request.num_output_tokens + block;
  }
  const std::optional<std::int64_t> by_use = pool_by_use(rebuilt);
  draft.set(blocks, std::to_string(std::max(by_use.value_or(all) / block, std::int64_t{2})),
            by_use ? "an estimate" : "enough for all requests");
  notes.push_back(
      by_use ? fmt::format("The log does not say how large the KV cache is. Its use says about {}.",
                           count_text(*by_use, "token"))
             : "The log does not say how large the KV cache is: replays have room for all "
               "requests.");
}

// ---- the scenario ----

std::int64_t longest_of(const std::vector<TraceRow>& rows) {
  std::int64_t longest = 0;
  for (const TraceRow& row : rows) longest = std::max(longest, row.prompt + row.output);
  return longest;
}

std::string yaml_of(const EngineLog& log, const LogScenarioOptions& options,
                    const std::string& model, const std::vector<TraceRow>& rows,
                    LogScenario& made) {
  YamlDraft draft;
  const ServerArguments& server = *log.dialect->server;
  draft.set("seed", "1");
  draft.set_text("model", model);
  if (!options.gpu.empty()) draft.set_text("hardware", options.gpu);
  draft.set("scheduler.policy", std::string(server.policy));
  EngineSettings settings = scenario_settings(server, merged_arguments(log, {}));
  (void)leave_out_window_settings(settings.assignments);  // the caller says so
  for (const std::string& assignment : settings.assignments) {
    const std::size_t equals = assignment.find('=');
    const std::string value = assignment.substr(equals + 1);
    const bool is_path = value.find('/') != std::string::npos;
    is_path ? draft.set_text(assignment.substr(0, equals), value)
            : draft.set(assignment.substr(0, equals), value);
  }
  if (!options.quantization.empty()) draft.set_text("quantization", options.quantization);
  if (options.tensor_parallel_size) {
    draft.set("cost_model.tensor_parallel_size", std::to_string(*options.tensor_parallel_size));
  }
  if (!draft.has("engine.max_model_len")) {
    draft.set("engine.max_model_len", std::to_string(longest_of(rows)), "the longest request");
  }
  set_pool(log, settings, made.rebuilt, draft, made.notes);
  if (!made.steps.empty()) {
    draft.set_text("cost_model.file", kLogStepsFile, "step times of the log");
  }
  draft.set_text("workload.trace.file", kLogRequestsFile);
  draft.set_text("workload.trace.format", "vidur");
  return draft.text(
      {fmt::format("The requests, settings and step times of a log of {}.", server.title)});
}

// The mean error of held-out steps with prompts, of the kind of which there are most; else of all.
double error_beside_prompts(const FittedModel& fitted) {
  const RegimeError* most = nullptr;
  double of_all = 0;
  for (const RegimeError& one : fitted.errors) {
    if (one.regime == "all") of_all = one.mean_abs_error;
    const bool has_prompts = one.regime.starts_with("prefill") || one.regime.starts_with("mixed");
    if (has_prompts && (most == nullptr || one.num_steps > most->num_steps)) most = &one;
  }
  return most == nullptr ? of_all : most->mean_abs_error;
}

void fit_log(const EngineLog& log, const LogScenarioOptions& options, const ModelConfig& model,
             LogScenario& made) {
  if (options.simulates_gpu) return;
  CalibrationSteps steps =
      rebuilt_steps(made.rebuilt, log.path, model, options.gpu.empty() ? "unknown" : options.gpu,
                    std::string(log.dialect->server->policy));
  if (const auto count = count_of(merged_arguments(log, {}), "tensor_parallel_size")) {
    steps.tensor_parallel_size = *count;
  }
  if (steps.steps.size() < kMinSteps) {
    if (options.gpu.empty()) {
      made.obstacle = fmt::format(
          "the log has {} whose time and content are known, and a fit of step times needs {}. "
          "--gpu NAME, with --model NAME where the log does not have it, gives estimates.",
          count_text(static_cast<std::int64_t>(steps.steps.size()), "step"), kMinSteps);
      return;
    }
    made.notes.push_back(fmt::format(
        "The log has {} whose time and content are known, and a fit of step times needs {}: step "
        "times are estimates for {}.",
        count_text(static_cast<std::int64_t>(steps.steps.size()), "step"), kMinSteps, options.gpu));
    return;
  }
  made.fit = calibrate_steps(std::move(steps), FitKind::Fitted);
  made.steps = made.fit->file().to_json();
}

// The rows of the scenario's requests, by the iterations of the log.
std::vector<TraceRow> rebuild_rows(const EngineLog& log, const LogScenarioOptions& options,
                                   const ModelConfig& model, LogScenario& made) {
  RebuildSetup setup = rebuild_setup(log);
  made.rebuilt = rebuild_requests(log, setup);
  std::vector<TraceRow> rows;
  if (options.client != nullptr) {
    rows = rows_of(*options.client);
    if (const auto place = place_of(rows, made.rebuilt)) {
      setup.prompts.resize(*place);
      for (const TraceRow& row : rows) setup.prompts.push_back(row.prompt);
      made.rebuilt = rebuild_requests(log, setup);
    } else {
      made.notes.push_back(printable(options.client->path) +
                           " has other requests than the log: they are replayed with the log's "
                           "settings and step times.");
    }
    made.num_from_client = rows.size();
    for (const TraceRow& row : rows) made.client_ttft_ns.push_back(row.ttft_ns);
    made.summary = count_text(static_cast<std::int64_t>(rows.size()), "request") + " of " +
                   printable(options.client->path);
  } else {
    rows = rows_of(made.rebuilt);
    made.summary = summary_of(made.rebuilt);
  }
  made.notes.insert(made.notes.end(), made.rebuilt.remarks.begin(), made.rebuilt.remarks.end());
  fit_log(log, options, model, made);
  return rows;
}

// ---- a log of batches ----

// The rows of the scenario's requests, by its batches and the decode steps between them.
std::vector<TraceRow> batch_rows(const EngineLog& log, const LogScenarioOptions& options,
                                 const ModelConfig& model, LogScenario& made) {
  if (log.has_speculation) {
    made.obstacle =
        "the server drafts tokens, and the lines of its batches do not say how many each step "
        "gave. Describe the requests in a scenario, and give it with --scenario.";
    return {};
  }
  BatchIterations batches = batch_iterations(log, options.seed);
  const EngineArguments arguments = merged_arguments(log, {});
  RebuildSetup setup;
  setup.ends = std::move(batches.ends);
  setup.seed = options.seed;
  // Chunks end at a page.
  const std::int64_t page = count_in_force(arguments, "page_size").value_or(1);
  setup.budget = count_in_force(arguments, std::string(log.dialect->budget));
  if (setup.budget) *setup.budget -= std::max<std::int64_t>(page, 1) - 1;
  setup.max_running = count_in_force(arguments, "max_running_requests");
  made.rebuilt = rebuild_requests(batches.log, setup);
  for (std::size_t i = 0; i < batches.is_timed.size(); ++i) {
    if (!batches.is_timed[i]) made.rebuilt.is_settled[i] = false;
  }
  for (RebuiltRequest& request : made.rebuilt.requests) request.is_output_exact = false;
  made.is_drawn = true;
  made.notes.insert(made.notes.end(), made.rebuilt.remarks.begin(), made.rebuilt.remarks.end());
  made.notes.push_back(
      "The log does not have each decode step: an output is known to the steps between two of its "
      "lines, and where several requests run, it does not say which one ended.");
  if (batches.first_line > 0) {
    made.notes.push_back(fmt::format(
        "The log has more requests than a search replays: these are of its busiest stretch, lines "
        "{} to {}.",
        batches.first_line, batches.last_line));
  }
  if (log.has(Observed::Retraction)) {
    made.notes.emplace_back(
        "Requests that lost their KV cache count as ended, and as new ones when they go on.");
  }
  if (batches.num_cached_tokens > 0) {
    made.notes.push_back("Prompts are what the engine computed. " +
                         count_text(batches.num_cached_tokens, "token") +
                         " from the prefix cache are missing in them.");
  }
  if (batches.num_ranks > 1) {
    made.notes.push_back(fmt::format(
        "The log has {} data-parallel ranks: requests are those of rank {}, and replays have this "
        "rank alone.",
        batches.num_ranks, batches.rank));
  }
  std::vector<TraceRow> rows;
  if (options.client != nullptr) {
    rows = rows_of(*options.client);
    made.is_drawn = false;
    made.num_from_client = rows.size();
    for (const TraceRow& row : rows) made.client_ttft_ns.push_back(row.ttft_ns);
    made.summary = count_text(rows.size(), "request") + " of " + printable(options.client->path);
  } else {
    rows = rows_of(made.rebuilt);
    made.summary = summary_of(made.rebuilt);
  }
  fit_log(log, options, model, made);
  return rows;
}

// ---- a log with reports alone ----

void fit_reports(const EngineLog& log, const LogScenarioOptions& options, const ModelConfig& model,
                 LogScenario& made) {
  if (options.simulates_gpu) return;
  if (!log.has_speculation) made.window_fit = fit_windows(made.windows);
  if (!made.window_fit && options.gpu.empty()) {
    made.obstacle = fmt::format(
        "step times do not follow from these reports: {}. --gpu NAME, with --model NAME where the "
        "log does not have it, gives estimates. Or describe the requests in a scenario, and give "
        "it with --scenario.",
        log.has_speculation ? "the server drafts tokens, so that a step gives several of a request"
                            : "that needs four of a busy server, with unlike loads");
    return;
  }
  if (!made.window_fit) {
    made.notes.push_back("Step times do not follow from these reports: they are estimates for " +
                         options.gpu + ".");
    return;
  }
  CostModelFile file;
  file.kind = "fitted";
  file.hardware = options.gpu.empty() ? "unknown" : options.gpu;
  file.model = model.name;
  file.tensor_parallel_size =
      count_of(merged_arguments(log, {}), "tensor_parallel_size").value_or(1);
  file.engine = std::string(log.dialect->server->policy);
  file.source = "reports of " + log.path;
  file.body = std::make_shared<const Json>(fitted_body(made.window_fit->model(), model));
  made.steps = file.to_json();
  made.notes.push_back(fmt::format(
      "By {} of a busy server a step takes {} ms, and {} ms for each token that it computes, known "
      "to {} %.",
      count_text(made.window_fit->num_windows, "report"),
      ms_text(made.window_fit->step_ns / real(kNsPerMs)),
      fixed_text(made.window_fit->token_ns / real(kNsPerMs), 3),
      fixed_text(100 * made.window_fit->error, 0)));
}

// The rows of the scenario's requests, drawn to match the reports, or those of the client.
std::vector<TraceRow> draw_rows(const EngineLog& log, const LogScenarioOptions& options,
                                const ModelConfig& model, LogScenario& made) {
  const ReportWindows reports = report_windows(log);
  const EngineArguments arguments = merged_arguments(log, {});
  DrawSetup setup;
  setup.pool_tokens = count_of(log.settings, std::string(log.dialect->server->pool));
  setup.block_tokens = count_in_force(arguments, "block_size").value_or(setup.block_tokens);
  setup.max_model_len = count_in_force(arguments, "max_model_len").value_or(0);
  setup.seed = options.seed;
  if (!reports.has_arrivals) setup.advice = log.dialect->receiving;
  std::vector<TraceRow> rows;
  made.windows = reports.windows;
  if (options.client != nullptr) {
    rows = rows_of(*options.client);
    made.num_from_client = rows.size();
    for (const TraceRow& row : rows) {
      made.client_ttft_ns.push_back(row.ttft_ns);
    }
    made.summary = count_text(rows.size(), "request") + " of " + printable(options.client->path);
  } else {
    DrawnRequests drawn = draw_requests(reports, setup);
    made.is_drawn = true;
    made.obstacle = drawn.obstacle;
    if (!made.obstacle.empty()) return rows;
    made.windows.resize(drawn.last_window + 1);
    made.windows.erase(made.windows.begin(),
                       made.windows.begin() + static_cast<std::ptrdiff_t>(drawn.first_window));
    made.rebuilt.requests = std::move(drawn.requests);
    made.summary = std::move(drawn.summary);
    made.notes.insert(made.notes.end(), drawn.remarks.begin(), drawn.remarks.end());
    rows = rows_of(made.rebuilt);
    made.start = std::min_element(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
                   return a.arrival < b.arrival;
                 })->arrival;
  }
  fit_reports(log, options, model, made);
  return rows;
}

bool has_reports(const EngineLog& log) {
  return log.dialect->form == LogForm::Iterations && log.has(Observed::Report);
}

}  // namespace

bool has_requests(const EngineLog& log) {
  return log.dialect->form == LogForm::Iterations && log.has(Observed::Iteration);
}

bool may_have_requests(const EngineLog& log) {
  return has_requests(log) || has_reports(log) || has_timed_batches(log);
}

double step_error(const LogScenario& made) {
  if (made.window_fit) return made.window_fit->error;
  const double fitted = made.fit ? error_beside_prompts(made.fit->fit.model) : 0;
  // The times of most batches are estimates, which agree with the fit. Found on logs of simulated
  // runs (tests/study/rebuilt/test_batch_iterations.cpp).
  constexpr double kOfBatches = 0.15;
  return made.fit && made.is_drawn ? std::max(fitted, kOfBatches) : fitted;
}

LogScenario make_log_scenario(const EngineLog& log, const LogScenarioOptions& options) {
  LogScenario made;
  const ChosenModel model = choose_model(log, options, made.notes);
  std::vector<TraceRow> rows = has_requests(log)  ? rebuild_rows(log, options, model.config, made)
                               : has_reports(log) ? draw_rows(log, options, model.config, made)
                                                  : batch_rows(log, options, model.config, made);
  made.num_requests = rows.size();
  if (!made.obstacle.empty()) return made;
  made.yaml = yaml_of(log, options, model.name, rows, made);
  made.requests = csv_of(std::move(rows));
  return made;
}

void set_front_end(double ms, LogScenario& made) {
  made.yaml +=
      fmt::format("client:\n  frontend:\n    fixed_ms: {}  # by the client's first tokens\n",
                  fixed_text(ms, 1));
}

std::string write_log_scenario(const LogScenario& made, const std::string& folder) {
  const fs::path place(folder);
  replace_file((place / kLogRequestsFile).string(), made.requests);
  if (!made.steps.empty()) replace_file((place / kLogStepsFile).string(), made.steps);
  std::string path = (place / kLogScenarioFile).string();
  replace_file(path, made.yaml);
  return path;
}

}  // namespace metronome
