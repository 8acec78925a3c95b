// SPDX-License-Identifier: Apache-2.0
// Times of collectives: known answers of tables and forms, hosts joined by a network, and what a
// link refuses.
#include <fstream>
#include <string>

#include "core/base/error.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/scenario/cost_model_config.h"
#include "sim/link/link.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/scratch_folder.h"

namespace metronome::testing::TEST_FILE {
namespace {

constexpr double kMiB = 1 << 20;

double us(const Link& link, Collective collective, double bytes, bool is_graph = true) {
  bool is_outside = false;
  const double time = link.us(collective, bytes, is_graph, is_outside);
  CHECK_FALSE(is_outside);
  return time;
}

LinkSpec form(double latency_us, double bandwidth, std::int64_t max_devices = 0) {
  LinkSpec link;
  link.name = "form";
  link.max_devices = max_devices;
  link.latency_us = latency_us;
  link.bandwidth = bandwidth;
  return link;
}

std::string write_table(const ScratchFolder& folder, const std::string& text) {
  const std::string path = folder.path() + "/link.csv";
  std::ofstream(path) << text;
  return path;
}

}  // namespace

TEST_CASE("a link of one device costs nothing", "[sim][link]") {
  CHECK(us(Link(form(5, 1e9), nullptr, 1, 1), Collective::AllReduce, 1e9) == 0);
  CHECK(us(Link(form(0, 0), nullptr, 1, 1), Collective::AllToAll, 1e9) == 0);
}

TEST_CASE("a form has a latency and sends each byte of the others", "[sim][link]") {
  // Four devices: 3/4 of 80 MB at 100 GB/s is 600 us; an all-reduce sends it twice.
  const Link link(form(20, 100e9), nullptr, 4, 1);
  CHECK(us(link, Collective::AllReduce, 80e6) == Approx(1220));
  CHECK(us(link, Collective::AllGather, 80e6) == Approx(620));
  CHECK(us(link, Collective::ReduceScatter, 80e6) == Approx(620));
  CHECK(us(link, Collective::AllToAll, 80e6) == Approx(620));
  CHECK(us(Link(form(20, 100e9), nullptr, 4, 2.5), Collective::AllReduce, 80e6) == Approx(3050));
}

TEST_CASE("in a mesh of eight each device has seven links", "[sim][link]") {
  const auto mesh = [](std::int32_t num_devices) {
    CostModelConfig config;
    config.tensor_parallel_size = num_devices;
    return make_link(config, find_hardware("mi300x", {}));
  };
  // 15 us, and a ring over (n - 1) links of 64 GB/s: 2 (n - 1) / n of the bytes.
  for (const std::int32_t n : {2, 4, 8}) {
    CHECK(us(mesh(n), Collective::AllReduce, 64e6) == Approx(15 + 2.0 / n * 1000));
  }
  CHECK(error_of<UnplacedConfigError>([&] { mesh(16); }) ==
        "cost_model.tensor_parallel_size: 16 cannot be used: mi300x joins 8 devices; allowed: at "
        "most that, or a cost_model.network between hosts");
}

TEST_CASE("a table is interpolated in bytes and in devices", "[sim][link]") {
  const ScratchFolder folder;
  const LinkSpec spec =
      find_link(write_table(folder,
                            "# measured here\n"
                            "bytes,collective,time_us,devices,launch\n"
                            "1000,all_reduce,10,2,graph\n3000,all_reduce,30,2,graph\n"
                            "1000,all_reduce,50,2,eager\n3000,all_reduce,50,2,eager\n"
                            "1000,all_reduce,20,8,graph\n3000,all_reduce,80,8,graph\n"
                            "1000,all_to_all,7,2,graph\n"),
                "cost_model.link");
  CHECK(spec.max_devices == 8);
  const Link two(spec, nullptr, 2, 1);
  CHECK(us(two, Collective::AllReduce, 1000) == Approx(10));
  CHECK(us(two, Collective::AllReduce, 2000) == Approx(20));
  CHECK(us(two, Collective::AllReduce, 2000, false) == Approx(50));
  CHECK(us(two, Collective::AllToAll, 1000, false) == Approx(7));  // measured as a graph only
  CHECK(us(two, Collective::AllGather, 2000) == Approx(10));       // half an all-reduce
  // Five devices are half way from two to eight.
  CHECK(us(Link(spec, nullptr, 5, 1), Collective::AllReduce, 2000) == Approx(35));
  bool is_outside = false;
  CHECK(two.us(Collective::AllReduce, 5000, true, is_outside) == Approx(50));
  CHECK(is_outside);
  // Fewer bytes than measured take the time of the latency, which was.
  CHECK(us(two, Collective::AllReduce, 1) == Approx(10));
  is_outside = false;
  CHECK(Link(spec, nullptr, 8, 1).us(Collective::AllToAll, 1000, true, is_outside) == Approx(7));
  CHECK(is_outside);  // more devices than measured
}

TEST_CASE("without captured launches a table's eager ones count", "[sim][link]") {
  const ScratchFolder folder;
  const LinkSpec spec = find_link(write_table(folder,
                                              "collective,devices,launch,bytes,time_us\n"
                                              "all_reduce,2,eager,1000,40\n"
                                              "all_reduce,2,eager,2000,60\n"),
                                  "cost_model.link");
  const Link two(spec, nullptr, 2, 1);
  CHECK(us(two, Collective::AllReduce, 1500) == Approx(50));
  CHECK(us(two, Collective::AllGather, 1500) == Approx(25));
}

TEST_CASE("between hosts a device meets its peers", "[sim][link]") {
  // Two hosts of four. In a host: reduce-scatter and all-gather of 3/4 of 80 MB at 100 GB/s, and 1
  // us each. Between: an all-reduce of 20 MB over two at 10 GB/s, and 30 us.
  const LinkSpec inner = form(1, 100e9, 4);
  const LinkSpec network = form(30, 10e9);
  const Link link(inner, &network, 8, 1);
  CHECK(us(link, Collective::AllReduce, 80e6) == Approx(2 * 601 + 30 + 2000));
  CHECK(us(link, Collective::AllGather, 80e6) == Approx(601 + 30 + 1000));
  // Each device sends half of its own bytes to the other host.
  CHECK(us(link, Collective::AllToAll, 80e6) == Approx(601 + 30 + 4000));
}

TEST_CASE("built-in links are as fast as their kind", "[sim][link]") {
  struct Expected {
    const char* name;
    double least_us;  // of an all-reduce of 64 MiB on two devices
    double most_us;
  };
  // The bytes go over the link once in each direction: no faster than its data sheet.
  const double bytes = 64 * kMiB;
  for (const Expected& expected : {Expected{"nvlink3", bytes / 300e3, bytes / 150e3},
                                   {"nvlink4", bytes / 450e3, bytes / 220e3},
                                   {"nvlink5", bytes / 900e3, bytes / 400e3},
                                   {"nvlink5-nvl72", bytes / 900e3, bytes / 400e3},
                                   {"pcie4", bytes / 32e3, bytes / 15e3},
                                   {"pcie5", bytes / 64e3, bytes / 30e3},
                                   {"pcie5-host", bytes / 64e3, bytes / 12e3}}) {
    CAPTURE(expected.name);
    const LinkSpec spec = find_link(expected.name, "cost_model.link");
    const double time = us(Link(spec, nullptr, 2, 1), Collective::AllReduce, bytes);
    CHECK(time > expected.least_us);
    CHECK(time < expected.most_us);
  }
  CHECK(all_links().size() == 7);
}

TEST_CASE("a link says what it refuses", "[sim][link]") {
  const auto error_of_devices = [](const LinkSpec& link, const LinkSpec* network,
                                   std::int64_t devices) {
    return error_of<UnplacedConfigError>([&] { Link(link, network, devices, 1); });
  };
  const LinkSpec nvlink = find_link("nvlink4", "cost_model.link");
  CHECK(error_of_devices(nvlink, nullptr, 32) ==
        "cost_model.tensor_parallel_size: 32 cannot be used: nvlink4 joins 8 devices; allowed: at "
        "most that, or a cost_model.network between hosts");
  const LinkSpec network = form(30, 50e9);
  CHECK(error_of_devices(nvlink, &network, 12) ==
        "cost_model.tensor_parallel_size: 12 cannot be used: nvlink4 joins 8 devices of a host; "
        "allowed: a multiple of that");
  CHECK(error_of_devices(nvlink, &network, 8) ==
        "cost_model.network: has no effect: nvlink4 joins all devices; allowed: empty");
  CHECK(error_of_devices(form(0, 0), nullptr, 2) ==
        "cost_model.tensor_parallel_size: 2 cannot be used: form has no link between devices; "
        "allowed: 1, or a cost_model.link");
  CHECK(error_of<UnplacedConfigError>([] {
          find_link("nvlink6", "cost_model.link");
        }).starts_with("cost_model.link: unknown name 'nvlink6' (did you mean 'nvlink"));
  CHECK(error_of<UnplacedConfigError>([] { find_link("none/link.csv", "cost_model.link"); }) ==
        "cost_model.link: no such file: none/link.csv; allowed: a name of the catalogue, or the "
        "path of a CSV file with times of collectives");

  const ScratchFolder folder;
  const auto error_of_table = [&](const std::string& rows) {
    const std::string path = write_table(folder, "collective,devices,bytes,time_us\n" + rows);
    return error_of<ConfigError>([&] { find_link(path, "cost_model.link"); });
  };
  CHECK(error_of_table("all_reduce,2,1000,10\nall_reduce,2,2000,9\n")
            .ends_with("time_us: 2 devices, 2000 bytes take less time than fewer bytes; allowed: "
                       "times that do not fall as bytes grow"));
  CHECK(error_of_table("all_reduce,2,1000,10\nall_reduce,2,1000,10\n")
            .ends_with("bytes: twice: 2 devices, 1000 bytes"));
  CHECK(error_of_table("broadcast,2,1000,10\n")
            .ends_with("link.csv:2: collective: 'broadcast' is unknown; allowed: all_reduce, "
                       "all_gather, reduce_scatter, all_to_all"));
  CHECK(error_of_table("all_gather,2,1000,10\n")
            .ends_with("collective: has no all_reduce; allowed: a table with all-reduces"));
  CHECK(error_of_table("all_reduce,1,1000,10\n").ends_with("devices: allowed: 2 to 1024"));
}

}  // namespace metronome::testing::TEST_FILE
