// SPDX-License-Identifier: Apache-2.0
// GPUs by name. The entries come from core/hardware/hardware.yaml, which is built into the program.
// A GPU may also be a YAML file with one entry: docs/guide/gpu_file.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config_node.h"
#include "core/config/config_reader.h"
#include "core/hardware/hardware.h"

namespace metronome {

// The GPU of that name, or of another of its names (hardware_names.h), else the only entry of the
// YAML file at that path. `where` is the user's source location. Throws ConfigError for an unknown
// name (with the GPU that was meant, if one is near) and for an unreadable or malformed file.
HardwareSpec find_hardware(const std::string& name_or_path, const SourceLocation& where);

// The hardware that find_hardware() finds; nullopt where it throws and for an empty name.
std::optional<HardwareSpec> known_hardware(const std::string& name_or_path);

// In the order of the file, which is read once.
const std::vector<HardwareSpec>& all_hardware();

// The keys of an entry, but for `like` (Relatives).
void visit_fields(FieldVisitor& visitor, HardwareSpec& hardware);

// Reads a catalogue, a mapping from names to entries. `file` appears in messages.
std::vector<HardwareSpec> parse_hardware(std::string_view yaml, const std::string& file);

}  // namespace metronome
