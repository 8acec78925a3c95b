// SPDX-License-Identifier: Apache-2.0
// GPUs under other names than those of the catalogue, and those that a user describes.
#include <memory>
#include <string>
#include <utility>

#include "core/hardware/hardware_catalogue.h"
#include "core/hardware/hardware_names.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/scratch_folder.h"

namespace metronome::TEST_FILE {
namespace {

using testing::error_of;

// Names, and the GPU of each.
const std::pair<const char*, const char*> kWanted[] = {
    {"h100", "h100-sxm"},
    {"h100_sxm", "h100-sxm"},
    {"H-200", "h200"},
    {"NVIDIA H100 80GB HBM3", "h100-sxm"},
    {"NVIDIA H100 PCIe", "h100-pcie"},
    {"NVIDIA H100 NVL", "h100-nvl"},
    {"NVIDIA GH200 480GB", "gh200"},
    {"NVIDIA GH200 144G HBM3e", "gh200-144gb"},
    {"a100", "a100-80gb"},
    {"a100-40", "a100-40gb"},
    {"a100 80gb", "a100-80gb"},
    {"NVIDIA A100-SXM4-80GB", "a100-80gb"},
    {"NVIDIA A100 80GB PCIe", "a100-pcie"},
    {"NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"},
    {"NVIDIA GB10", "gb10"},
    {"dgx-spark", "gb10"},
    {"DGX Spark", "gb10"},
    {"spark", "gb10"},
    {"NVIDIA GeForce RTX 3090", "rtx-3090"},
    {"rtx3090", "rtx-3090"},
    {"3090", "rtx-3090"},
    {"3090ti", "rtx-3090-ti"},
    {"rtx 5060ti", "rtx-5060-ti"},
    {"NVIDIA GeForce RTX 4070 Ti SUPER", "rtx-4070-ti-super"},
    {"rtx_pro_6000", "rtx-pro-6000"},
    {"NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"},
    {"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000-workstation"},
    {"NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-max-q"},
    {"NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"},
    {"NVIDIA RTX A6000", "rtx-a6000"},
    {"a6000", "rtx-a6000"},
    {"Quadro RTX 8000", "rtx-8000"},
    {"Tesla T4", "t4"},
    {"tesla t4", "t4"},
    {"Tesla V100-SXM2-32GB", "v100-32gb"},
    {"Tesla V100-PCIE-16GB", "v100-pcie-16gb"},
    {"v100", "v100-32gb"},
    {"AMD Instinct MI300X VF", "mi300x"},
    {"instinct mi300x", "mi300x"},
    {"mi355", "mi355x"},
    {"NVIDIA Thor", "thor"},
    {"jetson-agx-thor", "thor"},
    {"Jetson AGX Orin", "agx-orin-64gb"},
    {"NVIDIA GeForce RTX 2080 Ti", "rtx-2080-ti"},
    {"2080ti", "rtx-2080-ti"},
    {"NVIDIA TITAN RTX", "titan-rtx"},
    {"NVIDIA RTX 5880 Ada Generation", "rtx-5880-ada"},
    {"AMD Radeon RX 7900 XTX", "rx-7900-xtx"},
    {"7900xtx", "rx-7900-xtx"},
    {"AMD Radeon AI PRO R9700", "radeon-ai-pro-r9700"},
    {"r9700", "radeon-ai-pro-r9700"},
    {"Intel Arc Pro B60", "arc-pro-b60"},
    {"arc-b60", "arc-pro-b60"},
    {"gaudi3", "gaudi-3"},
    {"Intel Gaudi 3", "gaudi-3"},
    {"NVIDIA A2", "a2"},
    {"mi100", "mi100"},
    {"b100", "b100"},
};

TEST_CASE("GPUs have the names that drivers print and people type", "[catalogue]") {
  for (const auto& [name, gpu] : kWanted) {
    INFO(name);
    CHECK(find_hardware(name, {}).name == gpu);
  }
  for (const HardwareSpec& gpu : all_hardware()) {
    INFO(gpu.name);
    CHECK(hardware_name(gpu.name) == gpu.name);
    CHECK(find_hardware("NVIDIA " + gpu.name, {}) == gpu);
  }
  // Another number is another GPU, and so is another of few letters.
  for (const char* none : {"", "rtx", "h1000", "h201", "rtx-4091", "c100", "gb100", "rtx-6000",
                           "NVIDIA GeForce RTX 4090 Laptop GPU", "gtx-1080", "m40", "p100"}) {
    INFO(none);
    CHECK(hardware_name(none).empty());
    CHECK(nearest_hardware(none).empty());
  }
  CHECK(nearest_hardware("rtz-3090") == "rtx-3090");
  CHECK(nearest_hardware("h100-smx") == "h100-sxm");
  CHECK(nearest_hardware("rtx-4070-ti-supper") == "rtx-4070-ti-super");
}

TEST_CASE("a GPU has the shares and overheads of a relative, not its peaks", "[catalogue]") {
  const testing::ScratchFolder folder;
  const std::string like = folder.write(
      "like.yaml",
      "mine:\n  like: NVIDIA H100 80GB HBM3\n  peak_flops: 1e14\n  peak_bandwidth: 1e12\n"
      "  memory_bytes: 1000000\n  kernel_overhead_us: 9\n");
  const HardwareSpec h100 = find_hardware("h100", {});
  const HardwareSpec related = find_hardware(like, {});
  CHECK(related.peak_flops == 1e14);
  CHECK(related.peak_flops_fp8 == 0);
  CHECK(related.matmul_efficiency == h100.matmul_efficiency);
  CHECK(related.matmul_efficiency_fp8 == 0);
  CHECK(related.launch_overhead_us == h100.launch_overhead_us);
  CHECK(related.kernel_overhead_us == 9);
  CHECK(related.link.empty());
  const std::string wrong_like = folder.write("wrong_like.yaml", "mine:\n  like: h1000\n");
  CHECK(error_of([&] { find_hardware(wrong_like, {}); }) ==
        wrong_like + ":2: like: is 'h1000'; allowed: a name of `metronome list hardware`");
}

}  // namespace
}  // namespace metronome::TEST_FILE
