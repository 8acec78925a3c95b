// SPDX-License-Identifier: Apache-2.0
// `metronome calibrate`: makes a cost model from measurements.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/json_place.h"
#include "core/base/names.h"
#include "core/config/catalogue.h"
#include "core/config/config_reader.h"
#include "core/engine/kernel_rules.h"
#include "core/scenario/backend_sections.h"
#include "study/calibrate/calibrate_fit.h"
#include "study/calibrate/calibrate_import.h"
#include "study/calibrate/calibrate_measure.h"
#include "study/calibrate/calibrate_requests.h"
#include "study/calibrate/calibrate_text.h"
#include "study/calibrate/import_operators.h"
#include "system/progress.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"
#include "tools/commands/run_choice.h"

namespace metronome {
namespace {

constexpr const char* kSummary =
    "Makes a cost model from measurements. `cost_model.file` of a scenario names its file.\n"
    "--from fits step times to the steps of measured runs. The fit has a constant for passes\n"
    "that run as a graph, one for other passes, and a part that grows with the tokens. It also\n"
    "has a part for each prefill chunk, (query, key) pair, decode, KV position and row of\n"
    "logits, and one for a pass with any rows. No part is negative. The command holds out a\n"
    "fifth of the steps and prints the errors of their predictions.\n"
    "--kind replay stores the steps of one run in addition to the fit. If a simulation makes a\n"
    "recorded step again, the step takes its recorded time and host gap. Other steps count as\n"
    "outside of the measured range. With the run's own settings every step ends when it ended\n"
    "in the run.\n"
    "--import reads kernel times in the formats of published profilers.\n"
    "--backend measures steps where the model runs, with the engine that serves it: prompts by\n"
    "chunk and prefix, decodes by batch and context, and both together. It measures several\n"
    "rounds, each in a new random order, and stores the steps in NAME.steps.\n";

constexpr const char* kCalibrateExamples =
    "A CSV of steps has one line per forward pass, and these columns:\n"
    "  tokens          tokens of the pass; a decode is one token\n"
    "  pairs           (query, key) pairs of prefill chunks: the sum over their tokens of\n"
    "                  position + 1; with windows, limited to them, as a mean over the layers\n"
    "  prefill_chunks  number of prefill chunks\n"
    "  decodes         number of decodes\n"
    "  kv              positions that decodes attend to, including their own; windows as in pairs\n"
    "  rows            rows of logits: one for each decode and each chunk that ends its prompt\n"
    "  graph           1 if the pass replayed decodes as a CUDA graph, else 0\n"
    "  seconds         time of the pass on the device\n"
    "\n"
    "A folder to import has meta.yaml and tpN/dense.csv, per_sequence.csv and attention.csv. It\n"
    "may have moe.csv, allreduce.csv (bytes, time_us) and skew.csv. The format is that of\n"
    "LLMServingSim's profiler of vLLM, in microseconds. A folder with Vidur's mlp.csv and\n"
    "attention.csv works, too.\n"
    "\n"
    "Operator tables are those of the PyPI package aiconfigurator-core (Apache-2.0). --import\n"
    "composes the cost model of one model, precision and number of GPUs from them, and prints\n"
    "what they lack. It runs tools/import_tables, which needs python3 and pyarrow.\n"
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
    "  metronome calibrate --import aiconfigurator_core-0.12.0.whl --system h100_sxm \\\n"
    "      --model llama-3.1-70b --quantization fp8 --tp 2 --out h100_70b.json\n"
    "\n"
    "exit codes: 0 done, 1 the run failed, 2 bad input, too little time, or a fit that is\n"
    "faster than the hardware\n";

constexpr CommandText kCalibrateText = {
    .name = "calibrate",
    .arguments =
        "--from SOURCE [OPTION...]\n"
        "       metronome calibrate --import FOLDER [OPTION...]\n"
        "       metronome calibrate --backend=NAME --model NAME --out FILE [OPTION...]",
    .summary = kSummary,
    .examples = kCalibrateExamples,
    .files = FileCount::None};

struct CalibrateOptions {
  std::vector<std::string> from;
  std::string folder;
  OperatorImportOptions operators;
  std::string source;
  CalibrationSetup setup;
  std::string kind;
  std::string backend;
  double seconds = MeasureOptions().seconds;
  std::optional<std::string> seed_text;
  std::optional<std::string> iterations;
  std::uint64_t seed = MeasureOptions().seed;
  std::string out;
};

OptionList option_list(CalibrateOptions& options) {
  return {
      {"from SOURCE", &options.from,
       "folder with results of measured runs, CSV of steps, request log, result of a benchmark's "
       "client, or log with vLLM's iterations (--enable-logging-iteration-details); repeatable"},
      {"run N", &options.setup.run_number,
       "the run of a client's result with several (default: the only one)", EmptyText::Refused,
       WholeRange{1, 1'000'000}},
      {"kind KIND", &options.kind,
       "kind of the cost model: fitted (the default), replay (of one run), or corrected (factors "
       "for the scenario's step times; the default for a request log or a client's result)"},
      {"until SECONDS", &options.setup.until_s,
       "fit to the first seconds of a request log; a correction is checked on the rest",
       EmptyText::Refused, RealRange{0, kMaxSeconds, "seconds", true}},
      {"iterations RANGE", &options.iterations,
       "iterations of a log to take: FIRST:LAST by their numbers in it; either end may be left out "
       "(default: all, or with --scenario those from which its requests fit)"},
      {"allow-differences", &options.setup.allows_differences,
       "take steps of another model than --model or --scenario names"},
      {"scenario FILE", &options.setup.scenario,
       "scenario of a log of iterations or requests: its engine and policy, and the requests as "
       "a trace; schedules the requests along the log to find the computed steps"},
      {"set KEY=VALUE", &options.setup.assignments,
       "override a key of that scenario, or of the steps of --backend: engine.max_num_seqs, "
       "engine.max_model_len and scheduler.max_num_batched_tokens limit them; repeatable"},
      {"import FOLDER", &options.folder,
       "folder with kernel times of a GPU and model, or operator tables: a wheel of "
       "aiconfigurator-core, or the folder it unpacks to"},
      {"system NAME", &options.operators.system,
       "the GPU among operator tables: h100_sxm, h200_sxm, b200_sxm, ..."},
      {"engine NAME", &options.operators.engine,
       "the engine whose operators count first: vllm (the default), sglang, trtllm"},
      {"quantization FORMAT", &options.operators.quantization,
       "how the weights of an operator model are stored, as in a scenario: none, fp8, fp8_block, "
       "nvfp4, mxfp4, int4 (default: as --model says)"},
      {"kv-dtype TYPE", &options.operators.kv_dtype,
       "type of its keys and values: bf16, fp8 (default: as --model says)"},
      {"experts-kernel TEXT", &options.operators.experts_kernel,
       "times of its experts by kernels whose name has this text, where the engine was told which "
       "to take (default: the fastest of each size)"},
      {"router-dtype TYPE", &options.operators.router_dtype,
       "how the engine computes the router of its experts: bfloat16, tf32, float32 (default: "
       "bfloat16, but float32 for MiniMax-M2 on vllm and sglang; tf32 is vLLM's "
       "VLLM_FLOAT32_MATMUL_PRECISION=high)"},
      {"expert-parallel N", &options.operators.expert_parallel_size,
       "of its --tp GPUs, those among which whole experts are divided (default: 1, each expert is "
       "divided)"},
      {"backend NAME", &options.backend,
       "measure steps of --model on this backend: cpu or cuda; needs --out"},
      {"seconds N", &options.seconds,
       "time limit of --backend, including loading; rounds beyond it are left out (default: 120)",
       EmptyText::Refused, RealRange{1, 86'400}},
      {"seed N", &options.seed_text, "seed of the order of --backend's steps (default: 1)"},
      {"source TEXT", &options.source,
       "source of imported times, stored in the file (default: the folder's name)"},
      {"model NAME", &options.setup.model,
       "the measured model, or its config.json (default: that of the measurements); required for "
       "a CSV, and for a log without --scenario"},
      {"hardware NAME", &options.setup.hardware,
       "the measured hardware: a name of `metronome list hardware`, or a YAML file with one entry "
       "(default: that of the measurements); without a known hardware, steps are not compared "
       "with its limits"},
      {"tp N", &options.setup.tensor_parallel_size,
       "GPUs that shared each layer (default: that of the runs, else 1)", EmptyText::Refused,
       WholeRange{1, 64}},
      {"out FILE", &options.out,
       "file of the cost model; replaces only a cost model (default: write nothing)"},
  };
}

void choose_kind(CalibrateOptions& options) {
  const bool is_log = options.from.size() == 1 && has_request_times(options.from.front());
  if (options.kind.empty()) options.kind = is_log ? "corrected" : "fitted";
  if (options.kind != "fitted" && options.kind != "replay" && options.kind != "corrected") {
    throw UsageError("--kind: '" + printable(options.kind) +
                     "' is unknown; allowed: corrected, fitted, replay");
  }
  if (options.kind == "corrected" && !is_log) {
    throw UsageError(
        "--kind: corrected is for a request log or a client's result; allowed: one --from with the "
        "first and last token of each request");
  }
  const CalibrationSetup& setup = options.setup;
  if (options.kind == "corrected" && (setup.allows_differences || options.iterations)) {
    throw UsageError(
        "--iterations and --allow-differences: have no effect with a request log; allowed: with "
        "other sources");
  }
  if (options.kind == "corrected" &&
      (!setup.model.empty() || !setup.hardware.empty() || setup.tensor_parallel_size > 0)) {
    throw UsageError(
        "--model, --hardware and --tp: have no effect with a request log; allowed: the keys of its "
        "scenario, which --set KEY=VALUE overrides");
  }
  if (options.setup.run_number && !is_log) {
    throw UsageError("--run: has no effect; allowed: with one --from of a client's result");
  }
  if (options.setup.until_s && !is_log) {
    throw UsageError("--until: has no effect; allowed: with one --from of a request log");
  }
}

void check_measuring(const CalibrateOptions& options) {
  if (options.backend.empty()) return;
  check_backend(options.backend);
  if (options.backend == kBackendNames[0]) {
    throw UsageError("--backend: sim cannot measure steps; allowed: cpu, cuda");
  }
  if (options.setup.model.empty()) {
    throw UsageError("--backend: " + options.backend +
                     " needs the model to measure; allowed: --model NAME in addition");
  }
  if (options.out.empty()) {
    throw UsageError(
        "--backend: needs a file for the measurements; allowed: --out FILE in addition");
  }
}

// Options of operator tables.
template <class BelongsTo>
void check_operators(CalibrateOptions& options, const BelongsTo& belongs_to) {
  const std::string& from = options.folder;
  if (!from.empty() && !path_exists(from)) {
    throw UsageError("--import: " + printable(from) +
                     " does not exist; allowed: a folder with kernel times, a wheel of "
                     "aiconfigurator-core, or the folder it unpacks to");
  }
  const bool has_none = from.empty() || !holds_operators(from);
  for (const char* option : {"system", "engine", "quantization", "kv-dtype", "router-dtype",
                             "experts-kernel", "expert-parallel"}) {
    belongs_to(option, "import of operator tables", has_none);
  }
  const std::string& engine = options.operators.engine;
  const std::vector<std::string_view> known = kernel_table_names();
  if (!engine.empty() && std::find(known.begin(), known.end(), engine) == known.end()) {
    throw UsageError("--engine: '" + printable(engine) +
                     "' is unknown; allowed: " + join_names(known));
  }
}

void import_times(const CalibrateOptions& options) {
  const CalibrationSetup& setup = options.setup;
  const std::int64_t tp = std::max<std::int64_t>(setup.tensor_parallel_size, 1);
  if (!holds_operators(options.folder)) {
    import_profile({options.folder, tp, setup.hardware, setup.model, options.source, options.out});
    return;
  }
  OperatorImportOptions operators = options.operators;
  operators.from = options.folder;
  operators.model = setup.model;
  operators.hardware = setup.hardware;
  operators.tensor_parallel_size = tp;
  operators.source = options.source;
  operators.out = options.out;
  catch_signals();
  import_operators(operators);
}

std::optional<CalibrateOptions> parse_calibrate(const Arguments& arguments) {
  CalibrateOptions options;
  const auto line = parse_command(kCalibrateText, option_list(options), arguments);
  if (!line) return std::nullopt;
  const int num_sources =
      int{!options.from.empty()} + int{!options.folder.empty()} + int{!options.backend.empty()};
  if (num_sources != 1) {
    throw UsageError(
        "calibrate: give either --from, --import or --backend (see `metronome calibrate --help`)");
  }
  const auto belongs_to = [&](const char* option, const char* owner, bool is_wrong) {
    if (!line->has(option) || !is_wrong) return;
    throw UsageError(std::string("--") + option + ": has no effect; allowed: with --" + owner);
  };
  belongs_to("scenario", "from", options.from.empty());
  belongs_to("set", "scenario or --backend",
             options.setup.scenario.empty() && options.backend.empty());
  for (const char* option : {"seconds", "seed"}) {
    belongs_to(option, "backend", options.backend.empty());
  }
  belongs_to("tp", "from or --import", !options.backend.empty());
  for (const char* option : {"kind", "iterations", "allow-differences", "run"}) {
    belongs_to(option, "from", options.from.empty());
  }
  if (options.iterations) options.setup.iterations = parse_iteration_range(*options.iterations);
  if (options.seed_text) options.seed = parse_seed(*options.seed_text);
  choose_kind(options);
  check_measuring(options);
  belongs_to("source", "import", options.folder.empty());
  check_operators(options, belongs_to);
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
                     " exists and is not a cost model; allowed: a cost model, or a new file");
  }
}

}  // namespace

int calibrate_command(const Arguments& arguments) {
  const std::optional<CalibrateOptions> options = parse_calibrate(arguments);
  if (!options) return kExitDone;
  check_out(options->out);
  const CalibrationSetup& setup = options->setup;
  if (!options->backend.empty()) {
    const std::unique_ptr<Backend> backend = make_backend(options->backend);
    catch_signals();
    calibrate_by_measuring(*backend, {setup.model, setup.assignments, setup.hardware,
                                      options->seconds, options->seed, options->out});
  } else if (options->kind == "corrected") {
    calibrate_from_requests({options->from.front(), setup.run_number, setup.scenario,
                             setup.assignments, setup.until_s, options->out});
  } else if (options->folder.empty()) {
    const FitKind kind = options->kind == "replay" ? FitKind::Replay : FitKind::Fitted;
    report_calibration(calibrate_from_steps(options->from, setup, kind), options->out);
  } else {
    import_times(*options);
  }
  return kExitDone;
}

}  // namespace metronome
