// SPDX-License-Identifier: Apache-2.0
// `metronome bench-serve`: sends a scenario's load to a server and measures the answers.
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fmt/core.h>
#include <iostream>
#include <map>
#include <optional>

#include "core/base/clip.h"
#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "core/config/config_reader.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/scenario.h"
#include "reports/files/result_folder.h"
#include "reports/files/result_names.h"
#include "reports/html/report_html.h"
#include "reports/terminal/table.h"
#include "reports/terminal/text.h"
#include "serve/client/bench_serve.h"
#include "serve/client/knee_search.h"
#include "serve/client/server_probe.h"
#include "study/run/variant_run.h"
#include "study/run/wall_clock.h"
#include "system/file_writer.h"
#include "system/progress.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"
#include "tools/commands/knee_output.h"
#include "tools/commands/local_model.h"
#include "tools/commands/request_headers.h"
#include "tools/commands/run_choice.h"

namespace metronome {
namespace {

struct BenchServeOptions {
  ServerUrl url;
  std::optional<std::string> url_text;  // of --url
  std::string scenario;
  std::vector<std::string> assignments;
  std::string variant;  // empty: the only one
  std::string out;      // empty: default_folder()
  std::optional<std::string> seed_text;
  std::optional<std::uint64_t> seed;
  std::string endpoint_name = "completions";
  LoadEndpoint endpoint = LoadEndpoint::Completions;
  std::string model;  // the server's name for it; empty: the first in its list
  std::vector<std::string> headers;
  std::int64_t max_concurrency = 0;
  double timeout_s = 3600;
  TimeNs timeout_ns = 0;
  bool is_quiet = false;
  bool wants_json = false;
  bool wants_detail = false;
  bool finds_knee = false;
  KneeOptions knee;
  std::optional<double> first_rate;  // absent: the workload's
};

constexpr CommandText kBenchServeText = {
    .name = "bench-serve",
    .arguments =
        "URL --scenario FILE [OPTION...]\n"
        "       metronome bench-serve SCENARIO --url URL [OPTION...]",
    .summary =
        "Sends the requests of a scenario's workload to a server with OpenAI's API (vLLM,\n"
        "SGLang, ...), each at its arrival time, and measures TTFT, TPOT, ITL and E2EL as vLLM's\n"
        "benchmark defines them. `metronome report` and `metronome validate` compare the result\n"
        "with a simulated run of the same scenario. Warns if the client, not the server, was too\n"
        "slow.\n",
    .examples =
        "examples:\n"
        "  metronome bench-serve http://localhost:8000 --scenario scenarios/quickstart.yaml \\\n"
        "      --variant chunked-512 --out results/measured\n"
        "  metronome run scenarios/quickstart.yaml --variant chunked-512 --out results/simulated\n"
        "  metronome report results/simulated results/measured --out both.html\n"
        "  metronome bench-serve http://localhost:8000 --scenario scenarios/quickstart.yaml \\\n"
        "      --variant chunked-512 --find-knee\n"
        "\n"
        "--find-knee sends the workload at several rates. It doubles the rate until the server\n"
        "does not keep up, and then halves the ratio between the two until they are within 10 %.\n"
        "A server does not keep up when fewer requests end than arrive, when too few complete, or\n"
        "when too few are within the scenario's SLO. knee.json has the loads, and each has a "
        "folder\n"
        "of its own.\n"
        "\n"
        "If OPENAI_API_KEY is set, the client sends it as vLLM's benchmark does and does not "
        "store\n"
        "it.\n"
        "exit codes: 0 done, 1 the run failed, no request completed or no rate is kept up with, "
        "2\n"
        "bad input, 130\n"
        "interrupted; results are complete or absent, and a run without a completed request has\n"
        "results, too\n",
    .file_name = "URL",
    .file_kind = "server's URL",
    .files = FileCount::AtMostOne};

LoadEndpoint endpoint_of(const std::string& name) {
  if (name == "completions") return LoadEndpoint::Completions;
  if (name == "chat") return LoadEndpoint::Chat;
  constexpr std::string_view kNames[] = {"completions", "chat"};
  throw UsageError("--endpoint: '" + name + "' is not an endpoint" + did_you_mean(name, kNames) +
                   "; allowed: completions, chat");
}

OptionList option_list(BenchServeOptions& options) {
  return {
      {"url URL", &options.url_text,
       "the server's URL, instead of the argument; http:// and the path of an endpoint may be left "
       "out or given"},
      {"scenario FILE", &options.scenario,
       "the scenario of the workload and the SLO; its seed draws the same requests as in a "
       "simulation"},
      {"set KEY=VALUE", &options.assignments,
       "override a key (see `metronome list keys`); repeatable"},
      {"variant NAME", &options.variant,
       "the variant with the settings of the server; required if the scenario has several"},
      {"out DIR", &options.out,
       "folder of the results; replaces only earlier results (default: results/SCENARIO.http, with "
       ".NAME for a --variant)"},
      {"seed N", &options.seed_text, "override the scenario's seed"},
      {"endpoint NAME (=completions)", &options.endpoint_name,
       "completions (prompts as token ids) or chat (prompts as text of as many words)"},
      {"model NAME", &options.model,
       "the model to request (default: the first that /v1/models lists)"},
      {"header NAME:VALUE", &options.headers, "send this header with every request; repeatable"},
      {"max-concurrency N", &options.max_concurrency,
       "most requests in flight; others wait in the client, a delay of sending that TTFT does not "
       "include, as in vLLM's benchmark",
       EmptyText::Refused, WholeRange{1, 1'000'000}},
      {"timeout S (=3600)", &options.timeout_s, "time limit of a request, seconds",
       EmptyText::Refused, RealRange{0, 7 * 24 * 3600, "seconds", true}},
      {"save-detailed", &options.wants_detail,
       "also write vllm.json, as `vllm bench serve --save-result --save-detailed` does"},
      {"find-knee", &options.finds_knee, "find the highest rate that the server keeps up with"},
      {"first-rate RATE", &options.first_rate,
       "with --find-knee: begin at so many requests per second (default: the workload's)",
       EmptyText::Refused, RealRange{1e-3, 1e5, "requests per second"}},
      {"attainment SHARE", &options.knee.attainment,
       "with --find-knee: required share of requests that complete, and that are within every "
       "limit "
       "of the SLO (default: 0.99)",
       EmptyText::Refused, RealRange{0, 1, "", true, true}},
      {"point-seconds S (=30)", &options.knee.point_s,
       "with --find-knee: how long a load sends requests; longer where answers take long, less "
       "where the workload has too few requests",
       EmptyText::Refused, RealRange{0.1, 3600, "seconds"}},
      {"time-limit S (=600)", &options.knee.time_limit_s,
       "with --find-knee: most seconds of all loads together", EmptyText::Refused,
       RealRange{0, 1e7, "seconds", true}},
      {"json", &options.wants_json, "print only the summary, as JSON, on standard output"},
      {"quiet,q", &options.is_quiet, "print only errors and warnings"},
  };
}

// The URL. Beside --url, the argument may be the scenario.
std::string url_and_scenario(const CommandLine& line, BenchServeOptions& options) {
  if (line.files.empty() && !options.url_text) {
    throw UsageError("bench-serve: no URL; allowed: one, as the argument or as --url URL");
  }
  if (!options.url_text) return line.file();
  if (line.files.empty()) return *options.url_text;
  if (!is_scenario_name(line.file())) {
    throw UsageError("bench-serve: " + printable(clipped(line.file())) +
                     " and --url are two URLs; allowed: one, as the argument or as --url URL");
  }
  if (!options.scenario.empty()) {
    throw UsageError("bench-serve: " + printable(clipped(line.file())) +
                     " and --scenario are two scenarios; allowed: one");
  }
  options.scenario = line.file();
  return *options.url_text;
}

// nullopt if help was requested and printed.
std::optional<BenchServeOptions> parse_bench_serve(const Arguments& arguments) {
  BenchServeOptions options;
  const auto line = parse_command(kBenchServeText, option_list(options), arguments);
  if (!line) return std::nullopt;
  const std::string url = url_and_scenario(*line, options);
  options.url = parse_server_url(url);
  // The path of an endpoint chooses it.
  if (url.find("/chat/completions") != std::string::npos && !line->has("endpoint")) {
    options.endpoint_name = "chat";
  }
  if (options.scenario.empty()) {
    throw UsageError("--scenario: is missing; allowed: the path of a scenario file");
  }
  for (const char* name : {"first-rate", "attainment", "point-seconds", "time-limit"}) {
    if (options.finds_knee || !line->has(name)) continue;
    throw UsageError("--" + std::string(name) + ": needs --find-knee");
  }
  if (options.finds_knee && options.max_concurrency > 0) {
    throw UsageError(
        "--max-concurrency: requests that wait in the client hide that the server is behind; "
        "allowed with --find-knee: no such limit");
  }
  if (options.seed_text) options.seed = parse_seed(*options.seed_text);
  options.endpoint = endpoint_of(options.endpoint_name);
  options.timeout_ns = static_cast<TimeNs>(options.timeout_s * 1e9);
  complete_headers(options.headers);
  return options;
}

// The one variant that matches the server's setup.
Scenario chosen_scenario(const ScenarioFile& file, const BenchServeOptions& options) {
  std::vector<std::string> names;
  if (!options.variant.empty()) names.push_back(options.variant);
  std::vector<Scenario> chosen = chosen_variants(file, names);
  if (chosen.size() == 1) return std::move(chosen.front());
  std::vector<std::string_view> known;
  for (const Scenario& scenario : file.variants) known.push_back(scenario.name);
  throw UsageError(fmt::format(
      "--variant: {} has {} variants, but a server has the settings of one; allowed: {}", file.path,
      known.size(), join_names(known)));
}

struct Target {
  ServerAddress address;
  std::string model;
  std::string version;  // empty: unknown
};

// Connects to the server and asks for its model and version.
Target find_target(const BenchServeOptions& options) {
  constexpr TimeNs kPatience = 30 * kNsPerSecond;
  Target target;
  target.address = reach_server(options.url, kPatience, throw_if_interrupted);
  const auto ask = [&](std::string_view path) {
    return http_get(options.url, target.address, path, options.headers, kPatience,
                    throw_if_interrupted);
  };
  target.model = options.model;
  if (target.model.empty()) {
    const HttpAnswer models = ask("/v1/models");
    target.model = first_model(models);
    if (target.model.empty()) {
      throw std::runtime_error(
          fmt::format("{}/v1/models: HTTP {} without a model; allowed: a server with OpenAI's API, "
                      "or the name of its model as --model",
                      options.url.text(), models.status));
    }
  }
  try {
    target.version = server_version(ask("/version"));
  } catch (const Interrupted&) {
    throw;
  } catch (const std::runtime_error&) {
    // Not every server has this endpoint.
  }
  return target;
}

Json server_json(const BenchServeOptions& options, const Target& target) {
  return {{"url", options.url.text()},
          {"endpoint", path_of(options.endpoint)},
          {"model", target.model},
          {"version", target.version.empty() ? Json() : Json(target.version)}};
}

RunInfo info_of(const BenchServeOptions& options, const Target& target, const ScenarioFile& file,
                const Scenario& scenario, const Workload& workload, const ModelConfig& model) {
  RunInfo info = scenario_info(scenario, workload);
  info.scenario = printable(file.name);
  info.description = printable(file.description);
  info.backend = kHttpBackend;
  info.endpoint_type = options.endpoint == LoadEndpoint::Chat ? "openai-chat" : "openai";
  info.date = date_text();
  info.model = model.name;
  info.hardware = options.url.text();
  info.policy = "server";  // unknown; the scenario's policy is in `config`
  if (options.max_concurrency > 0) info.max_concurrency = options.max_concurrency;
  info.server = server_json(options, target);
  return info;
}

Workload drawn_workload(const Scenario& scenario, const ModelConfig& model) {
  Workload workload = make_workload(scenario);
  if (workload.mode == ArrivalMode::Steps) {
    throw ConfigError(scenario.location_of("workload.arrivals.process").to_string() +
                      ": workload.arrivals.process: arrivals at engine steps cannot be sent to a "
                      "server; allowed: any other process");
  }
  if (workload.has_sessions()) {
    throw ConfigError(scenario.location_of("workload.sessions").to_string() +
                      ": workload.sessions: cannot be sent to a server; allowed: requests that do "
                      "not continue others");
  }
  if (!workload.images.empty()) {
    throw ConfigError(scenario.location_of("workload").to_string() +
                      ": workload: images cannot be sent to a server; allowed: text alone");
  }
  if (workload.requests.empty())
    throw ConfigError("the workload has no requests; allowed: at least one");
  const std::string error = workload.token_id_error(model.vocab_size);
  if (!error.empty()) throw ConfigError(error);
  return workload;
}

void print_header(std::ostream& out, const BenchServeOptions& options, const Target& target,
                  const ScenarioFile& file, const Scenario& scenario, const Workload& workload) {
  const auto tell = [&out](const std::string& name, const std::string& text) {
    out << name << std::string(12 - name.size(), ' ') << wrapped(text, 12, output_columns());
  };
  tell("scenario", one_line(file.path + (file.description.empty() ? "" : ": " + file.description)));
  tell("server",
       one_line(options.url.text() + std::string(path_of(options.endpoint)) + ", model " +
                target.model + (target.version.empty() ? "" : ", version " + target.version)));
  tell("seed", std::to_string(scenario.seed));
  tell("workload", count_text(workload.requests.size(), "request") + ", " +
                       count_text(workload.total_prompt_tokens(), "prompt token") + ", " +
                       count_text(workload.total_output_tokens(), "output token"));
  out << '\n' << std::flush;
}

void warn_of_file_limit(const Workload& workload, const BenchServeOptions& options) {
  const std::int64_t limit = raise_open_file_limit();
  const std::int64_t wanted = connections_wanted(workload, options.max_concurrency) + 32;
  if (limit >= wanted) return;
  std::cerr << "warning: the process may open " << limit << " files, and " << wanted
            << " connections may be needed; raise `ulimit -Hn`\n";
}

// A load and its result.
struct Loaded {
  LoadResult load;
  VariantOutcome outcome;
  ClientHealth health;
};

// The requests that have not ended after `most_ns` are given up.
Loaded run_scenario(const BenchServeOptions& options, const Target& target,
                    const Scenario& scenario, const Workload& workload, const ModelConfig& model,
                    RunInfo info, TimeNs most_ns) {
  ProgressBar bar(!options.is_quiet);
  bar.start(info.label);
  const LoadRequestOptions request_options{options.url,   options.endpoint, target.model,
                                           scenario.seed, model.vocab_size, options.headers};
  LoadRequestQueue texts(
      workload.requests.size(),
      [&](std::size_t i) { return load_request_text(workload, i, request_options); },
      throw_if_interrupted);
  LoadOptions load_options;
  load_options.address = target.address;
  load_options.max_concurrency = options.max_concurrency;
  load_options.timeout_ns = options.timeout_ns;
  load_options.most_ns = most_ns;
  load_options.on_tick = [&](std::size_t num_ended) {
    bar.update(num_ended, workload.requests.size());
    throw_if_interrupted();
    throw_if_output_failed();
  };
  // The kernel may delay timers by this slack. The default of 50 us is significant for an ITL.
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  Loaded loaded;
  const WallClock clock;
  loaded.load = run_load(workload, texts, clock, load_options);
  bar.clear();
  throw_if_interrupted();
  loaded.outcome.record = record_of_load(workload, loaded.load, options.endpoint);
  loaded.outcome.record.class_names = workload.class_names;
  loaded.outcome.result.summary = summarize(loaded.outcome.record, {scenario.slo, 0});
  loaded.health = client_health(loaded.load, loaded.outcome.result.summary);
  info.client = client_json(loaded.health);
  loaded.outcome.result.info = std::move(info);
  loaded.outcome.warnings = load_warnings(workload, loaded.load, options.endpoint);
  for (std::string& warning : client_warnings(loaded.health)) {
    loaded.outcome.warnings.push_back(std::move(warning));
  }
  return loaded;
}

// Writes the files of a load, into a subfolder if it has a name.
void write_load(Loaded& loaded, const Scenario& scenario, const BenchServeOptions& options,
                const std::string& subfolder, ResultFolder& folder) {
  VariantOutcome& outcome = loaded.outcome;
  if (!subfolder.empty()) folder.make_subfolder(subfolder);
  if (options.wants_detail) {
    JsonText json;
    json.begin_object();
    append_flat_fields(ResultContent(outcome.result), json);
    append_vllm_detail(outcome.record, loaded.load, json);
    json.end_object();
    json.end_line();
    folder.write((subfolder.empty() ? "" : subfolder + "/") + std::string(kVllmFile),
                 std::string(json.view()));
  }
  ResultsConfig wanted = scenario.results;
  wanted.steps = wanted.trace = wanted.outputs = false;  // a client sees none of them
  write_variant(outcome, wanted, folder, subfolder);
}

void write_report(const std::vector<const Loaded*>& loads, const Scenario& scenario,
                  ResultFolder& folder) {
  if (!scenario.results.report) return;
  ReportBuilder report(loads.size());
  for (const Loaded* loaded : loads) {
    const VariantOutcome& outcome = loaded->outcome;
    report.add(ResultContent(outcome.result), [&]() -> const RunRecord& { return outcome.record; });
  }
  folder.write(kReportFile, report.html());
}

// Without the delays that nothing was measured of.
std::string health_text(const ClientHealth& health) {
  std::string text;
  if (health.send_late.count > 0) {
    text += "sends late p50 " + grouped_text(health.send_late.p50_ms, 3) + " ms, p99 " +
            grouped_text(health.send_late.p99_ms, 3) + " ms; ";
  }
  if (health.loop_lag.count > 0) {
    text += "loop lag p99 " + grouped_text(health.loop_lag.p99_ms, 3) + " ms; ";
  }
  return text + "busy " + grouped_text(100 * health.cpu_share, 1) + " % of a CPU core, at most " +
         grouped_text(100 * health.busiest_second, 1) + " % of a second";
}

// The server, and what it is sent.
struct Bench {
  const BenchServeOptions& options;
  const ScenarioFile& file;
  const Scenario& scenario;
  const Workload& workload;
  const ModelConfig& model;
  const Target& target;
  std::ostream& text;
  const std::string& out;  // as the user names it
  ResultFolder& folder;
};

void warn_of(const std::string& name, const Loaded& loaded) {
  for (const std::string& warning : loaded.outcome.warnings) {
    std::cerr << "warning: " << name << ": " << warning << '\n';
  }
}

int send_once(const Bench& bench) {
  const BenchServeOptions& options = bench.options;
  const Scenario& scenario = bench.scenario;
  Loaded loaded = run_scenario(
      options, bench.target, scenario, bench.workload, bench.model,
      info_of(options, bench.target, bench.file, scenario, bench.workload, bench.model), kNever);
  warn_of(scenario.name, loaded);
  const RunResult results[] = {loaded.outcome.result};
  const std::string summary = summary_json(results);
  write_load(loaded, scenario, options, {}, bench.folder);
  write_report({&loaded}, scenario, bench.folder);
  bench.folder.write(kSummaryFile, summary);
  throw_if_interrupted();
  bench.folder.commit();

  if (options.wants_json) std::cout << summary;
  const bool is_terminal = is_capable_terminal(options.wants_json ? STDERR_FILENO : STDOUT_FILENO);
  const bool use_color = is_terminal && std::getenv("NO_COLOR") == nullptr;
  bench.text << render_table(results, {use_color}) << "client: " << health_text(loaded.health)
             << "\n\nresults: " << printable(bench.out) << '\n'
             << std::flush;
  if (results[0].summary.completed == 0) {
    throw std::runtime_error(
        "no request completed, for the reason in the warning above; the results are in " +
        bench.out);
  }
  return kExitDone;
}

int find_knee(const Bench& bench) {
  const Scenario& scenario = bench.scenario;
  KneeOptions options = bench.options.knee;
  options.slo = scenario.slo;
  options.first_rate = bench.options.first_rate.value_or(rate_of(bench.workload));
  std::map<double, Loaded> loads;
  const KneeResult result =
      find_knee(bench.workload, options, [&](const Workload& load, double rate, TimeNs most_ns) {
        RunInfo info =
            info_of(bench.options, bench.target, bench.file, scenario, load, bench.model);
        info.label = knee_folder(rate);
        info.request_rate = rate;
        Loaded loaded = run_scenario(bench.options, bench.target, scenario, load, bench.model,
                                     std::move(info), most_ns);
        warn_of(knee_folder(rate), loaded);
        const auto place = loads.insert_or_assign(rate, std::move(loaded)).first;
        return knee_point(place->second.outcome.record, rate, options);
      });
  std::vector<RunResult> results;
  std::vector<const Loaded*> in_order;
  for (auto& [rate, loaded] : loads) {
    write_load(loaded, scenario, bench.options, knee_folder(rate), bench.folder);
    results.push_back(loaded.outcome.result);
    in_order.push_back(&loaded);
  }
  write_report(in_order, scenario, bench.folder);
  bench.folder.write(kSummaryFile, summary_json(results));
  Json json = knee_json(result, options);
  json["scenario"] = printable(bench.file.name);
  json["server"] = server_json(bench.options, bench.target);
  const std::string text = json.dump(JsonStyle{.indent = 2, .replaces_bad_utf8 = true}) + '\n';
  bench.folder.write(kKneeFile, text);
  throw_if_interrupted();
  bench.folder.commit();
  if (bench.options.wants_json) std::cout << text;
  bench.text << knee_text(result, options) << "\nresults: " << printable(bench.out) << '\n'
             << std::flush;
  return result.knee ? kExitDone : kExitRunFailed;
}

}  // namespace

int bench_serve_command(const Arguments& arguments) {
  const std::optional<BenchServeOptions> parsed = parse_bench_serve(arguments);
  if (!parsed) return kExitDone;
  const BenchServeOptions& options = *parsed;
  const ScenarioFile file = load_scenario(options.scenario, options.assignments, options.seed);
  const Scenario scenario = chosen_scenario(file, options);
  const ModelConfig model = find_model(scenario.model, scenario.location_of("model"));
  const Workload workload = drawn_workload(scenario, model);
  if (const std::string error = knee_error(workload); options.finds_knee && !error.empty()) {
    throw ConfigError(scenario.location_of("workload.arrivals").to_string() +
                      ": workload.arrivals: --find-knee: " + error);
  }
  std::string out = options.out;
  if (out.empty()) {
    out = default_folder(options.scenario, kHttpBackend, {scenario}, options.variant.empty());
    if (options.finds_knee) out += ".knee";
  }
  catch_signals();
  ResultFolder folder(out);
  const Target target = find_target(options);
  std::ostream& text = text_stream(options.is_quiet, options.wants_json);
  print_header(text, options, target, file, scenario, workload);
  throw_if_output_failed();
  warn_of_file_limit(workload, options);
  const Bench bench = {options, file, scenario, workload, model, target, text, out, folder};
  return options.finds_knee ? find_knee(bench) : send_once(bench);
}

}  // namespace metronome
