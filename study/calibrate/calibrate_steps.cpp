// SPDX-License-Identifier: Apache-2.0
#include "study/calibrate/calibrate_steps.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fmt/core.h>
#include <memory>
#include <optional>
#include <string_view>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/base/names.h"
#include "core/config/catalogue.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/metrics/gap_analysis.h"
#include "core/metrics/recorded_steps.h"
#include "core/scenario/engine_setup.h"
#include "core/scenario/simulated_model.h"
#include "core/workload/workload_trace_parse.h"
#include "engines/log/engine_log.h"
#include "engines/vllm/iteration_log.h"
#include "reports/compare/comparable.h"
#include "reports/files/result_reader.h"
#include "sim/cost/cost_model_file.h"
#include "sim/replay/replay_file.h"
#include "sim/roofline/roofline.h"
#include "study/calibrate/calibrate_requests.h"
#include "study/calibrate/request_log_run.h"
#include "study/recorded/logged_run.h"

namespace metronome {
namespace {

// Where step times can be read from.
constexpr std::string_view kSources =
    "a result folder, a vLLM log, a request log, or a CSV of steps";

SourceLocation option(const char* name) { return {std::make_shared<const std::string>(name), 0}; }

std::optional<HardwareSpec> known_hardware(const CalibrationSetup& setup,
                                           const std::string& measured) {
  if (!setup.hardware.empty()) return find_hardware(setup.hardware, option("--hardware"));
  const std::vector<HardwareSpec>& all = all_hardware();
  if (const HardwareSpec* hardware = find_entry(all, measured)) return *hardware;
  return std::nullopt;
}

// Times of a run, by its number of steps in flight. With one step, launch work of the host is
// part of the step time. With two, that work mostly overlaps the previous step, and only the gaps
// after short steps are visible. If there are both kinds of runs, steps come from the second, gaps
// from the first.
struct FolderUse {
  bool has_steps = true;
  bool has_gaps = true;
};

// Refuses steps of one model that are to count as those of another.
void check_model(const CalibrationSetup& setup, const std::string& path,
                 const ModelComparison& models, const char* option) {
  if (!models.differs || setup.allows_differences) return;
  throw ConfigError(printable(path) + ": " + printable(models.text) + " as " + option +
                    " says; allowed: the same model, or --allow-differences");
}

class StepReader {
 public:
  explicit StepReader(const CalibrationSetup& setup) : setup_(setup) {}

  void read_folder(const std::string& path, const FolderUse& use);
  void read_csv(const std::string& path);
  void read_log(const std::string& path);
  void read_requests(const std::string& path);
  CalibrationSteps finish() { return std::move(all_); }

 private:
  void begin_source(const std::string& path, const ModelConfig& model, const std::string& hardware,
                    std::int64_t tensor_parallel_size, const std::string& engine);
  std::vector<StepFeatures> features_of(const StepPlan& plan) const;
  void add_plan(const StepPlan& plan, TimeNs took, const std::string& name, std::size_t position);
  void follow(const Scenario& scenario, const IterationLog& log);
  void add_iterations(const IterationLog& log);
  void add_step(MeasuredStep step, std::string name, std::size_t position, const StepPlan& plan);
  void add_gaps(const RunRecord& record, std::int32_t async_depth);
  void keep(const std::vector<RecordedStep>& steps) {
    all_.recorded.insert(all_.recorded.end(), steps.begin(), steps.end());
  }

  const CalibrationSetup& setup_;
  CalibrationSteps all_;
  std::optional<RooflineCostModel> roofline_;
};

void StepReader::begin_source(const std::string& path, const ModelConfig& model,
                              const std::string& hardware, std::int64_t tensor_parallel_size,
                              const std::string& engine) {
  const auto check = [&](const char* what, const std::string& own, const std::string& others) {
    if (own == others) return;
    throw ConfigError(path + ": " + what + ": is " + own + ", not " + others + " as in " +
                      all_.sources.front() + "; allowed: runs of one kind");
  };
  if (!all_.sources.empty()) {
    check("model", model.name, all_.model.name);
    if (setup_.hardware.empty()) check("hardware", hardware, all_.hardware);
    check("tensor_parallel_size", std::to_string(tensor_parallel_size),
          std::to_string(all_.tensor_parallel_size));
    check("engine", engine, all_.engine);
  } else {
    all_.model = model;
    all_.spec = known_hardware(setup_, hardware);
    all_.hardware = all_.spec ? all_.spec->name : hardware;
    all_.tensor_parallel_size = tensor_parallel_size;
    all_.engine = engine;
    if (all_.spec) {
      CostModelConfig config;
      config.tensor_parallel_size = static_cast<std::int32_t>(tensor_parallel_size);
      roofline_.emplace(model, *all_.spec, config);
    }
  }
  all_.sources.push_back(path);
}

void StepReader::add_step(MeasuredStep step, std::string name, std::size_t position,
                          const StepPlan& plan) {
  if (roofline_) {
    all_.floors_ns.push_back(static_cast<double>(roofline_->floor_ns(roofline_->step_work(plan))));
  }
  all_.steps.push_back(std::move(step));
  all_.names.push_back(std::move(name));
  all_.is_early.push_back(position < kNumEarly);
}

std::vector<StepFeatures> StepReader::features_of(const StepPlan& plan) const {
  std::vector<StepFeatures> passes;
  for (const ForwardPass& pass : plan.passes) {
    passes.push_back(pass_features(all_.model, chunks_of(plan, pass)));
  }
  return passes;
}

void StepReader::add_plan(const StepPlan& plan, TimeNs took, const std::string& name,
                          std::size_t position) {
  add_step({features_of(plan), static_cast<double>(took)}, name, position, plan);
}

// Finds the host's gaps. With one step in flight the host works from the end of a step to the start
// of the next. With two, it works from the end of the step before the previous one. The gap is
// visible if the device waited. A request with tokens in both steps shows that the device waited
// for nothing else.
void StepReader::add_gaps(const RunRecord& record, std::int32_t async_depth) {
  const auto depth = static_cast<std::size_t>(async_depth);
  for (std::size_t i = depth; i < record.steps.size(); ++i) {
    const StepEntry& step = record.steps[i];
    const StepEntry& before = record.steps[i - 1];
    if (step.failed || before.failed || step.num_continued == 0) continue;
    if (step.started_at <= before.finished_at) continue;
    all_.gaps.push_back({static_cast<double>(step.started_at - record.steps.finished_at(i - depth)),
                         static_cast<double>(step.num_decode_tokens + step.num_prefill_chunks)});
  }
}

void StepReader::read_folder(const std::string& path, const FolderUse& use) {
  const StoredRun run = read_result(path);
  require_steps(run);
  const RunInfo& info = run.result.info;
  const Scenario scenario = scenario_of(run);
  const std::string& name = setup_.model.empty() ? scenario.model : setup_.model;
  if (!setup_.model.empty()) {
    const ModelConfig named = find_served_model(name, option("--model"));
    check_model(setup_, path, compare_models(scenario_model(scenario), {named.name, named}),
                "--model");
  }
  const std::string hardware = setup_.hardware.empty() ? info.hardware : setup_.hardware;
  const std::int64_t tp = setup_.tensor_parallel_size > 0 ? setup_.tensor_parallel_size
                                                          : std::int64_t{info.tensor_parallel_size};
  begin_source(path, find_served_model(name, scenario.location_of("model")), hardware, tp,
               "metronome " + info.backend);
  if (use.has_gaps) add_gaps(run.record, scenario.engine.async_depth);
  if (!use.has_steps) {
    all_.remarks.push_back(fmt::format(
        "{}: ran with fewer steps in flight than the others; only its host gaps are used", path));
    return;
  }
  const std::vector<TimeNs> times = device_times(run.record);
  RecordedSteps steps(run.record, resolved_step_shape(scenario));
  StepPlan plan;
  while (steps.next(plan)) {
    const std::size_t at = steps.position();
    const bool is_whole = steps.num_missing_decodes() == 0 && !run.record.steps[at].failed;
    if (!is_whole || times[at] <= 0) {
      ++all_.num_left_out;
      continue;
    }
    add_plan(plan, times[at], fmt::format("{}, step {}", path, at), at);
  }
  const RecordedSetup setup{
      .step_shape = resolved_step_shape(scenario),
      .async_depth = scenario.engine.async_depth,
      .cold_start_ns = std::llround(scenario.cost_model.cold_start_ms * 1e6),
      .is_measured = info.backend != kBackendNames[0],
  };
  keep(replay_steps(run.record, setup));
}

// The steps between two known instants count as one step with many passes.
void StepReader::read_requests(const std::string& path) {
  if (!setup_.model.empty() || setup_.tensor_parallel_size > 0) {
    throw UsageError(
        "--model and --tp: have no effect with a request log; allowed: the keys of its scenario, "
        "which --set KEY=VALUE overrides");
  }
  const RequestLogRun run = follow_request_log(path, setup_.run_number, setup_.scenario,
                                               setup_.assignments, setup_.until_s);
  const std::string& hardware = setup_.hardware.empty() ? run.hardware.name : setup_.hardware;
  begin_source(path, run.model, hardware, run.scenario.cost_model.tensor_parallel_size, "");
  const std::span<const PinnedInterval> telling = telling_intervals(run.pinned);
  RecordedSteps steps(run.pinned.record, resolved_step_shape(run.scenario));
  StepPlan plan;
  for (const PinnedInterval& interval : telling) {
    MeasuredStep together{{},
                          static_cast<double>(interval.took),
                          static_cast<std::int64_t>(interval.end - interval.begin)};
    double floor_ns = 0;
    bool is_whole = interval.took > 0;
    while (steps.next(plan)) {
      if (steps.position() < interval.begin) continue;
      is_whole = is_whole && steps.num_missing_decodes() == 0;
      for (const StepFeatures& pass : features_of(plan)) together.passes.push_back(pass);
      if (roofline_) {
        floor_ns += static_cast<double>(roofline_->floor_ns(roofline_->step_work(plan)));
      }
      if (steps.position() == interval.last()) break;
    }
    if (!is_whole) {
      ++all_.num_left_out;
      continue;
    }
    if (roofline_) all_.floors_ns.push_back(floor_ns);
    all_.steps.push_back(std::move(together));
    all_.names.push_back(fmt::format("{}, steps {} to {}", path, interval.begin, interval.last()));
    all_.is_early.push_back(interval.begin < kNumEarly);
  }
  const std::string remark = contradiction_remark(run);
  if (!remark.empty()) all_.remarks.push_back(remark);
  all_.remarks.push_back(
      "a request log gives the total time of the steps between two known instants: held-out errors "
      "and scatter are those of such intervals, which scatter less than single steps");
}

// ---- CSV ----

enum StepColumn : std::size_t {
  kTokens,
  kPairs,
  kChunks,
  kDecodes,
  kKv,
  kRows,
  kIsGraph,
  kSeconds,
  kNumStepColumns,
};

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> fields;
  while (true) {
    const std::size_t comma = line.find(',');
    std::string_view field = line.substr(0, comma);
    while (!field.empty() && field.front() == ' ') field.remove_prefix(1);
    while (!field.empty() && field.back() == ' ') field.remove_suffix(1);
    fields.push_back(field);
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

double parse_number(const TraceLines& lines, std::string_view text, std::string_view field,
                    double max) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (!is_number || !(value >= 0 && value <= max)) {
    lines.fail(field, fmt::format("{} is not a number from 0 to {}", quote_for_message(text),
                                  std::llround(max)));
  }
  return value;
}

constexpr double kMaxContext = 1 << 24;

// An impossible pass means that a column has another unit or another meaning.
void check_pass(const TraceLines& lines, const StepFeatures& pass, double seconds) {
  const double prefill_tokens = pass.tokens - pass.decodes;
  const auto fail_unless = [&](bool is_good, const char* field, const char* allowed) {
    if (!is_good) lines.fail(field, std::string("is impossible; allowed: ") + allowed);
  };
  fail_unless(pass.tokens >= 1, "tokens", "1 or more");
  fail_unless(prefill_tokens >= pass.prefill_chunks, "tokens",
              "one for each decode and prefill chunk, or more");
  fail_unless((prefill_tokens > 0) == (pass.prefill_chunks > 0), "prefill_chunks",
              "0 where every token is a decode, else 1 or more");
  fail_unless(pass.pairs >= prefill_tokens && pass.pairs <= prefill_tokens * kMaxContext, "pairs",
              "for each token of a prefill chunk 1 to 16777216");
  fail_unless(pass.decode_kv >= pass.decodes && pass.decode_kv <= pass.decodes * kMaxContext, "kv",
              "for each decode 1 to 16777216");
  fail_unless(pass.rows <= pass.decodes + pass.prefill_chunks, "rows",
              "one for each decode and each chunk that ends its prompt");
  fail_unless(!pass.is_graph || pass.prefill_chunks == 0, "graph",
              "0 for a pass with prefill chunks");
  fail_unless(seconds > 0, "seconds", "more than 0");
}

// A plan whose pass has these features as nearly as whole positions allow, without exceeding them:
// chunks of equal length after equal contexts, and decodes with equal contexts.
StepPlan plan_like(const StepFeatures& pass) {
  StepPlan plan;
  const auto num_decodes = std::llround(pass.decodes);
  for (std::int64_t i = 0; i < num_decodes; ++i) {
    const auto context = static_cast<std::int32_t>(pass.decode_kv / pass.decodes);
    plan.chunks.push_back({kNoRequest, std::max(context - 1, 0), 1, ChunkKind::Decode, true});
  }
  const auto num_chunks = std::llround(pass.prefill_chunks);
  auto num_left = std::llround(pass.tokens - pass.decodes);
  for (std::int64_t i = num_chunks; i > 0; --i) {
    const std::int64_t n = num_left / i;
    num_left -= n;
    const double pairs = pass.pairs / pass.prefill_chunks;
    const auto count = static_cast<double>(n);
    const double position = std::max(0.0, (pairs - count * (count + 1) / 2) / count);
    const bool has_row = std::llround(pass.rows) - num_decodes >= i;
    plan.chunks.push_back({kNoRequest, static_cast<std::int32_t>(position),
                           static_cast<std::int32_t>(n), ChunkKind::Prefill, has_row});
  }
  plan.passes.push_back({0, static_cast<std::int32_t>(plan.chunks.size())});
  return plan;
}

// ---- vLLM's log of iterations ----

std::string iteration_name(const IterationLog& log, const LoggedIteration& iteration) {
  return fmt::format("{}:{}", log.path, iteration.line);
}

void StepReader::read_log(const std::string& path) {
  IterationLog log = read_iteration_log(path);
  if (setup_.iterations) keep_iterations(*setup_.iterations, log);
  if (setup_.scenario.empty()) return add_iterations(log);
  ScenarioFile file = load_scenario(setup_.scenario, setup_.assignments, std::nullopt);
  if (file.variants.size() != 1) {
    throw UsageError(fmt::format("--scenario: {} has {} variants; allowed: one", setup_.scenario,
                                 file.variants.size()));
  }
  Scenario& scenario = file.variants.front();
  if (!setup_.hardware.empty()) scenario.hardware = setup_.hardware;
  follow(scenario, log);
}

void StepReader::follow(const Scenario& scenario, const IterationLog& log) {
  check_model(setup_, log.path, compare_models(served_model(log.model), scenario_model(scenario)),
              "--scenario");
  const LoggedRun run =
      run_logged(scenario, log, setup_.iterations ? LogStart::First : LogStart::Found);
  std::string hardware = scenario.hardware.empty() ? "unknown" : scenario.hardware;
  if (scenario.hardware.empty() && !scenario.cost_model.file.empty()) {
    const SourceLocation where = scenario.location_of("cost_model.file");
    hardware = find_cost_model_file(scenario.cost_model.file, where).hardware;
  }
  const std::int64_t tp = setup_.tensor_parallel_size > 0
                              ? setup_.tensor_parallel_size
                              : std::int64_t{scenario.cost_model.tensor_parallel_size};
  begin_source(log.path, find_served_model(scenario.model, scenario.location_of("model")), hardware,
               tp, kIterationLogEngine);
  RecordedSteps steps(run.record, resolved_step_shape(scenario));
  StepPlan plan;
  while (steps.next(plan) && static_cast<std::int64_t>(steps.position()) < run.num_equal) {
    const std::size_t at = steps.position();
    const LoggedIteration& logged = log.iterations[run.first + at];
    if (steps.num_missing_decodes() > 0 || !logged.is_plausible()) {
      ++all_.num_left_out;
      continue;
    }
    add_plan(plan, logged.elapsed_ns, iteration_name(log, logged), at);
  }
  const RecordedSetup setup{.step_shape = resolved_step_shape(scenario)};
  std::vector<RecordedStep> recorded = replay_steps(run.record, setup);
  recorded.resize(std::min(recorded.size(), static_cast<std::size_t>(run.num_equal)));
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    recorded[i].gap_ns = kNoTime;  // the log has no gaps
    if (!log.iterations[run.first + i].is_plausible()) recorded[i].composition = 0;
  }
  keep(recorded);
  if (const std::string left_out = left_out_text(run, log); !left_out.empty()) {
    all_.remarks.push_back(log.path + ": " + left_out);
  }
  if (!run.first_difference) return;
  all_.remarks.push_back(iteration_name(log, run.first_difference->logged) + ": " +
                         difference_text(*run.first_difference, setup_.scenario) +
                         "; later iterations are left out");
}

void StepReader::add_iterations(const IterationLog& log) {
  if (setup_.model.empty()) {
    throw UsageError("calibrate: " + log.path +
                     " does not name the measured model; allowed: --model NAME in addition, or "
                     "--scenario FILE with the engine and the requests");
  }
  if (!all_.sources.empty() && all_.knows_contexts) {
    throw UsageError("calibrate: " + log.path + " has no context lengths, but " +
                     all_.sources.front() +
                     " has; allowed: sources of one kind, or --scenario FILE");
  }
  const ModelConfig model = find_served_model(setup_.model, option("--model"));
  check_model(setup_, log.path, compare_models(served_model(log.model), {model.name, model}),
              "--model");
  begin_source(log.path, model, setup_.hardware.empty() ? "unknown" : setup_.hardware,
               std::max<std::int64_t>(1, setup_.tensor_parallel_size), kIterationLogEngine);
  all_.knows_contexts = false;
  for (std::size_t i = 0; i < log.iterations.size(); ++i) {
    const LoggedIteration& logged = log.iterations[i];
    if (!logged.is_plausible()) {
      ++all_.num_left_out;
      continue;
    }
    StepFeatures pass;
    pass.tokens = logged.num_context_tokens + logged.num_generation_tokens;
    pass.prefill_chunks = logged.num_context_requests;
    pass.decodes = logged.num_generation_requests;
    pass.is_graph = logged.num_context_requests == 0;
    add_step({{pass}, static_cast<double>(logged.elapsed_ns)}, iteration_name(log, logged), i,
             plan_like(pass));
  }
  all_.remarks.push_back(
      "without --scenario the context lengths are unknown: the fit has the mean cost of attention "
      "per token and decode, which is only right for similar requests. It does not carry to other "
      "token budgets");
}

void StepReader::read_csv(const std::string& path) {
  if (setup_.model.empty()) {
    throw UsageError("calibrate: " + path +
                     " does not name the measured model; allowed: --model NAME in addition");
  }
  const std::string text = read_file(path, kSources);
  TraceLines lines(text, std::make_shared<const std::string>(path));
  if (!lines.next()) throw ConfigError(path + ": is empty; allowed: " + kStepColumns);
  const std::vector<std::string_view> names = split(kStepColumns);
  const std::vector<std::string_view> header = split(lines.line());
  std::array<std::size_t, kNumStepColumns> places{};
  for (std::size_t c = 0; c < names.size(); ++c) {
    const auto found = std::find(header.begin(), header.end(), names[c]);
    if (found == header.end()) {
      lines.fail(names[c], std::string("missing column; allowed: ") + kStepColumns);
    }
    places[c] = static_cast<std::size_t>(found - header.begin());
  }
  begin_source(path, find_served_model(setup_.model, option("--model")),
               setup_.hardware.empty() ? "unknown" : setup_.hardware,
               std::max<std::int64_t>(1, setup_.tensor_parallel_size), "");
  for (std::size_t row = 0; lines.next(); ++row) {
    const std::vector<std::string_view> fields = split(lines.line());
    if (fields.size() != header.size()) {
      lines.fail(header.back(),
                 fmt::format("the line has {} fields, not {}", fields.size(), header.size()));
    }
    const auto number = [&](StepColumn column, double max) {
      return parse_number(lines, fields[places[column]], names[column], max);
    };
    const auto count = [&](StepColumn column, std::int64_t max) {
      return static_cast<double>(
          parse_trace_integer(lines, fields[places[column]], names[column], 0, max));
    };
    constexpr std::int64_t kMaxTokens = 1 << 20;
    const StepFeatures pass{.tokens = count(kTokens, kMaxTokens),
                            .pairs = number(kPairs, 1e14),
                            .prefill_chunks = count(kChunks, kMaxTokens),
                            .decodes = count(kDecodes, kMaxTokens),
                            .decode_kv = number(kKv, 1e12),
                            .rows = count(kRows, kMaxTokens),
                            .is_graph = count(kIsGraph, 1) > 0};
    const double seconds = number(kSeconds, 3600);
    check_pass(lines, pass, seconds);
    add_step({{pass}, seconds * 1e9}, fmt::format("{}:{}", path, lines.number()), row,
             plan_like(pass));
  }
}

std::int32_t async_depth_of(const std::string& folder) {
  StoredRun run;
  run.folder = folder;
  run.result.info = read_result_info(folder);
  return scenario_of(run).engine.async_depth;
}

struct Source {
  std::string path;
  bool is_folder = false;
  std::int32_t async_depth = 0;  // of the run in a folder
};

// The sources in the order given; a folder stands for the runs in it.
std::vector<Source> find_sources(const std::vector<std::string>& paths) {
  std::vector<Source> sources;
  for (const std::string& path : paths) {
    check_input(path, kSources);
    if (!is_folder(path) || has_request_times(path)) {  // a client's result may be a folder
      sources.push_back({path, false, 0});
      continue;
    }
    for (const std::string& folder : result_folders(path)) {
      sources.push_back({folder, true, async_depth_of(folder)});
    }
  }
  return sources;
}

// Of the files that no reader takes for its own.
void refuse_other_logs(const std::vector<Source>& sources) {
  for (const Source& source : sources) {
    if (source.is_folder || has_request_times(source.path)) continue;
    refuse_log_without_iterations(source.path,
                                  "; or a request log, a CSV of steps, or a folder with results");
  }
}

[[noreturn]] void fail_few_steps(const CalibrationSteps& all) {
  std::string text = fmt::format("calibrate: got {} steps", all.steps.size());
  if (all.num_left_out > 0) {
    text +=
        fmt::format(" and left out {} that failed or took an implausible time", all.num_left_out);
  }
  for (const std::string& remark : all.remarks) text += "; " + printable(remark);
  throw UsageError(fmt::format("{}; allowed: at least {}", text, kMinSteps));
}

}  // namespace

CalibrationSteps read_calibration_steps(const std::vector<std::string>& paths,
                                        const CalibrationSetup& setup) try {
  StepReader reader(setup);
  const std::vector<Source> sources = find_sources(paths);
  const auto is_log = [](const Source& source) {
    return !source.is_folder && (is_iteration_log(source.path) || has_request_times(source.path));
  };
  if (!setup.scenario.empty() && std::none_of(sources.begin(), sources.end(), is_log)) {
    refuse_other_logs(sources);
    throw UsageError("--scenario: has no effect; allowed: with --from of a log");
  }
  if (setup.iterations && std::none_of(sources.begin(), sources.end(), [](const Source& source) {
        return !source.is_folder && is_iteration_log(source.path);
      })) {
    refuse_other_logs(sources);
    throw UsageError("--iterations: has no effect; allowed: with --from of a log of iterations");
  }
  std::int32_t fewest = INT32_MAX;
  std::int32_t most = 0;
  for (const Source& source : sources) {
    if (!source.is_folder) continue;
    fewest = std::min(fewest, source.async_depth);
    most = std::max(most, source.async_depth);
  }
  for (const Source& source : sources) {
    if (source.is_folder) {
      reader.read_folder(source.path, {source.async_depth == most, source.async_depth == fewest});
    } else if (is_iteration_log(source.path)) {
      reader.read_log(source.path);
    } else if (has_request_times(source.path)) {
      reader.read_requests(source.path);
    } else {
      try {
        reader.read_csv(source.path);
      } catch (const ConfigError&) {
        refuse_other_logs({source});
        throw;
      }
    }
  }
  CalibrationSteps all = reader.finish();
  if (all.steps.size() < kMinSteps) fail_few_steps(all);
  return all;
} catch (const UnplacedConfigError& error) {
  throw ConfigError("--hardware: " + error.message());
}

}  // namespace metronome
