// Measured cost models on disk: JSON files that `metronome calibrate` writes and that
// `cost_model.file` of a scenario names. What all kinds have in common; what belongs to one kind is
// in `body`, which that kind's own code reads and writes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/config/config_node.h"
#include "core/model/model_config.h"
#include "core/scenario/scenario.h"
#include "sim/cost/hardware.h"

namespace metronome {

// By whose code the body is read and written.
constexpr std::string_view kCostModelKinds[] = {"corrected", "fitted", "profile", "replay"};
constexpr int kCostModelFormat = 1;            // changes whenever older files can no longer be read
constexpr std::int64_t kMaxCount = INT64_MAX;  // of steps in a file: counts have no bound

struct CostModelFile {
  std::string kind;      // of kCostModelKinds
  std::string name;      // of the catalogue, or the path, for messages
  std::string hardware;  // of the catalogue where it is there, else what the measurements call it
  std::string model;     // of the catalogue where it is there, else what the measurements call it
  std::int64_t tensor_parallel_size = 1;
  std::string engine;  // that was measured, with its version: "vllm 0.19.0"; may be empty
  std::string source;  // where the measurements come from
  std::string body_place = "body";  // in the file, for messages
  std::shared_ptr<const Json> body;

  // The whole file.
  std::string to_json() const;
};

// Those that come with the program, in alphabetical order.
std::vector<std::string> cost_model_names();

// The catalogue's file of that name, else the file at that path. `where` is where the user wrote
// it. Throws ConfigError: an unknown name, an unreadable or malformed file, another version.
CostModelFile find_cost_model_file(const std::string& name_or_path, const SourceLocation& where);

// `text` is a file's; `name` is shown in messages.
CostModelFile parse_cost_model_file(std::string_view text, const std::string& name);

// The hardware that the file was measured on; only its name is known where the catalogue does not
// have it.
HardwareSpec measured_hardware(const CostModelFile& file);

}  // namespace metronome
