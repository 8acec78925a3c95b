// SPDX-License-Identifier: Apache-2.0
// The `client` section of a scenario: what belongs to the program that sends the requests and to
// the host between it and the engine, not to the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace metronome {

class FieldVisitor;
struct FrontEnd;
struct Scenario;
struct WorkloadConfig;

// The simulated time between a client's send and the engine's view of a request.
struct FrontEndConfig {
  double fixed_ms = 0;
  double us_per_prompt_token = 0;
};

// A client whose figures are known.
struct ClientPreset {
  std::string_view name;
  FrontEndConfig frontend = {};
  double shortest_share = 1;
  double output_scatter = 0;
  std::int64_t full_scatter_clients = 1;  // fewer in a closed loop scatter less, in proportion
  std::string_view source;  // which program on which host, and what its figures were fitted to
};
// By ClientConfig::preset; the first one is no client, whose requests reach the engine at once.
std::span<const ClientPreset> client_presets();

struct ClientConfig {
  int preset = 0;  // index into client_presets()
  // Absent: the preset's.
  std::optional<double> fixed_ms;
  std::optional<double> us_per_prompt_token;
  std::optional<double> shortest_share;  // of prompts and outputs of a fixed length
  std::optional<double> output_scatter;  // of outputs of a fixed length, to either side
  std::int64_t distinct_prompts = 0;     // of a fixed length, sent again and again; 0: all differ

  // Whether it says anything of a front end. Then cost_model.frontend says nothing.
  bool has_front_end() const;
};

void visit_fields(FieldVisitor& visitor, ClientConfig& config);

// The front end of `client`, else of `cost_model`.
FrontEnd front_end_of(const Scenario& scenario);

// The workload with the lengths that the client asks for. Lengths that are not fixed stay.
WorkloadConfig as_sent(const WorkloadConfig& workload, const ClientConfig& client);

}  // namespace metronome
