// SPDX-License-Identifier: Apache-2.0
#include "study/calibrate/calibrate_import.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/number_text.h"
#include "core/config/catalogue.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/simulated_model.h"
#include "reports/terminal/text.h"
#include "sim/cost/cost_model_file.h"
#include "sim/cost/device_share.h"
#include "sim/profile/profile_file.h"
#include "sim/profile/profile_fit.h"
#include "sim/profile/profile_folder.h"
#include "study/calibrate/import_text.h"
#include "system/file_writer.h"

namespace metronome {
namespace {

// "NVIDIA/RTX4090" and "rtx-4090" are the same GPU: only letters and digits after the last slash
// count.
std::string bare_name(std::string_view name) {
  std::string bare;
  for (const char c : name.substr(name.find_last_of('/') + 1)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      bare += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return bare;
}

// The entry with the longest matching name: one name equals the other or begins with it.
template <class Entry>
std::optional<std::string> name_in(const std::vector<Entry>& entries, std::string_view measured) {
  const std::string bare = bare_name(measured);
  std::optional<std::string> best;
  if (bare.empty()) return best;
  for (const Entry& entry : entries) {
    const std::string known = bare_name(entry.name);
    if (!known.starts_with(bare) && !bare.starts_with(known)) continue;
    if (known == bare) return entry.name;
    if (!best || entry.name.size() > best->size()) best = entry.name;
  }
  return best;
}

template <class Entry>
std::string chosen_name(const std::vector<Entry>& entries, const std::string& given,
                        const std::string& measured, const std::string& option,
                        const std::string& folder) {
  if (!given.empty()) return given;
  const auto found = name_in(entries, measured);
  if (found) return *found;
  throw UsageError(option + ": is missing, and " + folder +
                   (measured.empty() ? " does not name it"
                                     : " names '" + measured + "', which is not in the catalogue") +
                   "; allowed: a name of `metronome list " + option.substr(2) +
                   (option == "--model" ? "s`, or a config.json" : "`, or a YAML file"));
}

// ---- Text ----

void print_layers(const char* name, const std::vector<LayerTimes>& layers, const char* unit) {
  if (layers.empty()) return;
  std::cout << name << layers.size() << " layers at " << layers.front().us.x.size() << " points, "
            << points_text(layers.front().us.x) << ' ' << unit << '\n';
}

void print_attention(const AttentionTable& table) {
  double longest_history = 0;
  for (const Curve& curve : table.prefill.parts) {
    longest_history = std::max(longest_history, curve.x.back());
  }
  std::cout << "attention     decodes: " << points_text(table.decode.rows) << " at contexts of "
            << points_text(table.decode.columns)
            << "\n              prompts: " << points_text(table.prefill.x) << " tokens, up to "
            << whole_text(longest_history) << " before them";
  std::size_t num_mixed = 0;
  for (const TimeFamily<Grid>& of_tokens : table.mixed.parts) {
    for (const Grid& beside : of_tokens.parts) num_mixed += beside.us.size();
  }
  if (num_mixed == 0) {
    std::cout << "\n              both at once: not measured; their times are added\n";
  } else {
    std::cout << "\n              both at once: " << whole_text(static_cast<double>(num_mixed))
              << " points, up to "
              << whole_text(table.mixed.parts.front().parts.front().rows.back()) << " decodes\n";
  }
}

void print_times(const char* name, const BlockTimes& times, double error) {
  std::cout << "              " << name << ": launch " << fixed_text(times.launch_us, 2)
            << " us, tile " << fixed_text(times.tile_us, 2) << " us, on a full device "
            << fixed_text(times.busy_tile_us, 2) << " us, a block costs "
            << fixed_text(times.block_tiles, 2) << " tiles";
  if (times.empty_block_us > 0) {
    std::cout << ", an empty one " << fixed_text(times.empty_block_us, 2) << " us";
  }
  std::cout << "; off by " << percent_text(error, 1) << " on average\n";
}

void print_check(const char* name, const FillingCheck& check) {
  if (check.num_steps == 0) return;
  std::cout << "              " << name << ": " << percent_text(check.mean_error, 1) << " over "
            << whole_text(static_cast<double>(check.num_steps)) << " steps ("
            << percent_text(check.mean_error_if_equal, 1)
            << " if all contexts had their mean length)\n";
}

// ---- How blocks fill the device ----

// vLLM runs FlashAttention 2 on compute capability 8 and 12, other kernels on 9 and 10.
bool runs_flash_attention_2(const HardwareSpec& hardware) {
  const double capability = hardware.compute_capability;
  return (capability >= 8 && capability < 9) || (capability >= 12 && capability < 13);
}

std::optional<BlockFilling> find_filling(const AttentionTable& table, const HardwareSpec& hardware,
                                         const DeviceHeads& heads,
                                         const std::vector<UnequalStep>& unequal) {
  std::cout << "filling       ";
  if (!runs_flash_attention_2(hardware) || hardware.num_sms == 0) {
    std::cout << "not known: " << hardware.name
              << " does not run FlashAttention 2, or its num_sms and compute_capability are not "
                 "in the catalogue\n";
    return std::nullopt;
  }
  const auto fit = fit_filling(table, heads, hardware.num_sms);
  if (!fit) {
    std::cout << "not known: too few rows with both decodes and prompts\n";
    return std::nullopt;
  }
  std::cout << "of " << hardware.num_sms << " multiprocessors, fitted to " << fit->num_decode_rows
            << " rows of decodes and " << fit->num_mixed_rows << " of both at once\n";
  print_times("decodes", fit->filling.decode, fit->decode_error);
  print_times("both", fit->filling.mixed, fit->mixed_error);
  if (unequal.empty()) return fit->filling;
  const FillingChecks checks = check_filling(fit->filling, unequal, heads);
  std::cout << "unequal       skew.csv, which the fit did not use; mean |error| of the ratio "
               "to equal lengths:\n";
  print_check("decodes", checks.decode);
  print_check("both", checks.mixed);
  if (checks.helps()) return fit->filling;
  std::cout << "              worse than without this correction: left out\n";
  return std::nullopt;
}

void print_switch(const Profile& profile, const ProfileMeta& meta) {
  if (!profile.filling) return;
  std::cout << "correction    of unequal decodes " << (profile.corrects_lengths ? "on" : "off")
            << (meta.corrects_lengths ? ", as the profile's skew_fit.enabled says\n"
                                      : ": the profile does not say\n");
}

// Prints layers that the model usually has and the profile lacks. Steps are priced without them.
void print_missing(const ProfileTables& tables, const ModelConfig& model) {
  std::string missing;
  const auto look = [&](const char* name, bool is_there) {
    if (!is_there) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  const auto has_dense = [&](const char* name) { return tables.find_dense(name) != nullptr; };
  look("layernorm", has_dense("layernorm") || has_dense("input_layernorm"));
  for (const char* name : {"rotary_emb", "final_layernorm"}) {
    look(name, tables.find_dense(name) != nullptr);
  }
  if (model.has_qk_norm) look("qk_norm", tables.find_dense("qk_norm") != nullptr);
  for (const char* name : {"lm_head", "sampler"}) {
    look(name, tables.find_per_sequence(name) != nullptr);
  }
  if (missing.empty()) return;
  std::cout << "remark        not measured, and counted as 0: " << missing << '\n';
}

// Compares a name given by an option with the folder's own name.
void print_given(const char* option, const std::string& given, const std::string& measured) {
  if (given.empty() || measured.empty()) return;
  std::cout << "remark        " << option << ' ' << printable(given) << ": the folder says "
            << printable(measured) << '\n';
}

// Rejects a profile without the parts that every such model has. Otherwise the error would only
// appear when a scenario names the file.
void require_usable(const std::string& folder, const Profile& profile, const ModelConfig& model,
                    const HardwareSpec& hardware, std::int64_t tp) {
  CostModelConfig config;
  config.tensor_parallel_size = static_cast<std::int32_t>(tp);
  try {
    const ProfileCostModel usable(profile, model, hardware, config);
  } catch (const UnplacedConfigError& error) {
    throw ConfigError(folder + ": " + error.message());
  }
}

std::string folder_name(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::absolute(folder).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

}  // namespace

void import_profile(const ImportOptions& options) {
  const ProfileMeta meta = read_profile_meta(options.folder);
  const std::string hardware_name =
      chosen_name(all_hardware(), options.hardware, meta.hardware, "--hardware", options.folder);
  const std::string model_name =
      chosen_name(all_models(), options.model, meta.model, "--model", options.folder);
  const HardwareSpec hardware = find_hardware(hardware_name, option_location("--hardware"));
  const ModelConfig model = find_served_model(model_name, option_location("--model"));
  const std::int64_t tp = options.tensor_parallel_size;
  try {
    check_tensor_parallel(model, tp);
  } catch (const UnplacedConfigError& error) {
    throw UsageError("--tp: " + error.message());
  }

  Profile profile;
  profile.tables = read_profile_tables(options.folder, meta, tp, model, hardware);
  const std::vector<UnequalStep> unequal = read_unequal_steps(options.folder, tp);
  std::cout << "profile       " << printable(options.folder) << ": " << model.name << " on "
            << hardware.name << ", tensor_parallel_size " << tp
            << (meta.engine.empty() ? "" : ", " + printable(meta.engine)) << '\n';
  print_given("--model", options.model, meta.model);
  print_given("--hardware", options.hardware, meta.hardware);
  print_layers("dense         ", profile.tables.dense, "tokens");
  print_layers("per sequence  ", profile.tables.per_sequence, "sequences");
  if (!profile.tables.experts.empty()) {
    std::cout << "experts       " << points_text(profile.tables.experts.x) << " tokens\n";
    if (has_whole_experts(options.folder, tp)) {
      std::cout << "remark        experts were measured on one device; each of " << tp
                << " counts as taking its share of that time\n";
    }
  }
  if (!profile.tables.allreduce.empty()) {
    std::cout << "all-reduces   " << points_text(profile.tables.allreduce.x) << " bytes\n";
  } else if (tp > 1) {
    std::cout << "all-reduces   from the hardware's link\n";
  }
  print_attention(profile.tables.attention);
  const DeviceHeads heads{model.n_heads / tp, device_kv_heads(model, tp)};
  profile.filling = find_filling(profile.tables.attention, hardware, heads, unequal);
  profile.corrects_lengths = profile.filling && meta.corrects_lengths.value_or(!unequal.empty());
  print_switch(profile, meta);
  print_missing(profile.tables, model);
  require_usable(options.folder, profile, model, hardware, tp);

  if (options.out.empty()) return;
  CostModelFile file;
  file.kind = "profile";
  file.name = options.out;
  file.hardware = hardware.name;
  file.model = model.name;
  file.tensor_parallel_size = tp;
  file.engine = meta.engine;
  file.source = options.source.empty() ? folder_name(options.folder) : options.source;
  file.body = std::make_shared<const Json>(profile_body(profile, model));
  const std::string text = file.to_json();
  replace_file(options.out, text);
  std::cout << "wrote         " << printable(options.out) << ", "
            << whole_text(static_cast<double>(text.size())) << " bytes\n";
}

}  // namespace metronome
