// SPDX-License-Identifier: Apache-2.0
// The fitted cost model: a known one found again from scattered times with hiccups, what it makes
// of a plan, and its file.
#include <cmath>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "sim/fitted/fitted_file.h"
#include "sim/fitted/fitted_fit.h"
#include "sim/measured_model.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

constexpr std::int64_t kMaxGraph = 160;

ModelConfig model() { return find_model("llama-3.1-8b", {}); }

// Steps of 64 tokens up to 1024, or a line.
FittedForm truth(bool is_stairs) {
  FittedForm form{.graph = 6e6,
                  .eager = 8e6,
                  .prefill = 2e6,
                  .pair = 12,
                  .chunk = 4e5,
                  .decode = 2e4,
                  .decode_kv = 25,
                  .head = 1.5e6,
                  .row = 1e4,
                  .tokens = {},
                  .max_graph_decodes = kMaxGraph};
  if (!is_stairs) {
    form.tokens = {{0, 0, 2e4}};
    return form;
  }
  for (int k = 0; k < 16; ++k) form.tokens.push_back({64.0 * k, 1.2e6 * k, 0});
  return form;
}

StepFeatures random_pass(Rng& rng) {
  StepFeatures pass;
  const double kind = rng.uniform();
  if (kind < 0.7) {
    pass.decodes = draw(rng, 1, 256);
    pass.decode_kv = pass.decodes * draw(rng, 50, 4000);
  }
  pass.tokens = pass.rows = pass.decodes;
  if (kind > 0.4) {
    pass.prefill_chunks = draw(rng, 1, 4);
    const double num_tokens = draw(rng, 16, 700);
    const double context = draw(rng, 0, 6000);
    pass.tokens += num_tokens;
    pass.pairs = num_tokens * (context + num_tokens / 2);
    pass.rows += draw(rng, 0, static_cast<std::int32_t>(pass.prefill_chunks));
  }
  pass.is_graph = pass.prefill_chunks == 0 && pass.decodes <= kMaxGraph;
  return pass;
}

struct Sample {
  std::vector<MeasuredStep> steps;
  std::vector<bool> is_slow;
};

// Times of `form` with 3 % scatter, of which 1 % are hiccups of 2 to 8 times.
Sample draw_sample(const FittedForm& form, std::uint64_t seed, int num_steps) {
  Rng rng(seed, "fitted sample");
  Sample sample;
  for (int i = 0; i < num_steps; ++i) {
    const StepFeatures pass = random_pass(rng);
    const bool is_slow = chance(rng, 0.01);
    const double slowness = is_slow ? 2 + 6 * rng.uniform() : 1;
    sample.steps.push_back({{pass}, form.pass_ns(pass) * slowness * (1 + 0.03 * rng.normal(0, 1))});
    sample.is_slow.push_back(is_slow);
  }
  return sample;
}

void check_recovery(bool is_stairs, std::uint64_t seed) {
  INFO("seed " << seed << (is_stairs ? ", stairs" : ", a line"));
  const FittedForm form = truth(is_stairs);
  const Sample sample = draw_sample(form, seed, 4000);
  const StepFit fit = fit_steps(sample.steps);
  const FittedForm& found = fit.model.form;
  CHECK(fit.model.tokens_shape == (is_stairs ? "steps of 64 tokens" : "a line"));
  // Within what 3 % of noise on 3200 steps leave open: the constants and the parts that make up
  // most of the time, then those that make up a few percent of it.
  CHECK(found.graph + found.head == Approx(form.graph + form.head).epsilon(0.03));
  CHECK(found.head == Approx(form.head).epsilon(0.25));
  CHECK(found.eager == Approx(form.eager).epsilon(0.05));
  CHECK(found.pair == Approx(form.pair).epsilon(0.01));
  CHECK(found.decode_kv == Approx(form.decode_kv).epsilon(0.01));
  CHECK(found.decode + found.row == Approx(form.decode + form.row).epsilon(0.15));
  CHECK(found.chunk == Approx(form.chunk).epsilon(0.25));
  CHECK(found.prefill == Approx(form.prefill).epsilon(0.25));
  CHECK(found.max_graph_decodes == kMaxGraph);
  // Its purpose: times without scatter, of passes that it has not seen.
  Rng rng(seed, "fitted judge");
  double worst = 0;
  double sum = 0;
  for (int i = 0; i < 1000; ++i) {
    const StepFeatures pass = random_pass(rng);
    const double error = found.pass_ns(pass) / form.pass_ns(pass) - 1;
    worst = std::max(worst, std::abs(error));
    sum += std::abs(error);
  }
  CHECK(sum / 1000 < 0.004);
  CHECK(worst < 0.025);

  // Normal noise of 3 % has a mean size of 2.4 %; a hiccup is predicted 50 to 88 % too short.
  const RegimeError& all = fit.model.errors.back();
  CHECK(all.regime == "all");
  CHECK(all.num_steps == Approx(800).epsilon(0.15));
  CHECK(all.mean_abs_error > 0.022);
  CHECK(all.mean_abs_error < 0.036);
  CHECK(all.p95_abs_error < 0.075);
  std::size_t num_wrong = 0;
  for (std::size_t i = 0; i < sample.steps.size(); ++i) {
    if (is_held_out(i)) CHECK_FALSE(fit.is_hiccup[i]);
    if (!is_held_out(i) && fit.is_hiccup[i] != sample.is_slow[i]) ++num_wrong;
  }
  CHECK(num_wrong == 0);
  for (const StepScatter& scatter : fit.model.scatter) {
    if (scatter.regime.name != "mixed") continue;
    CHECK(scatter.ratios[9] == Approx(1).margin(0.005));  // the median
    CHECK(scatter.ratios[5] == Approx(1 - 1.28 * 0.03).margin(0.01));
    CHECK(scatter.ratios[13] == Approx(1 + 1.28 * 0.03).margin(0.01));
    CHECK(scatter.ratios.back() > 2);
  }
}

StepPlan plan_of(const std::vector<std::vector<ScheduledChunk>>& passes) {
  StepPlan plan;
  for (const auto& chunks : passes) {
    const auto begin = static_cast<std::int32_t>(plan.chunks.size());
    plan.chunks.insert(plan.chunks.end(), chunks.begin(), chunks.end());
    plan.passes.push_back({begin, static_cast<std::int32_t>(plan.chunks.size())});
  }
  return plan;
}

ScheduledChunk prefill(std::int32_t first, std::int32_t count, bool samples) {
  return {RequestId{0}, first, count, ChunkKind::Prefill, samples};
}
ScheduledChunk decode(std::int32_t context) {
  return {RequestId{1}, context - 1, 1, ChunkKind::Decode, true};
}

FittedModel known_model() {
  FittedModel fitted;
  fitted.form = truth(true);
  fitted.tokens_shape = "steps of 64 tokens";
  fitted.decode_range = FeatureRange{{.tokens = 1, .decodes = 1, .decode_kv = 10, .rows = 1},
                                     {.tokens = 8, .decodes = 8, .decode_kv = 9000, .rows = 8}};
  fitted.prefill_range = FeatureRange{{}, {512, 1e6, 2, 8, 9000, 10}};
  fitted.host_gap_ns = 250'000;
  fitted.num_steps = 100;
  return fitted;
}

CostModelFile file_of(const FittedModel& fitted) {
  CostModelFile file;
  file.kind = "fitted";
  file.name = "test.json";
  file.hardware = "h200";
  file.model = "llama-3.1-8b";
  file.body = std::make_shared<const Json>(fitted_body(fitted, model()));
  return file;
}

std::unique_ptr<CostModel> made(const CostModelFile& file, const CostModelConfig& config = {}) {
  return make_cost_model(parse_cost_model_file(file.to_json(), file.name), model(),
                         find_hardware("h200", {}), config);
}

// The error about a file whose body was changed.
template <class Change>
std::string error_after(const Change& change) {
  CostModelFile file = file_of(known_model());
  Json body = *file.body;
  change(body);
  file.body = std::make_shared<const Json>(std::move(body));
  return error_of([&] { made(file); });
}

}  // namespace

TEST_CASE("a known form is found again through scatter and hiccups", "[fitted]") {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    check_recovery(true, seed);
    check_recovery(false, seed);
  }
}

TEST_CASE("steps beyond those that shapes are compared on may have knots of their own",
          "[fitted]") {
  const std::uint64_t seed = 12;
  INFO("seed " << seed);
  Rng rng(seed, "rare knots");
  std::vector<MeasuredStep> steps;
  const auto add = [&](double tokens) {
    const StepFeatures pass{tokens, tokens * 300, 1, 0, 0, 1, false};
    const double tile = std::ceil(tokens / 16);
    steps.push_back({{pass}, (5e6 + 1e5 * tile) * (1 + 0.001 * rng.normal(0, 1))});
  };
  // With what is rare there are more tiles of 16 tokens than a fit may have knots.
  for (int i = 0; i < 9000; ++i) add(i % 250 == 0 ? draw(rng, 1001, 1100) : draw(rng, 1, 1000));
  const FittedModel fitted = fit_steps(steps).model;
  CHECK(fitted.tokens_shape != "steps of 16 tokens");
  CHECK(fitted.errors.back().mean_abs_error < 0.02);
}

TEST_CASE("with decodes alone nothing is said of prefill", "[fitted]") {
  Rng rng(5, "decodes");
  std::vector<MeasuredStep> steps;
  for (std::size_t i = 0; i < kMinSteps; ++i) {
    const double decodes = draw(rng, 1, 32);
    const StepFeatures pass{decodes, 0, 0, decodes, decodes * 100, decodes, true};
    steps.push_back({{pass}, truth(true).pass_ns(pass)});
  }
  const FittedModel fitted = fit_steps(steps).model;
  CHECK_FALSE(fitted.prefill_range);
  CHECK(fitted.form.eager == fitted.form.graph);
  CHECK_FALSE(fitted.form.max_graph_decodes);
  CHECK(fitted.errors.back().p95_abs_error < 1e-6);
  CHECK(fitted.covers(steps.front().passes.front()));
  CHECK_FALSE(fitted.covers({.tokens = 10, .pairs = 55, .prefill_chunks = 1}));
}

TEST_CASE("a step costs what its passes do, and its parts add up", "[fitted]") {
  const auto cost_model = made(file_of(known_model()));
  const StepCost mixed =
      cost_model->step_cost(plan_of({{decode(100), decode(50), prefill(0, 100, true)}}));
  CHECK(mixed.linear_ns == 1'200'000 + 1'500'000 + 30'000);
  CHECK(mixed.attention_ns == 12 * 5050 + 400'000 + 2 * 20'000 + 25 * 150);
  CHECK(mixed.overhead_ns == 10'000'000);
  CHECK(mixed.comm_ns == 0);
  CHECK(mixed.total_ns == mixed.linear_ns + mixed.attention_ns + mixed.overhead_ns);
  CHECK_FALSE(mixed.is_extrapolated);
  const StepCost decodes = cost_model->step_cost(plan_of({{decode(100), decode(50)}}));
  CHECK(decodes.overhead_ns == 6'000'000);
  CHECK(decodes.decode_only_ns == decodes.total_ns);
  CHECK(mixed.decode_only_ns == decodes.total_ns);
  const StepCost prefills = cost_model->step_cost(plan_of({{prefill(0, 100, true)}}));
  CHECK(prefills.decode_only_ns == 0);
  const StepCost both =
      cost_model->step_cost(plan_of({{decode(100), decode(50)}, {prefill(0, 100, true)}}));
  CHECK(both.total_ns == decodes.total_ns + prefills.total_ns);
  CHECK(both.decode_only_ns == decodes.total_ns);
  std::vector<ScheduledChunk> many(static_cast<std::size_t>(kMaxGraph) + 1, decode(10));
  const StepCost eager = cost_model->step_cost(plan_of({many}));
  CHECK(eager.overhead_ns == 8'000'000);
  CHECK(eager.is_extrapolated);
  many.pop_back();
  CHECK(cost_model->step_cost(plan_of({many})).overhead_ns == 6'000'000);
}

TEST_CASE("what was not measured is said to be extrapolated", "[fitted]") {
  const auto cost_model = made(file_of(known_model()));
  const auto is_outside = [&](const std::vector<ScheduledChunk>& chunks) {
    return cost_model->step_cost(plan_of({chunks})).is_extrapolated;
  };
  CHECK_FALSE(is_outside({decode(10)}));
  CHECK(is_outside({decode(9)}));
  CHECK_FALSE(is_outside({decode(9000)}));
  CHECK(is_outside({decode(9001)}));
  CHECK_FALSE(is_outside({prefill(0, 512, false)}));
  CHECK(is_outside({prefill(0, 513, false)}));
  CHECK(is_outside({prefill(2000, 512, false)}));
  CHECK(is_outside({prefill(0, 5, false), prefill(0, 5, false), prefill(0, 5, false)}));
}

TEST_CASE("beyond the measured tokens a fit goes on growing", "[fitted]") {
  const Sample sample = draw_sample(truth(true), 4, 1000);
  const FittedForm form = fit_steps(sample.steps).model.form;
  double before = 0;
  for (double tokens = 1; tokens < 5000; tokens += 7) {
    const double ns = form.tokens_ns(tokens);
    CHECK(ns >= before);
    before = ns;
  }
  CHECK(form.tokens_ns(4000) == Approx(4 * form.tokens_ns(1000)).epsilon(0.1));
}

TEST_CASE("the host gap is the scenario's, else the file's, else the hardware's", "[fitted]") {
  CostModelConfig config;
  FittedModel fitted = known_model();
  CHECK(made(file_of(fitted))->host_gap_ns({}) == 250'000);
  StepPlan plan;
  plan.chunks = {{RequestId{0}, 700, 1, ChunkKind::Decode, true},
                 {RequestId{1}, 0, 512, ChunkKind::Prefill, false},
                 {RequestId{2}, 30, 1, ChunkKind::Decode, true}};
  CHECK(made(file_of(fitted))->host_gap_ns(plan) == 250'000);
  fitted.host_gap_chunk_ns = 1'500.2;
  CHECK(made(file_of(fitted))->host_gap_ns({}) == 250'000);
  CHECK(made(file_of(fitted))->host_gap_ns(plan) == 254'501);
  config.host_gap_us = 3;
  CHECK(made(file_of(fitted), config)->host_gap_ns(plan) == 3'000);
  config.host_gap_us_per_request = 2;
  CHECK(made(file_of(fitted), config)->host_gap_ns(plan) == 9'000);
  fitted.host_gap_ns.reset();
  CHECK(made(file_of(fitted))->host_gap_ns(plan) == std::llround(kDefaultHostGapUs * 1e3));
}

TEST_CASE("host gaps are fitted with and without a part for each chunk", "[fitted]") {
  const std::uint64_t seed = 9;
  INFO("seed " << seed);
  Rng rng(seed, "gaps");
  std::vector<MeasuredGap> gaps;
  for (int i = 0; i < 400; ++i) {
    const double chunks = draw(rng, 1, 64);
    gaps.push_back({(200'000 + 3'000 * chunks) * (1 + 0.02 * rng.normal(0, 1)), chunks});
  }
  const GapFit fit = fit_gaps(gaps).value();
  CHECK(fit.base_ns == Approx(200'000).epsilon(0.02));
  CHECK(fit.chunk_ns == Approx(3'000).epsilon(0.03));
  CHECK(fit.chunk_error < 0.02);
  CHECK(fit.constant_error > 0.1);
  CHECK(fit.grows_with_chunks());
  for (MeasuredGap& gap : gaps) gap.ns = 200'000 * (1 + 0.02 * rng.normal(0, 1));
  CHECK_FALSE(fit_gaps(gaps)->grows_with_chunks());
  for (MeasuredGap& gap : gaps) gap.ns = 200'000;
  CHECK_FALSE(fit_gaps(gaps)->grows_with_chunks());
  gaps.resize(kMinGaps - 1);
  CHECK_FALSE(fit_gaps(gaps));
}

TEST_CASE("a fitted file gives back what was written, to the bit", "[fitted]") {
  FittedModel fitted = fit_steps(draw_sample(truth(true), 8, 300).steps).model;
  fitted.host_gap_ns = 1.0 / 3;
  fitted.host_gap_chunk_ns = 1.0 / 7;
  const CostModelFile file = file_of(fitted);
  const CostModelFile again = parse_cost_model_file(file.to_json(), file.name);
  CHECK(again.to_json() == file.to_json());
  CHECK(file_of(read_fitted(again)).to_json() == file.to_json());
}

TEST_CASE("a fitted file that is not as it was written is refused", "[fitted]") {
  const auto check = [](const std::string& error, const std::string& part) {
    INFO(error);
    CHECK(error.find(part) != std::string::npos);
    CHECK(error.find("test.json") != std::string::npos);
  };
  check(error_after([](Json& body) { body.erase("form_ns"); }), "form_ns: is missing");
  check(error_after([](Json& body) { body["form_ns"]["pair"] = -1; }), "pair: -1 is out of range");
  check(error_after([](Json& body) { body["form_ns"]["tokens"][1][0] = 0; }), "tokens[1]: begins");
  check(error_after([](Json& body) { body["form_ns"]["tokens"] = Json::array(); }), "is empty");
  check(error_after([](Json& body) { body["decode_range"]["tokens"] = {5, 4}; }), "decode_range");
  check(error_after([](Json& body) { body["host_gap_ns"] = "1"; }),
        "host_gap_ns: is not a number; allowed: a number");
  check(error_after([](Json& body) {
          body["scatter"] = {{{"regime", "mixed"}, {"order", 1}, {"ratios", {1, 2}}}};
        }),
        "ratios: is not a list of 19 numbers");
  check(error_after([](Json& body) { body["shape"]["n_layers"] = 31; }),
        "n_layers: is 31, but llama-3.1-8b has 32");
}

TEST_CASE("what a fit cannot know is refused", "[fitted]") {
  CostModelConfig config;
  config.batching = Batching::Padded;
  CHECK(error_of([&] { made(file_of(known_model()), config); }).find("cost_model.batching") == 0);
  config = {};
  config.gather_kv = true;
  CHECK(error_of([&] { made(file_of(known_model()), config); }).find("cost_model.gather_kv") == 0);
  config = {};
  config.link = "nvlink4";
  CHECK(error_of([&] { made(file_of(known_model()), config); }).find("cost_model.link: has no ") ==
        0);
  config = {};
  config.network = "nvlink4";
  CHECK(error_of([&] { made(file_of(known_model()), config); }).find("cost_model.network") == 0);
  config = {};
  config.link_factor = 2;
  CHECK(error_of([&] { made(file_of(known_model()), config); }).find("cost_model.link_factor") ==
        0);
  FittedModel decodes = known_model();
  decodes.prefill_range.reset();
  CHECK(error_of([&] {
          made(file_of(decodes), {});
        }).find("cost_model.file: test.json was fitted to steps without prompts") == 0);
}

}  // namespace metronome::testing::TEST_FILE
