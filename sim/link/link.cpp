// SPDX-License-Identifier: Apache-2.0
#include "sim/link/link.h"

#include <algorithm>
#include <fmt/core.h>
#include <optional>
#include <tuple>
#include <utility>

#include "core/base/error.h"
#include "core/base/real.h"
#include "core/config/catalogue.h"
#include "core/scenario/cost_model_config.h"
#include "sim/cost/csv_table.h"

namespace metronome {

// The files of sim/link/presets/.
extern const std::string_view kLinkNvlink3;
extern const std::string_view kLinkNvlink4;
extern const std::string_view kLinkNvlink5;
extern const std::string_view kLinkNvlink5Nvl72;
extern const std::string_view kLinkPcie4;
extern const std::string_view kLinkPcie5;
extern const std::string_view kLinkPcie5Host;

namespace {

constexpr std::string_view kCollectives[] = {"all_reduce", "all_gather", "reduce_scatter",
                                             "all_to_all"};

struct Preset {
  LinkName name;
  std::string_view csv;
};

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {{"nvlink3", 8, "NVLink 3 with NVSwitch: A100 SXM"}, kLinkNvlink3},
      {{"nvlink4", 8, "NVLink 4 with NVSwitch: H100 SXM, H200"}, kLinkNvlink4},
      {{"nvlink5", 8, "NVLink 5 with NVSwitch: B200, B300"}, kLinkNvlink5},
      {{"nvlink5-nvl72", 72, "NVLink 5 of a rack: GB200, GB300 NVL72"}, kLinkNvlink5Nvl72},
      {{"pcie4", 8, "PCIe 4 x16 over host bridges: L40S"}, kLinkPcie4},
      {{"pcie5", 8, "PCIe 5 x16: RTX PRO 6000, 38 GB/s"}, kLinkPcie5},
      {{"pcie5-host", 8, "the same on a host that reaches 15 GB/s"}, kLinkPcie5Host},
  };
  return all;
}

std::int64_t devices_of(const CsvTable& csv) {
  const double devices = csv.amount("devices");
  if (devices < 2 || devices > 1024) csv.fail("devices", "allowed: 2 to 1024");
  return static_cast<std::int64_t>(devices);
}

// Rows are sorted by collective, devices, launch and bytes.
std::vector<CollectiveTimes> times_of(CsvTable& csv) {
  std::vector<std::tuple<Collective, std::int64_t, bool, double, double>> rows;
  while (csv.next()) {
    rows.emplace_back(collective_of(csv), devices_of(csv), is_graph_launch(csv),
                      csv.amount("bytes"), csv.time_us("time_us"));
  }
  std::sort(rows.begin(), rows.end());
  std::vector<CollectiveTimes> times;
  for (const auto& [collective, devices, graph, bytes, us] : rows) {
    const bool goes_on = !times.empty() && times.back().collective == collective &&
                         times.back().num_devices == devices && times.back().is_graph == graph;
    if (!goes_on) times.push_back({collective, devices, graph, {}});
    Curve& curve = times.back().us;
    const auto row = [&, devices_ = devices, bytes_ = bytes] {
      return fmt::format("{} devices, {} bytes", devices_, static_cast<std::int64_t>(bytes_));
    };
    if (!curve.empty() && curve.x.back() == bytes) csv.fail("bytes", "twice: " + row());
    if (!curve.empty() && us < curve.us.back()) {
      csv.fail("time_us", row() +
                              " take less time than fewer bytes; allowed: times that do not "
                              "fall as bytes grow");
    }
    curve.x.push_back(bytes);
    curve.us.push_back(us);
  }
  if (times.empty()) csv.fail("", "has no rows; allowed: times of collectives");
  return times;
}

LinkSpec read_table(CsvTable& csv, const std::string& name, std::int64_t max_devices) {
  LinkSpec link;
  link.name = name;
  link.max_devices = max_devices;
  link.times = times_of(csv);
  const auto is_all_reduce = [](const CollectiveTimes& times) {
    return times.collective == Collective::AllReduce;
  };
  if (std::none_of(link.times.begin(), link.times.end(), is_all_reduce)) {
    csv.fail("collective", "has no all_reduce; allowed: a table with all-reduces");
  }
  for (const CollectiveTimes& times : link.times) {
    link.max_devices = std::max(link.max_devices, times.num_devices);
  }
  return link;
}

const std::vector<std::string> kColumns = {"collective", "devices", "bytes", "time_us"};

}  // namespace

std::string_view to_string(Collective collective) {
  return kCollectives[static_cast<std::size_t>(collective)];
}

Collective collective_of(const CsvTable& csv) {
  const auto found =
      std::find(std::begin(kCollectives), std::end(kCollectives), csv.text("collective"));
  if (found == std::end(kCollectives)) {
    csv.fail("collective", quote_for_message(csv.text("collective")) +
                               " is unknown; allowed: all_reduce, all_gather, reduce_scatter, "
                               "all_to_all");
  }
  return static_cast<Collective>(found - std::begin(kCollectives));
}

bool is_graph_launch(const CsvTable& csv) {
  if (!csv.has("launch") || csv.text("launch") == "graph") return true;
  if (csv.text("launch") == "eager") return false;
  csv.fail("launch", quote_for_message(csv.text("launch")) + " is unknown; allowed: graph, eager");
}

const std::vector<LinkName>& all_links() {
  static const std::vector<LinkName> names = [] {
    std::vector<LinkName> all;
    for (const Preset& preset : presets()) all.push_back(preset.name);
    return all;
  }();
  return names;
}

LinkSpec find_link(const std::string& name_or_path, const std::string& key) {
  std::vector<std::string_view> names;
  for (const Preset& preset : presets()) {
    names.push_back(preset.name.name);
    if (preset.name.name != name_or_path) continue;
    CsvTable csv(preset.csv, name_or_path + ".csv", kColumns);
    return read_table(csv, name_or_path, preset.name.max_devices);
  }
  if (!path_exists(name_or_path) || is_folder(name_or_path)) {
    throw UnplacedConfigError(key, unknown_entry_message(names, name_or_path,
                                                         "the path of a CSV file with times of "
                                                         "collectives"));
  }
  CsvTable csv(name_or_path, kColumns);
  return read_table(csv, name_or_path, 0);
}

Link::Link(const LinkSpec& link, const LinkSpec* network, std::int64_t num_devices, double factor)
    : inner_{link, num_devices}, factor_(factor) {
  if (num_devices == 1) return;
  const auto fail = [&](const std::string& what, const std::string& allowed) {
    throw UnplacedConfigError(
        "cost_model.tensor_parallel_size",
        fmt::format("{} cannot be used: {}; allowed: {}", num_devices, what, allowed));
  };
  if (link.times.empty() && link.bandwidth <= 0) {
    fail(link.name + " has no link between devices", "1, or a cost_model.link");
  }
  if (link.max_devices == 0 || num_devices <= link.max_devices) {
    if (network != nullptr) {
      throw UnplacedConfigError("cost_model.network", "has no effect: " + link.name +
                                                          " joins all devices; allowed: empty");
    }
    inner_.resolve();
    return;
  }
  const std::string joins = fmt::format("{} joins {} devices", link.name, link.max_devices);
  if (network == nullptr) {
    fail(joins, "at most that, or a cost_model.network between hosts");
  }
  if (num_devices % link.max_devices != 0) {
    fail(joins + " of a host", "a multiple of that");
  }
  outer_ = {*network, num_devices / link.max_devices};
  inner_.num_devices = link.max_devices;
  if (network->max_devices > 0 && outer_.num_devices > network->max_devices) {
    fail(fmt::format("{} joins {} hosts", network->name, network->max_devices),
         fmt::format("at most {}", network->max_devices * link.max_devices));
  }
  inner_.resolve();
  outer_.resolve();
}

// In a ring each device sends (n - 1) / n of the bytes; in an all-reduce twice. Where a table lacks
// a collective, an all-reduce is a reduce-scatter and an all-gather of equal times, and an
// all-to-all sends as much as an all-gather.
double Link::Level::us(Collective collective, double bytes, bool is_graph, bool& is_outside) const {
  if (num_devices <= 1) return 0;
  if (spec.times.empty()) {
    const double n = real(num_devices);
    const double rounds = collective == Collective::AllReduce ? 2 : 1;
    return spec.latency_us + rounds * (n - 1) / n * bytes / spec.bandwidth * 1e6;
  }
  const Nearest& near = nearest[static_cast<std::size_t>(collective)][is_graph ? 1 : 0];
  if (near.is_outside) is_outside = true;
  const auto at = [&](std::size_t i) {
    // Fewer bytes than were measured take the time of the latency, as the first do.
    const Curve& curve = spec.times[i].us;
    return curve.at(std::max(bytes, curve.x.front()), is_outside);
  };
  const double below = at(near.below);
  if (near.share == 0) return near.factor * below;
  return near.factor * (below * (1 - near.share) + at(near.above) * near.share);
}

void Link::Level::resolve() {
  if (num_devices <= 1 || spec.times.empty()) return;
  for (std::size_t i = 0; i < kNumCollectives; ++i) {
    for (const bool is_graph : {false, true}) {
      nearest[i][is_graph ? 1 : 0] = find(static_cast<Collective>(i), is_graph);
    }
  }
}

Link::Nearest Link::Level::find(Collective collective, bool is_graph) const {
  const auto around = [&](bool graph) {
    std::pair<std::optional<std::size_t>, std::optional<std::size_t>> found;
    for (std::size_t i = 0; i < spec.times.size(); ++i) {
      const CollectiveTimes& times = spec.times[i];
      if (times.collective != collective || times.is_graph != graph) continue;
      if (times.num_devices <= num_devices) found.first = i;
      if (times.num_devices >= num_devices && !found.second) found.second = i;
    }
    return found;
  };
  auto [below, above] = around(is_graph);
  if (!below && !above) std::tie(below, above) = around(!is_graph);
  if (!below && !above) {
    METRONOME_CHECK(collective != Collective::AllReduce, "a table has all-reduces");
    Nearest reduce = find(Collective::AllReduce, is_graph);
    reduce.factor = 0.5;
    return reduce;
  }
  if (!below || !above) {
    const std::size_t only = below ? *below : *above;
    return {.below = only, .above = only, .is_outside = true};
  }
  if (*below == *above) return {.below = *below, .above = *above};
  const std::int64_t fewer = spec.times[*below].num_devices;
  const std::int64_t more = spec.times[*above].num_devices;
  return {
      .below = *below, .above = *above, .share = real(num_devices - fewer) / real(more - fewer)};
}

// Between hosts: a collective within each host, and one of each device with its peers in the other
// hosts, which takes the device's share of the bytes.
double Link::us(Collective collective, double bytes, bool is_graph, bool& is_outside) const {
  if (outer_.num_devices <= 1) return factor_ * inner_.us(collective, bytes, is_graph, is_outside);
  // Of an all-to-all each device sends its own bytes to the other hosts.
  const double share =
      collective == Collective::AllToAll ? bytes : bytes / real(inner_.num_devices);
  double us = outer_.us(collective, share, is_graph, is_outside);
  if (collective == Collective::AllReduce) {
    us += inner_.us(Collective::ReduceScatter, bytes, is_graph, is_outside) +
          inner_.us(Collective::AllGather, bytes, is_graph, is_outside);
  } else {
    us += inner_.us(collective, bytes, is_graph, is_outside);
  }
  return factor_ * us;
}

Link make_link(const CostModelConfig& config, const HardwareSpec& hardware,
               const std::vector<CollectiveTimes>& measured) {
  LinkSpec link;
  if (!config.link.empty()) {
    link = find_link(config.link, "cost_model.link");
  } else if (!measured.empty()) {
    link.name = "the cost model file";
    link.times = measured;
  } else if (!hardware.link.empty()) {
    link = find_link(hardware.link, "hardware");
  } else {
    link.name = hardware.name;
    link.latency_us = hardware.allreduce_latency_us;
    link.bandwidth = hardware.link_bandwidth;
    if (const std::int64_t mesh = hardware.mesh_devices; mesh > 1) {
      const std::int64_t num_joined = std::min<std::int64_t>(config.tensor_parallel_size, mesh);
      link.bandwidth *= real(num_joined - 1) / real(mesh - 1);
      link.max_devices = mesh;
    }
  }
  std::optional<LinkSpec> network;
  if (!config.network.empty()) network = find_link(config.network, "cost_model.network");
  return {link, network ? &*network : nullptr, config.tensor_parallel_size, config.link_factor};
}

}  // namespace metronome
