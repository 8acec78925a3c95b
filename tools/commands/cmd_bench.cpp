// SPDX-License-Identifier: Apache-2.0
// `metronome bench`: step times of a model on this GPU, compared with the machine's floor.
#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <iostream>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "core/scenario/scenario.h"
#include "gpu/bench/bench.h"
#include "gpu/bench/product_bench.h"
#include "gpu/plan/cuda_config.h"
#include "reports/terminal/text.h"
#include "study/bench/bench_cases.h"
#include "study/bench/bench_predict.h"
#include "study/bench/bench_products.h"
#include "system/file_writer.h"
#include "system/progress.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"

namespace metronome {
namespace {

struct BenchOptions {
  std::string model;
  std::string json;  // file; empty: none
  std::int32_t device = 0;
  std::int32_t repeats = 10;
  std::string invariance = "chunk";
  bool has_no_graphs = false;
  bool has_early_launches = false;
  bool has_wgmma_attention = false;
  bool has_wgmma_products = false;
  bool has_fused_decodes = false;
  bool has_products = false;
  std::optional<std::string> tokens_text;
  std::vector<std::int32_t> tokens;  // of --products; empty: kProductTokens
  std::optional<std::string> rates_text;
  PredictOptions predict;  // without hardware: no prediction
};

constexpr const char* kBenchExamples =
    "examples:\n"
    "  metronome bench llama-3.2-3b\n"
    "  metronome bench qwen3-4b --json bench.json --invariance none\n"
    "  metronome bench qwen3-4b --products --json products.json\n"
    "  metronome bench qwen3-4b --predict h200\n"
    "  metronome bench qwen3-4b --predict h200 --cost-model qwen3-4b.json --measured bench.json\n"
    "\n"
    "The floor of a step is the longer of two times: the time to move its weights, keys and\n"
    "values through memory once at the rate of a large copy, and the time of its multiply-adds\n"
    "at the rate of a large product. The command measures both rates first.\n"
    "\n"
    "--products times the linear layers of one layer with every kernel and every tile. Their\n"
    "floors move weights, inputs and outputs through memory once.\n"
    "\n"
    "--predict needs no GPU: it prints the same steps with the bytes that they move, the FLOPs\n"
    "that they compute, their floors and the times of a cost model. With --measured it also\n"
    "prints an earlier measurement.\n"
    "\n"
    "exit codes: 0 done; 1 the GPU failed; 2 bad input, or no GPU to run on\n";

OptionList option_list(BenchOptions& options) {
  return {
      {"json FILE", &options.json,
       "also write the report to this file; replaces only such a report"},
      {"device N", &options.device, "number of the GPU, as in the driver"},
      {"repeats N", &options.repeats,
       "timed steps of each case, or runs of each kernel (default: 10)", EmptyText::Refused,
       WholeRange{1, 1000}},
      {"invariance NAME", &options.invariance,
       "none, chunk or full, as in cuda.invariance (default: chunk)"},
      {"no-graphs", &options.has_no_graphs, "launch the kernels of decode steps one by one"},
      {"early-launches", &options.has_early_launches,
       "as in cuda.early_launches: kernels start while the previous one ends"},
      {"wgmma-attention", &options.has_wgmma_attention,
       "as in cuda.wgmma_attention: attention of prompts by wgmma instructions"},
      {"wgmma-products", &options.has_wgmma_products,
       "as in cuda.wgmma_products: linear layers of prompts by wgmma instructions"},
      {"fused-decodes", &options.has_fused_decodes,
       "as in cuda.fused_decodes: norms of few decodes in the kernels of products"},
      {"products", &options.has_products,
       "time linear layers, with every kernel that computes them, instead of steps"},
      {"tokens N,...", &options.tokens_text,
       "token counts of --products (default: ten counts from 1 to 4096)"},
      {"predict HARDWARE", &options.predict.hardware,
       "run nothing: predict the steps on a GPU of `metronome list hardware`"},
      {"cost-model FILE", &options.predict.cost_model,
       "cost model of the prediction, from `metronome calibrate` (default: the roofline of the "
       "hardware)"},
      {"measured FILE", &options.predict.measured,
       "file of an earlier --json, to print with the prediction"},
      {"rates TB/S,TFLOP/S", &options.rates_text,
       "rates of the predicted floors (default: those of --measured, else the hardware's peaks)"},
  };
}

constexpr CommandText kBenchText = {
    .name = "bench",
    .arguments = "MODEL [OPTION...]",
    .summary =
        "Times the steps of a model on an NVIDIA GPU, by batch, context and chunk, and prints\n"
        "the least time that this GPU could take. Weights are drawn at random: MODEL is a\n"
        "catalogue name, or a Hugging Face config.json or its folder.\n",
    .examples = kBenchExamples,
    .file_name = "MODEL",
    .file_kind = "model"};

MachineRates parse_rates(const std::string& text) {
  double numbers[2] = {0, 0};
  const char* begin = text.data();
  const char* const end = begin + text.size();
  for (double& number : numbers) {
    const auto [behind, error] = std::from_chars(begin, end, number);
    const bool is_last = &number == &numbers[1];
    const bool is_good = error == std::errc() && number > 0 && number <= 1e6 &&
                         (is_last ? behind == end : behind != end && *behind == ',');
    if (!is_good) {
      throw UsageError(
          "--rates: '" + printable(text) +
          "' is not a pair of rates; allowed: TB/s and TFLOP/s above 0, such as 4.3,790");
    }
    begin = behind + 1;
  }
  return {.copy_bytes_per_s = numbers[0] * 1e12, .matrix_flops_per_s = numbers[1] * 1e12};
}

// Rejects options outside `allowed`, as they have no effect with `option`.
void refuse_others(const CommandLine& line, std::initializer_list<std::string_view> allowed,
                   const char* option) {
  for (const std::string& name : line.options) {
    if (std::find(allowed.begin(), allowed.end(), name) != allowed.end()) continue;
    throw UsageError("--" + name + ": has no effect with --" + option + "; allowed: one of them");
  }
}

void read_prediction(const CommandLine& line, BenchOptions& options) {
  const bool is_prediction = line.has("predict");
  for (const char* option : {"cost-model", "measured", "rates"}) {
    if (is_prediction || !line.has(option)) continue;
    throw UsageError(std::string("--") + option + ": has no effect; allowed: with --predict");
  }
  if (is_prediction) {
    refuse_others(line, {"json", "predict", "cost-model", "measured", "rates"}, "predict");
  }
  if (options.rates_text) options.predict.rates = parse_rates(*options.rates_text);
}

// nullopt if help was requested and printed.
std::optional<BenchOptions> parse_bench(const Arguments& arguments) {
  BenchOptions options;
  const auto line = parse_command(kBenchText, option_list(options), arguments);
  if (!line) return std::nullopt;
  options.model = line->file();
  if (options.device < 0) throw UsageError("--device: is negative; allowed: at least 0");
  if (options.has_products) {
    refuse_others(*line, {"json", "device", "repeats", "products", "tokens", "early-launches"},
                  "products");
  }
  if (options.tokens_text) {
    if (!options.has_products) {
      throw UsageError("--tokens: has no effect; allowed: with --products");
    }
    options.tokens = parse_tokens(*options.tokens_text);
  }
  read_prediction(*line, options);
  return options;
}

Invariance invariance_of(const std::string& name) {
  if (name == "none") return Invariance::None;
  if (name == "chunk") return Invariance::Chunk;
  if (name == "full") return Invariance::Full;
  throw UsageError("--invariance: '" + name + "' is not an invariance; allowed: none, chunk, full");
}

void print_report(std::ostream& out, const BenchReport& report) {
  out << bench_head_text(report.model, report.device, report.rates)
      << "weights: random, as only times are measured\n";
  std::vector<std::vector<std::string>> rows = {
      {"step", "median ms", "fastest ms", "floor ms", "bound by", "floor/median", "to enqueue ms"}};
  for (const BenchPoint& point : report.points) {
    rows.push_back({case_text(point.what), fixed_text(point.median_us / 1e3, 3),
                    fixed_text(point.fastest_us / 1e3, 3), fixed_text(point.floor_us / 1e3, 3),
                    point.is_memory_bound ? "memory" : "arithmetic",
                    fixed_text(point.floor_us / point.median_us, 2),
                    fixed_text(point.enqueue_us / 1e3, 3)});
  }
  out << aligned_rows(rows);
  for (const SkippedCase& skipped : report.skipped) {
    out << case_text(skipped.what) << ": skipped, " << skipped.why << '\n';
  }
}

Json to_json(const BenchCase& what) {
  return {{"decodes", what.num_decodes},
          {"context", what.context},
          {"chunk", what.chunk_size},
          {"prefix", what.prefix}};
}

Json to_json(const BenchReport& report, const BenchOptions& options) {
  Json json = {{"metronome_bench", 1},
               {"model", report.model.name},
               {"shape", Json::parse(shape_json(report.model))},
               {"device", report.device},
               {"invariance", options.invariance},
               {"graphs", !options.has_no_graphs},
               {"early_launches", options.has_early_launches},
               {"wgmma_attention", options.has_wgmma_attention},
               {"wgmma_products", options.has_wgmma_products},
               {"fused_decodes", options.has_fused_decodes},
               {"repeats", options.repeats},
               {"copy_bytes_per_s", report.rates.copy_bytes_per_s},
               {"matrix_flops_per_s", report.rates.matrix_flops_per_s},
               {"points", Json::array()},
               {"skipped", Json::array()}};
  for (const BenchPoint& point : report.points) {
    Json entry = to_json(point.what);
    entry["median_us"] = point.median_us;
    entry["fastest_us"] = point.fastest_us;
    entry["enqueue_us"] = point.enqueue_us;
    entry["floor_us"] = point.floor_us;
    entry["bound"] = point.is_memory_bound ? "memory" : "arithmetic";
    json["points"].push_back(entry);
  }
  for (const SkippedCase& skipped : report.skipped) {
    Json entry = to_json(skipped.what);
    entry["why"] = skipped.why;
    json["skipped"].push_back(entry);
  }
  return json;
}

void hand_over(const BenchReport& report, const BenchOptions& options) {
  print_report(std::cout, report);
  if (options.json.empty()) return;
  replace_file(options.json, to_json(report, options).dump(2) + "\n");
}

int predict(const BenchOptions& options) {
  PredictOptions predict = options.predict;
  predict.model = options.model;
  const Prediction prediction = predict_bench(predict);
  std::cout << prediction_text(prediction);
  if (!options.json.empty()) replace_file(options.json, prediction_json(prediction));
  return kExitDone;
}

int products(const BenchOptions& options) {
  ProductsCommand command;
  command.model = options.model;
  command.json = options.json;
  command.device = options.device;
  command.has_early_launches = options.has_early_launches;
  command.bench.repeats = options.repeats;
  if (!options.tokens.empty()) command.bench.tokens = options.tokens;
  catch_signals();
  bench_products(command, make_product_bench());
  return kExitDone;
}

// The report may only replace a report.
void check_json(const std::string& path) {
  if (path.empty() || !path_exists(path)) return;
  const std::string text = is_folder(path) ? "" : read_file(path).value_or("");
  const bool is_report = text.find("\"metronome_bench\"") != std::string::npos ||
                         text.find("\"metronome_products\"") != std::string::npos ||
                         text.find("\"metronome_prediction\"") != std::string::npos;
  if (is_report) return;
  throw UsageError("--json: " + printable(path) +
                   " exists and is not a report of bench; allowed: such a report, or a new file");
}

}  // namespace

int bench_command(const Arguments& arguments) {
  const std::optional<BenchOptions> options = parse_bench(arguments);
  if (!options) return kExitDone;
  check_json(options->json);
  if (!options->predict.hardware.empty()) return predict(*options);
  if (options->has_products) return products(*options);
  const BenchFn bench = make_gpu_bench();
  if (!bench) throw UsageError(kNoCudaBench);
  Scenario scenario;
  scenario.model = options->model;
  scenario.weights = Weights::Random;
  scenario.engine.max_num_seqs = 256;
  scenario.engine.max_model_len = 18432;  // enough for every case; a model may have less
  scenario.backends.edit<CudaConfig>().device = options->device;
  scenario.backends.edit<CudaConfig>().invariance = invariance_of(options->invariance);
  scenario.backends.edit<CudaConfig>().graphs = !options->has_no_graphs;
  scenario.backends.edit<CudaConfig>().early_launches = options->has_early_launches;
  scenario.backends.edit<CudaConfig>().wgmma_attention = options->has_wgmma_attention;
  scenario.backends.edit<CudaConfig>().wgmma_products = options->has_wgmma_products;
  scenario.backends.edit<CudaConfig>().fused_decodes = options->has_fused_decodes;
  catch_signals();
  // The report keeps earlier measurements if a later case fails.
  BenchReport report;
  try {
    bench(scenario, standard_cases(), options->repeats, [&report](const BenchReport& so_far) {
      report = so_far;
      throw_if_interrupted();
    });
  } catch (...) {
    if (!report.points.empty()) hand_over(report, *options);
    throw;
  }
  hand_over(report, *options);
  return kExitDone;
}

}  // namespace metronome
