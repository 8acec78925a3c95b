// `metronome calibrate`: makes a cost model from measurements.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/json_place.h"
#include "core/base/progress.h"
#include "core/config/catalogue.h"
#include "core/config/config_reader.h"
#include "study/calibrate/calibrate_fit.h"
#include "study/calibrate/calibrate_import.h"
#include "study/calibrate/calibrate_measure.h"
#include "study/calibrate/calibrate_requests.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"
#include "tools/commands/run_choice.h"

namespace metronome {
namespace {

constexpr const char* kSummary =
    "Makes a cost model of measurements, to be named by `cost_model.file` of a scenario.\n"
    "--from fits step times to the steps of measured runs: a constant for passes that run as a\n"
    "graph and one for others, a part that grows with the tokens, and parts for each prefill\n"
    "chunk, (query, key) pair, decode, KV position, row of logits and for any rows at all, none\n"
    "negative. A fifth of the steps is held out, to say how far predictions are off.\n"
    "--kind replay keeps the steps of one run beside the fit: a simulation that makes one of them\n"
    "again gives it the time and the host's gap that were recorded, and counts the steps that "
    "were\n"
    "never made as outside what was measured. Under the run's own settings it ends every step "
    "when\n"
    "that did; under others it says how much of them the run tells.\n"
    "--import reads kernel times as published profilers write them.\n"
    "--backend measures the steps itself, where the model runs, through the engine that serves "
    "it:\n"
    "prompts by chunk and prefix, decodes by batch and context, both together, in an order drawn\n"
    "anew for each of several rounds. It keeps them in NAME.steps beside the fit to them.\n";

constexpr const char* kExamples =
    "A CSV of steps has a line a forward pass, and these columns:\n"
    "  tokens          that were computed, a decode is one\n"
    "  pairs           (query, key) pairs of prefill chunks: the sum over their tokens of "
    "position\n"
    "                  + 1, of models with windows clamped to them and averaged over the layers\n"
    "  prefill_chunks  how many\n"
    "  decodes         how many\n"
    "  kv              positions that decodes attend to, their own included; windows as with "
    "pairs\n"
    "  rows            of logits: decodes, and chunks that end their prompt\n"
    "  graph           1 where decodes were replayed as a CUDA graph, else 0\n"
    "  seconds         that the device worked on it\n"
    "\n"
    "A folder to import holds meta.yaml and tpN/dense.csv, per_sequence.csv, attention.csv, and\n"
    "where there are some moe.csv, allreduce.csv (bytes, time_us) and skew.csv, as "
    "LLMServingSim's\n"
    "profiler of vLLM writes them, in microseconds; or Vidur's mlp.csv and attention.csv.\n"
    "\n"
    "examples:\n"
    "  metronome run scenarios/quickstart.yaml --backend=cpu --out results/real\n"
    "  metronome calibrate --from results/real --out cpu.json\n"
    "  metronome calibrate --from results/real --kind replay --out real.json\n"
    "  metronome calibrate --from steps.csv --model llama-3.1-8b --hardware h100-sxm\n"
    "  metronome calibrate --from vllm.log --scenario served.yaml --hardware h100-sxm --out "
    "h100.json\n"
    "  metronome calibrate --from requests.jsonl --scenario served.yaml --until 40 --out own.json\n"
    "  metronome calibrate --import profiles/rtx4090_llama-3.1-8b --out rtx4090.json\n"
    "  metronome calibrate --backend=cuda --model qwen3-4b --hardware h200 --out qwen3-4b.json\n"
    "  metronome calibrate --from qwen3-4b.steps --out again.json\n"
    "  metronome calibrate --import vidur/a100 --hardware a100-80gb --model llama-2-7b\n"
    "\n"
    "exit codes: 0 done, 1 the run failed, 2 bad input, too little time, or a fit that is faster "
    "than\n"
    "the hardware can be\n";

constexpr CommandText kText = {
    .name = "calibrate",
    .arguments =
        "--from SOURCE [OPTION...]\n"
        "       metronome calibrate --import FOLDER [OPTION...]\n"
        "       metronome calibrate --backend=NAME --model NAME --out FILE [OPTION...]",
    .summary = kSummary,
    .examples = kExamples,
    .files = FileCount::None};

struct CalibrateOptions {
  std::vector<std::string> from;
  std::string folder;
  std::string source;
  CalibrationSetup setup;
  std::string kind;
  std::string backend;
  double seconds = MeasureOptions().seconds;
  std::optional<std::string> seed_text;
  std::uint64_t seed = MeasureOptions().seed;
  std::string out;
};

OptionList option_list(CalibrateOptions& options) {
  return {
      {"from SOURCE", &options.from,
       "result folder of measured runs, every one in it, a CSV of steps, a log with vLLM's "
       "iterations (--enable-logging-iteration-details), or a request log; repeatable"},
      {"kind KIND", &options.kind,
       "what the file says of steps: fitted (the default), replay, of one run, or corrected: what "
       "the scenario's step times are multiplied by (the default for a request log)"},
      {"until SECONDS", &options.setup.until_s,
       "fit to what a request log says of its first seconds; for a correction the rest is a check"},
      {"scenario FILE", &options.setup.scenario,
       "what served a log of iterations or requests: engine and policy, and the requests as a "
       "trace; says what was computed, by scheduling the requests along the log"},
      {"set KEY=VALUE", &options.setup.assignments,
       "change a key of that scenario, or how --backend computes: engine.max_num_seqs, "
       "engine.max_model_len and scheduler.max_num_batched_tokens are the greatest steps; "
       "repeatable"},
      {"import FOLDER", &options.folder, "kernel times of a GPU and model"},
      {"backend NAME", &options.backend,
       "measure steps of --model on it: cpu or cuda; needs --out"},
      {"seconds N", &options.seconds,
       "time for --backend, loading included: rounds that it is not enough for are left out "
       "(default: 120)"},
      {"seed N", &options.seed_text, "order of what --backend measures (default: 1)"},
      {"source TEXT", &options.source,
       "where imported times come from, kept in the file; unless given the folder's name"},
      {"model NAME", &options.setup.model,
       "the model that was measured, or its config.json; unless given what the measurements say; "
       "a CSV needs it, and a log without --scenario"},
      {"hardware NAME", &options.setup.hardware,
       "what was measured: a name of `metronome list hardware`, or a YAML file with one entry; "
       "unless given what the measurements say, and no step is compared with the hardware's limits "
       "where the catalogue does not have it"},
      {"tp N", &options.setup.tensor_parallel_size,
       "GPUs that shared each layer; unless given what runs say, else 1"},
      {"out FILE", &options.out,
       "the cost model, replaced if it is one; unless given, nothing is written"},
  };
}

constexpr double kMaxMeasuringSeconds = 86'400;

void choose_kind(CalibrateOptions& options) {
  const bool is_log = options.from.size() == 1 && is_request_log(options.from.front());
  if (options.kind.empty()) options.kind = is_log ? "corrected" : "fitted";
  if (options.kind != "fitted" && options.kind != "replay" && options.kind != "corrected") {
    throw UsageError("--kind: '" + printable(options.kind) +
                     "' is unknown; allowed: corrected, fitted, replay");
  }
  if (options.kind == "corrected" && !is_log) {
    throw UsageError(
        "--kind: corrected is for a request log; allowed: one --from with "
        "first_token_ts and last_token_ts");
  }
  const CalibrationSetup& setup = options.setup;
  if (options.kind == "corrected" &&
      (!setup.model.empty() || !setup.hardware.empty() || setup.tensor_parallel_size > 0)) {
    throw UsageError(
        "--model, --hardware and --tp: have no effect; allowed: what the scenario of "
        "a request log says, and --set KEY=VALUE for it");
  }
  const std::optional<double>& until_s = options.setup.until_s;
  if (!until_s) return;
  if (!is_log)
    throw UsageError("--until: has no effect; allowed: beside one --from with a request log");
  if (!(*until_s > 0 && *until_s <= kMaxSeconds)) {
    throw UsageError("--until: is out of range; allowed: more than 0 and up to 1e9 seconds");
  }
}

void check_measuring(const CalibrateOptions& options) {
  if (options.backend.empty()) return;
  check_backend(options.backend);
  if (options.backend == kBackendNames[0]) {
    throw UsageError("--backend: sim measures nothing; allowed: cpu, cuda");
  }
  if (options.setup.model.empty()) {
    throw UsageError("--backend: " + options.backend +
                     " measures the steps of a model; allowed: --model NAME beside it");
  }
  if (options.out.empty()) {
    throw UsageError("--backend: what it measures is kept; allowed: --out FILE beside it");
  }
  if (!(options.seconds >= 1 && options.seconds <= kMaxMeasuringSeconds)) {
    throw UsageError("--seconds: is out of range; allowed: 1 to 86400");
  }
}

std::optional<CalibrateOptions> parse(const Arguments& arguments) {
  CalibrateOptions options;
  const auto line = parse_command(kText, option_list(options), arguments);
  if (!line) return std::nullopt;
  const int num_sources =
      int{!options.from.empty()} + int{!options.folder.empty()} + int{!options.backend.empty()};
  if (num_sources != 1) {
    throw UsageError(
        "calibrate: give either --from, --import or --backend (see `metronome calibrate --help`)");
  }
  const auto belongs_to = [&](const char* option, const char* owner, bool is_wrong) {
    if (!line->has(option) || !is_wrong) return;
    throw UsageError(std::string("--") + option + ": has no effect; allowed: beside --" + owner);
  };
  belongs_to("scenario", "from", options.from.empty());
  belongs_to("set", "scenario or --backend",
             options.setup.scenario.empty() && options.backend.empty());
  for (const char* option : {"seconds", "seed"}) {
    belongs_to(option, "backend", options.backend.empty());
  }
  belongs_to("tp", "from or --import", !options.backend.empty());
  belongs_to("kind", "from", options.from.empty());
  if (options.seed_text) options.seed = parse_seed(*options.seed_text);
  choose_kind(options);
  check_measuring(options);
  belongs_to("source", "import", options.folder.empty());
  if (line->has("tp") &&
      (options.setup.tensor_parallel_size < 1 || options.setup.tensor_parallel_size > 64)) {
    throw UsageError("--tp: is out of range; allowed: 1 to 64");
  }
  return options;
}

// The output may only replace a cost model. A missing folder is reported before the work.
void check_out(const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (is_folder(path) || (!folder.empty() && !is_folder(folder.string()))) {
    throw UsageError("--out: " + path +
                     " cannot be written; allowed: the path of a file in a folder that exists");
  }
  if (!path_exists(path)) return;
  const std::string text = read_file(path).value_or("");
  if (text.find("\"metronome_cost_model\"") == std::string::npos) {
    throw UsageError("--out: " + path +
                     " exists and is no cost model; allowed: one, or a file that does not exist");
  }
}

}  // namespace

int calibrate_command(const Arguments& arguments) {
  const std::optional<CalibrateOptions> options = parse(arguments);
  if (!options) return kExitDone;
  check_out(options->out);
  const CalibrationSetup& setup = options->setup;
  if (!options->backend.empty()) {
    const std::unique_ptr<Backend> backend = make_backend(options->backend);
    catch_signals();
    calibrate_by_measuring(*backend, {setup.model, setup.assignments, setup.hardware,
                                      options->seconds, options->seed, options->out});
  } else if (options->kind == "corrected") {
    calibrate_from_requests(
        {options->from.front(), setup.scenario, setup.assignments, setup.until_s, options->out});
  } else if (options->folder.empty()) {
    const FitKind kind = options->kind == "replay" ? FitKind::Replay : FitKind::Fitted;
    calibrate_from_steps({options->from, setup, kind, options->out});
  } else {
    import_profile({options->folder, std::max<std::int64_t>(setup.tensor_parallel_size, 1),
                    setup.hardware, setup.model, options->source, options->out});
  }
  return kExitDone;
}

}  // namespace metronome
