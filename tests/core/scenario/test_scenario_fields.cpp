// SPDX-License-Identifier: Apache-2.0
// Every field of every section has a key, and a documentation.
#include <string>
#include <utility>
#include <vector>

#include "core/scenario/scenario.h"
#include "core/scenario/scenario_keys.h"
#include "cpu/cpu_config.h"
#include "engines/fastgen/settings.h"
#include "engines/llama_cpp/settings.h"
#include "engines/sarathi/settings.h"
#include "engines/sglang/settings.h"
#include "engines/tensorrt_llm/settings.h"
#include "engines/vllm/settings.h"
#include "gpu/plan/cuda_config.h"
#include "tests/catch.h"

namespace metronome::TEST_FILE {
namespace {

// A new field breaks this function until it is counted, and the test until it is documented.
std::vector<std::pair<std::string, std::size_t>> fields_per_section() {
  [[maybe_unused]] const auto& [e1, e2, e3, e4, e5] = EngineConfig{};
  [[maybe_unused]] const auto& [k1, k2, k3, k4, k5, k6, k7, k8, k9] = KvCacheConfig{};
  // One is not a key, and the last one has the settings of the engines.
  [[maybe_unused]] const auto& [s1, s2, s3, s4, s5, s6, s7, s8, o, s9, s10] = SchedulerConfig{};
  [[maybe_unused]] const auto& [o1, o2, o3, o4, o5, o6, o7] = o;
  [[maybe_unused]] const auto& [v1, v2, v3, v4, v5, v6, v7, v8, v9] = VllmConfig{};
  [[maybe_unused]] const auto& [sa1, sa2, sa3, sa4, sa5, sa6] = SarathiConfig{};
  [[maybe_unused]] const auto& [g1, g2, g3, g4, g5, g6, g7, g8, g9, g10, g11, g12, g13, g14, g15,
                                g16, g17, g18, g19, g20] = SglangConfig{};
  [[maybe_unused]] const auto& [t1, t2, t3, t4, t5, t6, t7] = TensorRtLlmConfig{};
  [[maybe_unused]] const auto& [f1, f2, f3] = FastGenConfig{};
  [[maybe_unused]] const auto& [m1, m2, m3, m4] = LlamaCppConfig{};
  [[maybe_unused]] const auto& [c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, h, c12, c13, c14, c15, c16,
                                c17, c18, c19, c20, c21, c22, c23] = CostModelConfig{};
  [[maybe_unused]] const auto& [n1, n2, n3, n4, n5, n6] = ClientConfig{};
  [[maybe_unused]] const auto& [h1, h2] = h;
  [[maybe_unused]] const auto& [d01, d02, d03, d04, d05, d06, d07, d08, d09, d010, a] =
      SpeculativeConfig{};
  [[maybe_unused]] const auto& [a1, a2, a3, a4, a5, a6, a7, a8] = a;
  [[maybe_unused]] const auto& [l1, l2, l3, l4, l5, l6, l7, l8, l9, l10, by_class, class_name] =
      SloConfig{};
  [[maybe_unused]] const auto& [p1, p2, p3, p4, p5, p6, p7, p8] = SamplingConfig{};
  [[maybe_unused]] const auto& [u1, u2] = CpuConfig{};
  [[maybe_unused]] const auto& [d1, d2, d3, d4, d5, d6, d7, d8, d9, d10] = CudaConfig{};
  [[maybe_unused]] const auto& [r1, r2, r3, r4, r5, r6] = ResultsConfig{};
  return {{"engine.", 5},
          {"kv_cache.", 10},
          {"scheduler.", 8 + 7 + 9 + 6 + 19 + 7 + 3 + 4},
          {"slo.", 10},
          {"results.", 6},
          {"cost_model.", 22 + 2},
          {"sampling.", 8},
          {"speculative.", 10 + 8},
          {"cpu.", 2},
          {"cuda.", 10},
          {"client.", 6}};
}

}  // namespace

TEST_CASE("every field of every section has a documented key", "[core][scenario]") {
  const std::vector<DocumentedKey> keys = documented_scenario_keys();
  CHECK(keys.front().key == "description");
  CHECK(keys.back().key == "sweep");
  for (const auto& [prefix, count] : fields_per_section()) {
    INFO("section " << prefix);
    std::size_t documented = 0;
    for (const DocumentedKey& key : keys) {
      if (key.key.starts_with(prefix)) ++documented;
    }
    CHECK(documented == count);
  }
  for (const DocumentedKey& key : keys) {
    INFO("key " << key.key);
    CHECK_FALSE(key.type.empty());
    CHECK_FALSE(key.allowed.empty());
    CHECK_FALSE(key.default_value.empty());
    CHECK_FALSE(key.doc.empty());
    CHECK(key.doc.find('\n') == std::string::npos);
  }
}

}  // namespace metronome::TEST_FILE
