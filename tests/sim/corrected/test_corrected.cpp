// SPDX-License-Identifier: Apache-2.0
// Step times corrected by what a measured run took: the model, its fit and its file.
#include <algorithm>
#include <cmath>
#include <memory>
#include <tuple>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/rng.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "sim/corrected/corrected_file.h"
#include "sim/corrected/corrected_fit.h"
#include "sim/corrected/corrected_model.h"
#include "sim/measured_model.h"
#include "sim/roofline/roofline.h"
#include "tests/allocations.h"
#include "tests/catch.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

int draw(Rng& rng, int min, int max) { return static_cast<int>(rng.uniform_int(min, max)); }

StepPlan plan_of(std::int32_t num_prefill_tokens, std::int32_t num_decodes) {
  StepPlan plan;
  for (std::int32_t i = 0; i < num_decodes; ++i) {
    plan.chunks.push_back({static_cast<RequestId>(i), 700 + i, 1, ChunkKind::Decode, true});
  }
  if (num_prefill_tokens > 0) {
    plan.chunks.push_back(
        {static_cast<RequestId>(num_decodes), 0, num_prefill_tokens, ChunkKind::Prefill, true});
  }
  plan.num_prefill_tokens = num_prefill_tokens;
  plan.num_decode_tokens = num_decodes;
  plan.passes.push_back({0, static_cast<std::int32_t>(plan.chunks.size())});
  return plan;
}

std::unique_ptr<CostModel> roofline(std::int32_t tensor_parallel_size = 1) {
  CostModelConfig config;
  config.tensor_parallel_size = tensor_parallel_size;
  return std::make_unique<RooflineCostModel>(find_model("llama-3.1-8b", {}),
                                             find_hardware("h200", {}), config);
}

// A server whose matrix products and attention take other times than predicted.
StepFactors true_factors() {
  StepFactors factors = unit_factors();
  for (StepFactors::Range& range : factors.decode) {
    range.factor = range.max_tokens <= 64 ? 1.08 : 0.96;
  }
  for (StepFactors::Range& range : factors.prompt) {
    range.factor = 1.15 - 0.05 * static_cast<double>(range.max_tokens) / 2048;
  }
  factors.decode_attention = 0.9;
  factors.prompt_attention = 1.06;
  factors.link = 1.7;
  return factors;
}

struct Measured {
  std::vector<PredictedStep> steps;
  std::vector<MeasuredInterval> intervals;
};

// Steps whose attention and rest vary, in stretches of one to twelve that end at instants which are
// taken with an error.
Measured measure(std::uint64_t seed, int num_intervals, double instant_deviation_ns) {
  Rng rng(seed, "measured");
  const StepFactors truth = true_factors();
  Measured all;
  double error_before = 0;
  for (int i = 0; i < num_intervals; ++i) {
    const std::size_t begin = all.steps.size();
    double took = 0;
    for (int left = draw(rng, 1, 12); left > 0; --left) {
      const bool has_prompt = draw(rng, 0, 3) == 0;
      const std::int64_t decodes = draw(rng, 1, 128);
      const std::int64_t prefill = has_prompt ? draw(rng, 1, 2048 - 128) : 0;
      const double rest = 12e6 + 55e3 * static_cast<double>(prefill) + 10e3 * draw(rng, 0, 100);
      const double attention = 100e3 * static_cast<double>(decodes) * (0.5 + rng.uniform()) +
                               15e3 * static_cast<double>(prefill) * rng.uniform();
      const double comm = 0.4e6 + 20e3 * static_cast<double>(prefill + decodes);
      all.steps.push_back({rest, attention, comm, prefill, decodes});
      took += corrected_ns(truth, all.steps.back()) * (1 + rng.normal(0, 0.01));
    }
    const double error = rng.normal(0, instant_deviation_ns);
    all.intervals.push_back({begin, all.steps.size(), took + error - error_before, i > 0});
    error_before = error;
  }
  return all;
}

}  // namespace

TEST_CASE("a fit finds the factors that stretches of steps took", "[corrected]") {
  const std::uint64_t seed = GENERATE(range<std::uint64_t>(1, 9));
  const double instant_ms = GENERATE(0.0, 6.0);
  INFO("seed " << seed << ", instants off by " << instant_ms << " ms");
  const Measured measured = measure(seed, 600, instant_ms * 1e6);
  const CorrectionFit fit = fit_correction(measured.steps, measured.intervals);
  const StepFactors truth = true_factors();
  // Where instants are uncertain, attention and the rest are not told apart as well.
  const double slack = 0.01 * instant_ms;
  CHECK(fit.instant_ns / 1e6 == Approx(std::max(instant_ms, 0.2)).margin(1.2));
  CHECK(fit.factors.decode_attention == Approx(truth.decode_attention).margin(0.03 + slack));
  CHECK(fit.factors.prompt_attention == Approx(truth.prompt_attention).margin(0.06 + slack));
  // Collectives grow with the tokens as the rest does, so the two are hardly told apart.
  CHECK(fit.factors.link == Approx(truth.link).margin(0.4));
  CHECK(std::abs(fit.sum_error) < 0.001);
  for (std::size_t k = 0; k < truth.decode.size(); ++k) {
    const StepFactors::Range& range = fit.factors.decode[k];
    INFO("decodes up to " << range.max_tokens << ", " << range.num_steps << " steps");
    if (range.num_steps < 50) continue;
    CHECK(range.factor == Approx(truth.decode[k].factor).margin(0.035 + slack));
  }
  // The measure that counts: steps that it was not fitted to.
  const Measured others = measure(seed + 1000, 300, 0);
  CHECK(check_factors(unit_factors(), others.steps, others.intervals).mean_abs_error > 0.04);
  const CorrectionFit check = check_factors(fit.factors, others.steps, others.intervals);
  CHECK(check.mean_abs_error < 0.015);
  CHECK(std::abs(check.sum_error) < 0.004);
}

TEST_CASE("few stretches move factors a little, and only where they say something", "[corrected]") {
  const Measured measured = measure(3, 12, 1e6);
  const CorrectionFit fit = fit_correction(measured.steps, measured.intervals);
  for (const std::vector<StepFactors::Range>& ranges : {fit.factors.decode, fit.factors.prompt}) {
    for (const StepFactors::Range& range : ranges) {
      CHECK(range.factor > 0.8);
      CHECK(range.factor < 1.25);
    }
  }
  // The farther from what was measured, the nearer to the base.
  const StepFactors::Range& last = fit.factors.prompt.back();
  CHECK(last.num_steps == 0);
  CHECK(std::abs(last.factor - 1) < 0.02);
}

TEST_CASE("stretches that are far off count less", "[corrected]") {
  Measured measured = measure(5, 400, 1e6);
  const CorrectionFit clean = fit_correction(measured.steps, measured.intervals);
  for (std::size_t i = 0; i < measured.intervals.size(); i += 40) {
    measured.intervals[i].took_ns += 400e6;
  }
  const CorrectionFit fit = fit_correction(measured.steps, measured.intervals);
  CHECK(fit.factors.decode_attention == Approx(clean.factors.decode_attention).margin(0.06));
  for (std::size_t k = 0; k < 5; ++k) {
    CHECK(fit.factors.decode[k].factor == Approx(clean.factors.decode[k].factor).margin(0.06));
  }
}

TEST_CASE("a corrected step is the base's parts times their factors", "[corrected]") {
  const std::int32_t degree = GENERATE(1, 4);
  const std::unique_ptr<CostModel> base = roofline(degree);
  StepFactors factors = true_factors();
  for (StepFactors::Range& range : factors.decode) range.num_steps = 9;
  for (StepFactors::Range& range : factors.prompt) range.num_steps = 9;
  factors.prompt[3].num_steps = 0;  // 385 to 512 tokens
  CorrectedCostModel model(roofline(degree), factors);
  const auto near = [](TimeNs ns, double expected) {
    return std::abs(static_cast<double>(ns) - expected) <= 3;
  };
  for (const auto& [prefill, decodes, rest, attention] :
       {std::tuple{0, 64, 1.08, 0.9},
        {0, 65, 0.96, 0.9},
        {0, 5000, 0.96, 0.9},
        {64, 64, factors.prompt[0].factor, 1.06},
        {65, 64, factors.prompt[1].factor, 1.06},
        {20000, 0, factors.prompt.back().factor, 1.06}}) {
    INFO(prefill << " prefill tokens, " << decodes << " decodes");
    const StepPlan plan = plan_of(prefill, decodes);
    const StepCost plain = base->step_cost(plan);
    const StepCost cost = model.step_cost(plan);
    CHECK(near(cost.attention_ns, attention * static_cast<double>(plain.attention_ns)));
    CHECK(near(cost.linear_ns, rest * static_cast<double>(plain.linear_ns)));
    CHECK(near(cost.overhead_ns, rest * static_cast<double>(plain.overhead_ns)));
    CHECK(near(cost.comm_ns, 1.7 * static_cast<double>(plain.comm_ns)));
    CHECK(cost.total_ns == cost.linear_ns + cost.attention_ns + cost.comm_ns + cost.overhead_ns);
    CHECK_FALSE(cost.is_extrapolated);
    // Without its prompts a step is one of decodes alone.
    const TimeNs alone = decodes > 0 ? model.step_cost(plan_of(0, decodes)).total_ns : 0;
    CHECK(near(cost.decode_only_ns, static_cast<double>(std::min(alone, cost.total_ns))));
  }
  CHECK(model.step_cost(plan_of(400, 64)).is_extrapolated);
  CHECK(model.host_gap_ns(plan_of(0, 1)) == base->host_gap_ns(plan_of(0, 1)));
  CHECK(model.kv_capacity_blocks(16) == base->kv_capacity_blocks(16));
  const StepPlan plan = plan_of(300, 40);
  const std::int64_t before = num_allocations();
  model.step_cost(plan);
  CHECK(num_allocations() == before);
}

TEST_CASE("a correction survives its file, and another's is refused", "[corrected]") {
  CorrectedModel corrected{
      std::nullopt, {true_factors(), 0.4e6, -0.001, 0.02}, 214, 40.0, "", "", 1};
  CostModelFile file;
  file.kind = "corrected";
  file.hardware = "h200";
  file.model = "llama-3.1-8b";
  const auto with_body = [&](const Json& body) {
    file.body = std::make_shared<const Json>(body);
    return parse_cost_model_file(file.to_json(), "own.json");
  };
  const Json body = corrected_body(corrected);
  const CorrectedModel read = read_corrected(with_body(body));
  CHECK(read.fit.factors == corrected.fit.factors);
  CHECK(read.fit.instant_ns == 0.4e6);
  Json without_link = body;
  without_link.erase("link");
  CHECK(read_corrected(with_body(without_link)).fit.factors.link == 1);
  CHECK(read.num_intervals == 214);
  CHECK(read.until_s == 40.0);
  CHECK_FALSE(read.base);

  const auto error_with = [&](const char* key, const Json& value) {
    Json other = body;
    other[key] = value;
    return error_of([&] { read_corrected(with_body(other)); });
  };
  CHECK(contains(error_with("decode", Json::array()), "own.json: body: decode: is empty"));
  CHECK(contains(error_with("prompt", Json::parse("[[128, 1, 3], [128, 1, 3]]")),
                 "ends at 128; allowed: more than the previous range"));
  CHECK(contains(error_with("prompt", Json::parse("[[128, -1, 3]]")), "own.json: body: prompt"));
  CHECK(contains(error_with("decode_attention", 0), "decode_attention"));
  CHECK(contains(error_with("link", -1), "link"));
  CHECK(
      contains(error_with("decode", Json::parse("[[128, 1]]")), "is not a list of three numbers"));
  CHECK(contains(error_with("base", Json::parse(with_body(body).to_json())),
                 "is a correction itself"));
  CHECK(contains(error_with("base", 3), "base"));

  CHECK_THROWS_AS(
      make_cost_model(with_body(body), find_model("qwen3-8b", {}), find_hardware("h200", {}), {}),
      UnplacedConfigError);
  // Under the roofline and under a file of its own.
  const ModelConfig model = find_model("llama-3.1-8b", {});
  const std::unique_ptr<CostModel> own =
      make_cost_model(with_body(body), model, find_hardware("h200", {}), {});
  CorrectedCostModel expected(roofline(), corrected.fit.factors);
  const StepPlan plan = plan_of(300, 40);
  CHECK(own->step_cost(plan).total_ns == expected.step_cost(plan).total_ns);
  corrected.base = find_cost_model_file("rtx-4090_llama-3.1-8b", {});
  file.hardware = "rtx-4090";
  const std::unique_ptr<CostModel> above = make_cost_model(
      with_body(corrected_body(corrected)), model, find_hardware("rtx-4090", {}), {});
  const std::unique_ptr<CostModel> below =
      make_cost_model(*corrected.base, model, find_hardware("rtx-4090", {}), {});
  CHECK(above->step_cost(plan).attention_ns ==
        Approx(1.06 * static_cast<double>(below->step_cost(plan).attention_ns)));
}

TEST_CASE("a factor of collectives holds for the link that it was fitted with", "[corrected]") {
  CorrectedModel corrected{std::nullopt, {true_factors(), 0, 0, 0}, 20, 40.0, "nvlink4", "", 1};
  CostModelFile file;
  file.kind = "corrected";
  file.name = "own.json";
  file.hardware = "h200";
  file.model = "llama-3.1-8b";
  file.tensor_parallel_size = 2;
  file.body = std::make_shared<const Json>(corrected_body(corrected));
  CHECK(read_corrected(file).link == "nvlink4");
  CostModelConfig config;
  config.tensor_parallel_size = 2;
  const auto make = [&] {
    make_cost_model(file, find_model("llama-3.1-8b", {}), find_hardware("h200", {}), config);
  };
  CHECK(error_of<UnplacedConfigError>(make) ==
        "cost_model.link: the default is not what own.json was fitted with; allowed: nvlink4");
  config.link = "nvlink4";
  CHECK_NOTHROW(make());
  config.link_factor = 1.5;
  CHECK(error_of<UnplacedConfigError>(make) ==
        "cost_model.link_factor: 1.500 is not what own.json was fitted with; allowed: 1.000");
}

}  // namespace metronome::testing::TEST_FILE
