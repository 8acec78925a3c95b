// SPDX-License-Identifier: Apache-2.0
// Measured cost models on disk: JSON files that `metronome calibrate` writes and that a scenario
// names as `cost_model.file`. This header holds what all kinds share. The code of each kind reads
// and writes its part, `body`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/config/config_node.h"
#include "core/hardware/hardware.h"
#include "core/model/model_config.h"

namespace metronome {

// The code of the kind reads and writes the body.
constexpr std::string_view kCostModelKinds[] = {"corrected", "fitted", "operators", "profile",
                                                "replay"};
constexpr int kCostModelFormat = 1;            // changes when older files become unreadable
constexpr std::int64_t kMaxCount = INT64_MAX;  // of steps in a file; counts have no real bound

struct CostModelFile {
  std::string kind;      // one of kCostModelKinds
  std::string name;      // catalogue name or path, for messages
  std::string hardware;  // catalogue name, or the name the measurements use
  std::string model;     // catalogue name, or the name the measurements use
  std::int64_t tensor_parallel_size = 1;
  std::string engine;               // measured engine with its version: "vllm 0.19.0"; may be empty
  std::string source;               // origin of the measurements
  std::string body_place = "body";  // in the file, for messages
  std::shared_ptr<const Json> body;

  // The whole file.
  std::string to_json() const;
};

// The files built into the program, in alphabetical order.
std::vector<std::string> cost_model_names();

// The catalogue file of that name, else the file at that path. `where` is the user's source
// location, and `key` what it is called there. Throws ConfigError for an unknown name, an
// unreadable or malformed file, or another version.
CostModelFile find_cost_model_file(const std::string& name_or_path, const SourceLocation& where,
                                   const std::string& key = "cost_model.file");

// `text` is the content of the file; `name` appears in messages.
CostModelFile parse_cost_model_file(std::string_view text, const std::string& name);

// The hardware of the measurements. Only its name is known if the catalogue does not contain it.
HardwareSpec measured_hardware(const CostModelFile& file);

}  // namespace metronome
