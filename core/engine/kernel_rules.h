// SPDX-License-Identifier: Apache-2.0
// Facts of a product's kernels that tables of measured operators do not have.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace metronome {

struct ModelConfig;

// Of a GPU by its compute capability times ten.
inline bool is_hopper(double sm_version) { return sm_version == 90; }
inline bool is_data_centre_blackwell(double sm_version) {
  return sm_version >= 100 && sm_version < 110;
}

struct KernelRules {
  std::string_view table_name;  // of the product in such tables
  // Norms are fused with all-reduces, by kernels of its own, whose tables say all.
  bool has_fused_reduces = false;
  // By borrowed kernels: whether on such a GPU, and up to how many bytes. nullptr: it has none.
  bool (*fuses_reduces)(const ModelConfig& model, double sm_version) = nullptr;
  double (*max_fused_bytes)(const ModelConfig& model, std::int64_t tensor_parallel_size) = nullptr;
  // Its tables of products in fp8 and nvfp4 include quantising the input.
  bool has_quantised_inputs = false;
  bool has_float32_routers = true;  // where a model's weights of routers are in float32
  // Attention kernels that it takes on such a GPU, the first that were measured; empty: the
  // fastest.
  std::span<const std::string_view> (*attention_kernels)(double sm_version) = nullptr;
};

// By the name in tables; one without rules if no product has it.
const KernelRules& find_kernel_rules(std::string_view table_name);
// Of the products that have rules.
std::vector<std::string_view> kernel_table_names();

}  // namespace metronome
