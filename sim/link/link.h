// SPDX-License-Identifier: Apache-2.0
// The link between the GPUs of an engine. It gives the times of collectives, from measured tables
// or from a latency and a bandwidth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/hardware/hardware.h"
#include "sim/cost/curve.h"

namespace metronome {

struct CostModelConfig;
class CsvTable;

enum class Collective : std::uint8_t { AllReduce, AllGather, ReduceScatter, AllToAll };
constexpr std::size_t kNumCollectives = 4;

std::string_view to_string(Collective collective);

// Columns `collective` and `launch` of a row. Throw ConfigError for other words than find_link
// names.
Collective collective_of(const CsvTable& csv);
bool is_graph_launch(const CsvTable& csv);

// Measured times of one collective between so many devices. A captured CUDA graph hides the host's
// launch; an eager launch does not.
struct CollectiveTimes {
  Collective collective = Collective::AllReduce;
  std::int64_t num_devices = 2;
  bool is_graph = true;
  Curve us;  // by bytes of the whole result of a device; of the input for reduce-scatter
};

// A kind of link. Devices that it joins reach each other directly.
struct LinkSpec {
  std::string name;
  std::int64_t max_devices = 0;        // that one such link joins; 0 = not known
  std::vector<CollectiveTimes> times;  // empty: from the two below
  double latency_us = 0;               // of an all-reduce
  double bandwidth = 0;                // bytes/s of a device in each direction; 0: no link
};

// The link of that name, else the table in the CSV file at that path: columns collective
// (all_reduce, all_gather, reduce_scatter, all_to_all), devices, bytes, time_us, and launch (graph,
// eager; graph where it is missing). Throws UnplacedConfigError about `key` for an unknown name,
// and ConfigError for a malformed table.
LinkSpec find_link(const std::string& name_or_path, const std::string& key);

// The names of built-in links, and what each joins.
struct LinkName {
  std::string_view name;
  std::int64_t max_devices;
  std::string_view description;
};
const std::vector<LinkName>& all_links();

// Collectives between the devices of one engine.
class Link {
 public:
  // `network` joins hosts of `link.max_devices` devices each, if num_devices is more. Throws
  // UnplacedConfigError if neither joins so many.
  Link(const LinkSpec& link, const LinkSpec* network, std::int64_t num_devices, double factor);

  // Microseconds of a collective of `bytes` (see CollectiveTimes::us). 0 with one device. Sets
  // `is_outside` beyond the most bytes or devices that were measured, else leaves it alone.
  double us(Collective collective, double bytes, bool is_graph, bool& is_outside) const;

 private:
  // Measured times between `num_devices`: those of the nearest numbers of devices below and above.
  struct Nearest {
    std::size_t below = 0;  // of LinkSpec::times
    std::size_t above = 0;
    double share = 0;   // of `above`
    double factor = 1;  // of another collective, which stands in
    bool is_outside = false;
  };
  struct Level {
    LinkSpec spec;
    std::int64_t num_devices = 1;
    Nearest nearest[kNumCollectives][2] = {};  // by collective and is_graph

    void resolve();  // fills `nearest`
    Nearest find(Collective collective, bool is_graph) const;
    double us(Collective collective, double bytes, bool is_graph, bool& is_outside) const;
  };
  Level inner_;  // within a host
  Level outer_;  // between hosts
  double factor_;
};

// The link of a scenario's GPUs: cost_model.link, else the collectives `measured` with the step
// times of a file, else the hardware's.
Link make_link(const CostModelConfig& config, const HardwareSpec& hardware,
               const std::vector<CollectiveTimes>& measured = {});

}  // namespace metronome
