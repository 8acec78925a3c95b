// SPDX-License-Identifier: Apache-2.0
// Which simulated times are said to be far from anything that was compared.
#include <map>
#include <string>

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
  return unchecked_warning(
      checked_run(cost_model, find_hardware(hardware, {}), found, "vllm", degree));
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

TEST_CASE("bands hold nine tenths of the values that were left out", "[sim][checked]") {
  const LeftOut what = GENERATE(LeftOut::Families, LeftOut::Groups);
  struct Covered {
    double num_values = 0, in_tpot = 0, in_ttft = 0;
  };
  std::map<std::string, Covered> by_cost_model;
  leave_out(what, [&](const LeftOutValue& value) {
    Covered& covered = by_cost_model[value.run.cost_model];
    covered.num_values += 1;
    covered.in_tpot += value.is_in_tpot_band ? 1 : 0;
    covered.in_ttft += value.is_in_ttft_band ? 1 : 0;
  });
  for (const std::string cost_model : {"roofline", "operators"}) {
    const Covered& covered = by_cost_model[cost_model];
    INFO(cost_model << ": " << covered.num_values << " values");
    REQUIRE(covered.num_values > 2000);
    const double tpot = covered.in_tpot / covered.num_values;
    const double ttft = covered.in_ttft / covered.num_values;
    INFO("in the band of TPOT " << tpot << ", of TTFT " << ttft);
    CHECK(tpot >= 0.87);
    CHECK(tpot <= 0.93);
    CHECK(ttft >= 0.87);
    CHECK(ttft <= 0.93);
  }
}

TEST_CASE("a band is narrower where the run was measured", "[sim][checked]") {
  const auto width = [](const char* hardware, const char* model, WeightFormat format,
                        const char* policy) {
    ModelConfig found = find_model(model, {});
    found.linear_format = format;
    const auto accuracy =
        accuracy_near(checked_run("roofline", find_hardware(hardware, {}), found, policy, 4));
    REQUIRE(accuracy.has_value());
    CHECK(accuracy->tpot.low < accuracy->tpot.high);
    CHECK(accuracy->mean_tpot_error > 0);
    return accuracy->tpot.high - accuracy->tpot.low;
  };
  const double measured = width("h200", "llama-3.1-70b", WeightFormat::Fp8, "vllm");
  CHECK(measured < width("h200", "llama-3.1-70b", WeightFormat::Fp8, "sglang"));
  CHECK(measured < width("l4", "qwen3-0.6b", WeightFormat::Plain, "token_budget"));
}

TEST_CASE("a band names the runs that it is from", "[sim][checked]") {
  ModelConfig model = find_model("llama-3.1-70b", {});
  model.linear_format = WeightFormat::Fp8;
  const auto near =
      accuracy_near(checked_run("roofline", find_hardware("h200", {}), model, "vllm", 8));
  REQUIRE(near.has_value());
  CHECK(near->nearest == "llama-3.1-70b in fp8 on 8 h200 with vllm");
  CHECK(near->num_values == 13);
  // Times by the kernels of the same GPU were compared with three runs.
  const auto profile = accuracy_near(checked_run("profile", find_hardware("rtx-4090", {}),
                                                 find_model("llama-3.1-8b", {}), "vllm", 1));
  REQUIRE(profile.has_value());
  CHECK(profile->nearest == "llama-3.1-8b on rtx-4090 with vllm");
  CHECK(profile->tpot.high < 0.03);
  CHECK_FALSE(accuracy_near(checked_run("table", find_hardware("h200", {}), model, "vllm", 8)));
}

}  // namespace metronome::testing::TEST_FILE
