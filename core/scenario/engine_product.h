// SPDX-License-Identifier: Apache-2.0
// A reproduced engine, as one folder of engines/ describes it: its policies, and its rules for a
// whole scenario. Core calls these rules and knows no engine by name.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/encoder_cache.h"
#include "core/engine/policies/registry.h"
#include "core/hardware/hardware.h"
#include "core/model/model_config.h"
#include "core/scenario/serve_defaults.h"

namespace metronome {

class ConfigNode;
struct DecisionFormat;  // engines/decisions
struct EngineMetrics;  // engines/metrics
struct EngineSetup;
struct LogDialect;  // engines/log
struct Scenario;
struct ServerArguments;  // engines/arguments
struct ServerFlags;      // engines/flags

// Whether the user gave a value for a key ("engine.max_num_seqs"), not `auto` or null.
using IsGiven = std::function<bool(std::string_view key)>;

// A recipe follows this beside the scenario.
struct RecipeContext {
  IsGiven is_given;
  std::string model;         // as the user wrote it: a repository tells how weights are stored
  std::string version;       // of the engine, as the user wrote it: "1.2.0rc6"; empty: the newest
  bool is_benchmark = true;  // a closed loop of clients, as public sweeps run
  // The user's own command says how the server was started: nobody's script counts, only what the
  // release does by default.
  bool has_own_flags = false;
};

// Memory of one device that states and KV share.
struct StateMemory {
  double free_bytes = 0;
  double request_bytes = 0;  // the states of a request
  double token_bytes = 0;    // KV
};

struct StatePool {
  double bytes = 0;
  std::int64_t max_requests = 0;  // that can run at once
};

// A rule that is absent does nothing.
struct EngineProduct {
  std::string_view name;                      // of its folder: "nano_vllm"
  std::span<const PolicyInfo> policies = {};  // in the order they are listed

  // Settings that its start refuses, before anything is known of the model: calls fail_setting().
  void (*check_settings)(const Scenario&, const ConfigNode& source) = nullptr;
  // Settings that its start refuses with this model: throws UnplacedConfigError.
  void (*check_model)(const Scenario&, const ModelConfig&, std::int64_t max_model_len) = nullptr;
  // Pools with which its start ends: throws UnplacedConfigError. Simulations ask, for the memory of
  // `device`.
  void (*check_pool)(const Scenario&, const ModelConfig&, const EngineSetup&,
                     const std::string& device) = nullptr;
  // It divides memory where recurrent states lie beside the KV blocks. nullptr: each of
  // engine.max_num_seqs requests has states.
  StatePool (*divide_memory)(const Scenario&, const StateMemory&) = nullptr;
  // Its rules for the images of a model that takes some. `max_item_tokens` is those of the largest
  // image. Throws UnplacedConfigError.
  void (*set_images)(const Scenario&, std::int64_t max_item_tokens, EncoderSetup&) = nullptr;
  // Tokens of the longest image that it can ever compute; at most `cache_tokens`, which is what the
  // encoder's cache holds. Throws UnplacedConfigError if its rules for images are not known.
  std::int64_t (*longest_image)(const Scenario&, std::int64_t cache_tokens) = nullptr;
  // The settings that its server chooses for a GPU, whether or not they were given.
  std::vector<ServeDefault> (*serve_defaults)(const Scenario&, const HardwareSpec&,
                                              const IsGiven&) = nullptr;
  // The settings with which people start it: core/scenario/serving_recipe.h. The scenario has a
  // model.
  std::vector<ServeDefault> (*recipe)(const Scenario&, const HardwareSpec&,
                                      const RecipeContext&) = nullptr;

  const ServerArguments* arguments = nullptr;  // of its server; nullptr: they are not known
  const ServerFlags* flags = nullptr;          // of its server; nullptr: they are not known
  const LogDialect* log = nullptr;             // nullptr: its log is not read
  // The names of its metrics; nullptr: it has none that are read.
  const EngineMetrics* metrics = nullptr;
  const DecisionFormat* decisions = nullptr;   // recorded ones; nullptr: it has none
};

// Registers the policies, too. `product` and its policies are copied.
void register_engine(const EngineProduct& product);
std::span<const EngineProduct> all_engines();  // in the order of registration
// The engine that has this policy. A policy of our own has one without a name and rules.
const EngineProduct& product_of(std::string_view policy);

// Throws ConfigError at a key's location in `source`, or else at its section or the document.
[[noreturn]] void fail_setting(const ConfigNode& source, const std::string& key,
                               const std::string& message);

}  // namespace metronome
