// SPDX-License-Identifier: Apache-2.0
// Which simulated times are said to be far from anything that was compared.
#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "sim/cost/checked.h"
#include "tests/catch.h"

namespace metronome::testing::TEST_FILE {
namespace {

std::string warning(const char* cost_model, const char* hardware, const char* model,
                    WeightFormat format = WeightFormat::Plain, std::int64_t degree = 1) {
  ModelConfig found = find_model(model, {});
  (found.n_experts > 0 ? found.expert_format : found.linear_format) = format;
  return unchecked_warning(cost_model, find_hardware(hardware, {}), found, degree);
}

}  // namespace

TEST_CASE("times near compared ones raise no warning", "[sim][checked]") {
  CHECK(warning("roofline", "h100-sxm", "qwen3-8b").empty());
  CHECK(warning("roofline", "h100-sxm", "llama-3.2-1b").empty());
  CHECK(warning("roofline", "h200", "llama-3.1-70b", WeightFormat::Fp8, 8).empty());
  CHECK(warning("operators", "b200", "gpt-oss-120b", WeightFormat::Mxfp4, 4).empty());
  // Made of measurements of their own.
  CHECK(warning("fitted", "l4", "qwen3-8b").empty());
  CHECK(warning("profile", "rtx-5080", "qwen3-8b").empty());
}

TEST_CASE("times far from compared ones say what is far", "[sim][checked]") {
  CHECK(warning("roofline", "l40s", "qwen3-8b") ==
        "l40s: roofline times of this GPU were never compared with a measured run "
        "(docs/accuracy.md)");
  CHECK(warning("roofline", "a100-80gb", "mixtral-8x7b") ==
        "a100-80gb: roofline times of a mixture of experts on this GPU were never compared with a "
        "measured run (docs/accuracy.md)");
  CHECK(warning("roofline", "rtx-4090", "llama-3.1-8b", WeightFormat::Int4) ==
        "rtx-4090: roofline times with int4 weights on this GPU were never compared with a "
        "measured run (docs/accuracy.md)");
  CHECK(warning("roofline", "rtx-4090", "llama-3.1-8b", WeightFormat::Plain, 8) ==
        "rtx-4090: roofline times of so many GPUs were never compared with a measured run "
        "(docs/accuracy.md)");
}

}  // namespace metronome::testing::TEST_FILE
