// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/run_choice.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>

#include "core/config/config_reader.h"
#include "core/scenario/scenario.h"
#include "cpu/cpu_backend.h"
#include "cpu/cpu_config.h"
#include "fleet/fleet_run.h"
#include "fleet/router_registry.h"
#include "gpu/engine/cuda_backend.h"
#include "gpu/plan/cuda_config.h"
#include "tools/commands/cli.h"

namespace metronome {

std::ostream& text_stream(bool is_quiet, bool wants_json) {
  static std::ostream nowhere(nullptr);
  if (is_quiet) return nowhere;
  return wants_json ? std::cerr : std::cout;
}

int default_jobs() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

std::uint64_t parse_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw UsageError("--seed: '" + text + "' is not a seed; allowed: 0 to 9223372036854775807");
  }
  return seed;
}

void register_backends() {
  register_backend_section(std::make_unique<CpuConfig>());
  register_backend_section(std::make_unique<CudaConfig>());
  register_routers();
}

std::string fetched_models_folder() {
  const auto variable = [](const char* name) -> std::string {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (const std::string folder = variable("METRONOME_MODELS"); !folder.empty()) return folder;
  std::string data = variable("XDG_DATA_HOME");
  if (data.empty()) data = variable("HOME") + "/.local/share";
  return data + "/metronome/models";
}

void check_backend(const std::string& name) {
  const auto known = std::find(std::begin(kBackendNames), std::end(kBackendNames), name);
  if (known == std::end(kBackendNames)) {
    throw UsageError("--backend: '" + name + "' is not a backend" +
                     did_you_mean(name, kBackendNames) + "; allowed: " + join_names(kBackendNames));
  }
}

std::unique_ptr<Backend> make_backend(const std::string& name, std::int32_t num_threads) {
  if (name == "cpu") return std::make_unique<CpuBackend>();
  if (name != "cuda") return std::make_unique<FleetBackend>(num_threads);
  std::unique_ptr<Backend> cuda = make_cuda_backend();
  if (cuda == nullptr) {
    throw UsageError(
        "--backend: this build has no CUDA executor (tools/build cuda builds it, with the CUDA "
        "toolkit); allowed: sim, cpu");
  }
  return cuda;
}

std::string default_folder(const std::string& scenario, const Backend& backend,
                           const std::vector<Scenario>& variants, bool has_all) {
  return default_folder(scenario, backend.is_measured() ? backend.name() : std::string_view(),
                        variants, has_all);
}

std::string default_folder(const std::string& scenario, std::string_view measured_by,
                           const std::vector<Scenario>& variants, bool has_all) {
  namespace fs = std::filesystem;
  fs::path below;
  bool is_below = false;
  const fs::path whole = fs::absolute(scenario).lexically_normal();
  for (const fs::path& part : whole.parent_path()) {
    if (part == "scenarios") {
      is_below = true;
      below.clear();
    } else if (is_below) {
      below /= part;
    }
  }
  std::string folder = ("results" / below / whole.stem()).string();
  if (!measured_by.empty()) folder += "." + std::string(measured_by);
  if (has_all) return folder;
  for (const Scenario& variant : variants) folder += "." + variant.name;
  return folder;
}

}  // namespace metronome
