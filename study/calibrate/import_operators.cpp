// SPDX-License-Identifier: Apache-2.0
#include "study/calibrate/import_operators.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "core/engine/kernel_rules.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/scenario/simulated_model.h"
#include "sim/cost/cost_model_file.h"
#include "sim/cost/device_share.h"
#include "sim/operators/operator_compose.h"
#include "sim/operators/operator_file.h"
#include "study/calibrate/import_text.h"
#include "study/calibrate/table_tool.h"
#include "system/file_writer.h"
#include "system/temporary_folder.h"

namespace metronome {
namespace {

struct SystemName {
  std::string_view system;
  std::string_view hardware;
};

// The package's systems, by our names of their GPUs.
constexpr SystemName kSystems[] = {
    {"a100_sxm", "a100-80gb"}, {"b200_sxm", "b200"},
    {"b300_sxm", "b300"},      {"gb200", "gb200"},
    {"gb300", "gb300"},        {"h100_sxm", "h100-sxm"},
    {"h200_sxm", "h200"},      {"l4", "l4"},
    {"l40s", "l40s"},          {"rtx_pro_6000_server", "rtx-pro-6000"},
};

// Our name of the system's GPU; empty: not known.
std::string_view name_of(const std::string& system) {
  for (const SystemName& name : kSystems) {
    if (name.system == system) return name.hardware;
  }
  return {};
}

// An entry of the user's own YAML file may describe the system's GPU otherwise, but no other entry
// of the catalogue.
HardwareSpec hardware_of(const std::string& system, const std::string& given) {
  const std::string measured(name_of(system));
  if (given.empty() && measured.empty()) {
    throw UsageError("--hardware: is missing, and has no name for the system " + printable(system) +
                     "; allowed: a name of `metronome list hardware`, or a YAML file");
  }
  HardwareSpec hardware =
      find_hardware(given.empty() ? measured : given, option_location("--hardware"));
  const std::vector<HardwareSpec>& known = all_hardware();
  const bool is_known = std::any_of(known.begin(), known.end(), [&](const HardwareSpec& other) {
    return other.name == hardware.name;
  });
  if (!measured.empty() && is_known && hardware.name != measured) {
    throw UsageError("--hardware: " + hardware.name + " is not the GPU of --system " +
                     printable(system) + "; allowed: " + measured +
                     ", a YAML file with an entry of its own, or leave the option out");
  }
  return hardware;
}

// The words of a scenario's keys.
constexpr std::string_view kQuantizations[] = {"none",  "fp8",   "fp8_block",
                                               "nvfp4", "mxfp4", "int4"};
constexpr WeightFormat kFormats[] = {WeightFormat::Plain,    WeightFormat::Fp8,
                                     WeightFormat::Fp8Block, WeightFormat::Nvfp4,
                                     WeightFormat::Mxfp4,    WeightFormat::Int4};
constexpr std::string_view kKvDtypes[] = {"bf16", "fp8"};

template <std::size_t N>
std::size_t choice_of(const char* option, const std::string& name,
                      const std::string_view (&names)[N]) {
  const auto found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) {
    throw UsageError(std::string(option) + ": '" + printable(name) + "' is unknown" +
                     did_you_mean(name, names) + "; allowed: " + join_names(names));
  }
  return static_cast<std::size_t>(found - std::begin(names));
}

void quantise(ModelConfig& model, const std::string& name) {
  const WeightFormat format = kFormats[choice_of("--quantization", name, kQuantizations)];
  if (format == WeightFormat::Mxfp4 && model.n_experts == 0) {
    throw UsageError("--quantization: mxfp4 stores experts, and " + model.name +
                     " has none; allowed: none, fp8, fp8_block, nvfp4, int4");
  }
  model.store_as(format);
}

ModelConfig model_of(const OperatorImportOptions& options) {
  if (options.model.empty()) {
    throw UsageError(
        "--model: is missing; allowed: a name of `metronome list models`, or a "
        "config.json");
  }
  ModelConfig model = find_served_model(options.model, option_location("--model"));
  if (!options.quantization.empty()) quantise(model, options.quantization);
  if (!options.kv_dtype.empty()) {
    model.bytes_per_kv_element = choice_of("--kv-dtype", options.kv_dtype, kKvDtypes) == 0 ? 2 : 1;
  }
  try {
    check_tensor_parallel(model, options.tensor_parallel_size);
  } catch (const UnplacedConfigError& error) {
    throw UsageError("--tp: " + error.message());
  }
  const std::int64_t ep = options.expert_parallel_size;
  if (ep < 1 || (ep > 1 && (model.n_experts % ep != 0 || options.tensor_parallel_size % ep != 0))) {
    throw UsageError(
        fmt::format("--expert-parallel: {} does not divide the {} experts of {} and --tp evenly; "
                    "allowed: a divisor of both, or 1",
                    ep, model.n_experts, model.name));
  }
  return model;
}

// Empty: the engine's default. Refuses options of experts for a model that has none.
std::optional<RouterDtype> router_dtype_of(const OperatorImportOptions& options,
                                           const ModelConfig& model) {
  const std::string& name = options.router_dtype;
  std::optional<RouterDtype> dtype;
  if (!name.empty()) {
    dtype = static_cast<RouterDtype>(choice_of("--router-dtype", name, kRouterDtypeNames));
  }
  if (model.n_experts == 0 && (dtype || !options.experts_kernel.empty())) {
    throw UsageError(std::string(dtype ? "--router-dtype" : "--experts-kernel") +
                     ": has no effect, as " + model.name +
                     " has no experts; allowed: leave the option out");
  }
  return dtype;
}

std::vector<std::string> tool_arguments(const OperatorImportOptions& options,
                                        const ModelConfig& model, const std::string& out) {
  std::string dtypes = "bfloat16";
  for (const std::span<const ModuleKind> part :
       {std::span<const ModuleKind>(kAttentionModules), std::span<const ModuleKind>(kMlpModules)}) {
    for (const FormatShare& share : model.formats_of(part)) {
      const std::string dtype = table_dtype(share.format, {});
      if (("," + dtypes + ",").find("," + dtype + ",") == std::string::npos) dtypes += "," + dtype;
    }
  }
  const std::string engine =
      options.engine.empty() ? std::string(kernel_table_names().front()) : options.engine;
  std::vector<std::string> arguments = {
      "--venv",   "operators", options.from, out,    "--system",   options.system,
      "--engine", engine,      "--dtypes",   dtypes, "--head-dim", std::to_string(model.head_dim)};
  const auto add = [&](const char* option, const std::string& value) {
    arguments.insert(arguments.end(), {option, value});
  };
  if (model.n_window_layers() > 0) add("--window", std::to_string(model.sliding_window));
  if (const LatentAttention& latent = model.latent_attention; !latent.is_empty()) {
    add("--latent", fmt::format("{},{},{},{}", latent.kv_rank, latent.nope_dim, latent.rope_dim,
                                latent.value_dim));
  }
  if (const LinearAttention& linear = model.linear_attention; !linear.is_empty()) {
    add("--states",
        fmt::format("{},{},{}", linear.key_head_dim, linear.value_head_dim, linear.conv_width));
  }
  if (model.n_experts > 0) {
    add("--experts", fmt::format("{},{},{},{}", model.hidden_dim, model.expert_ffn_dim,
                                 model.n_experts_per_token, model.n_experts));
    add("--expert-parallel", std::to_string(options.expert_parallel_size));
    if (!options.experts_kernel.empty()) add("--experts-kernel", options.experts_kernel);
  }
  if (options.tensor_parallel_size > 1) arguments.emplace_back("--collectives");
  return arguments;
}

OperatorTables read_tables(const OperatorImportOptions& options, const ModelConfig& model) {
  if (is_operator_folder(options.from)) {
    OperatorTables tables = read_operator_tables(options.from);
    const auto require_same = [&](const char* option, const std::string& given,
                                  const std::string& measured) {
      if (given.empty() || given == measured) return;
      throw UsageError(std::string(option) + ": " + printable(given) + " is not that of " +
                       options.from + "; allowed: " + printable(measured));
    };
    require_same("--system", options.system, tables.meta.system);
    require_same("--engine", options.engine, tables.meta.engine);
    if (options.expert_parallel_size > 1) {
      require_same("--expert-parallel", std::to_string(options.expert_parallel_size),
                   std::to_string(tables.meta.expert_parallel_size));
    }
    if (!options.experts_kernel.empty()) {
      throw UsageError("--experts-kernel: has no effect, as " + options.from +
                       " has one time of each size; allowed: give it to tools/import_tables");
    }
    return tables;
  }
  if (options.system.empty()) {
    throw UsageError("--system: is missing; allowed: a system of the package, such as h100_sxm");
  }
  const std::string tool = find_table_tool();
  const TemporaryFolder folder;
  run_table_tool(tool, tool_arguments(options, model, folder.path()));
  return read_operator_tables(folder.path());
}

void print_times(const OperatorTimes& times) {
  const Grid& prompts = times.attention.prompts;
  const Grid& decodes = times.attention.decodes;
  std::cout << "products      " << points_text(times.projections.x) << " tokens\n";
  if (!times.experts.empty()) {
    std::cout << "experts       " << points_text(times.experts.x) << " tokens\n";
  }
  // As many tokens as have so many (query, key) pairs.
  const auto tokens_text = [](double pairs) {
    return whole_text(std::round(std::sqrt(2 * pairs)));
  };
  std::cout << "attention     " << points_text(prompts.rows) << " prompts of "
            << tokens_text(prompts.columns.front()) << " to " << tokens_text(prompts.columns.back())
            << " tokens\n              " << points_text(decodes.rows) << " decodes at contexts of "
            << points_text(decodes.columns) << '\n';
  if (times.states) {
    std::cout << "states        " << points_text(times.states->prompts.rows) << " prompts of "
              << points_text(times.states->prompts.columns) << " tokens, "
              << points_text(times.states->decodes.x) << " decodes\n";
  }
  for (const CollectiveTimes& collective : times.collectives) {
    std::string name(to_string(collective.collective));
    name.resize(14, ' ');
    std::cout << name << points_text(collective.us.x) << " bytes\n";
  }
  for (const std::string& remark : times.remarks) std::cout << "remark        " << remark << '\n';
}

// Of the engine that was asked for; its products say the version.
std::string engine_text(const OperatorTables& tables) {
  for (const ProductTable& table : tables.products) {
    if (table.origin.engine == tables.meta.engine) return table.origin.text();
  }
  return tables.meta.engine;
}

}  // namespace

bool holds_operators(const std::string& from) {
  if (!is_folder(from)) return path_exists(from);  // a wheel
  for (const char* part : {"/data", "/systems/data", "/aiconfigurator_core/systems/data"}) {
    if (is_folder(from + part)) return true;
  }
  return is_operator_folder(from);
}

void import_operators(const OperatorImportOptions& options) {
  const ModelConfig model = model_of(options);
  const std::optional<RouterDtype> router_dtype = router_dtype_of(options, model);
  const std::int64_t tp = options.tensor_parallel_size;
  const OperatorTables tables = read_tables(options, model);
  const OperatorMeta& meta = tables.meta;
  const HardwareSpec hardware = hardware_of(meta.system, options.hardware);
  const OperatorTimes times = compose_operators(
      tables, model, tp, router_dtype.value_or(default_router_dtype(model, meta.engine)));

  const std::string source = meta.package + " (" + meta.licence + "), " + meta.system;
  const std::string engine = engine_text(tables);
  std::cout << "operators     " << printable(source) << ": " << model.name << " on "
            << hardware.name << ", tensor_parallel_size " << tp
            << (meta.expert_parallel_size > 1
                    ? fmt::format(", experts on {}", meta.expert_parallel_size)
                    : "")
            << ", " << printable(engine) << '\n';
  print_times(times);
  if (options.out.empty()) return;
  CostModelFile file;
  file.kind = "operators";
  file.name = options.out;
  file.hardware = hardware.name;
  file.model = model.name;
  file.tensor_parallel_size = tp;
  file.engine = engine;
  file.source = options.source.empty() ? source : options.source;
  file.body = std::make_shared<const Json>(operator_body(times, model));
  const std::string text = file.to_json();
  replace_file(options.out, text);
  std::cout << "wrote         " << printable(options.out) << ", "
            << whole_text(static_cast<double>(text.size())) << " bytes\n";
}

}  // namespace metronome
