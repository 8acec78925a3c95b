// SPDX-License-Identifier: Apache-2.0
// Step times composed from kernel times of a formula.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/rng.h"
#include "sim/profile/profile_file.h"
#include "sim/profile/profile_fit.h"
#include "sim/profile/profile_folder.h"
#include "sim/profile/profile_model.h"
#include "tests/allocations.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/draws.h"
#include "tests/error_of.h"
#include "tests/pass_plans.h"
#include "tests/sim/profile/profile_lab.h"

namespace metronome::TEST_FILE {
namespace {

using testing::decode;
using testing::draw;
using testing::error_of;
using testing::kFilling;
using testing::one_pass;
using testing::prefill;
using testing::profile_of;
using testing::ScratchFolder;
using testing::SyntheticProfile;
using testing::SyntheticTimes;

ProfileCostModel model_of(const SyntheticProfile& synthetic, Profile profile) {
  CostModelConfig config;
  config.tensor_parallel_size = static_cast<std::int32_t>(synthetic.times.tp);
  return {std::move(profile), synthetic.times.model, synthetic.times.hardware, config};
}

// Everything but attention of a pass over `tokens` (padded) of `rows` sequences, microseconds.
double rest_us(const SyntheticTimes& times, double tokens, double rows) {
  double us = times.dense("embedding", tokens) + times.dense("final_layernorm", tokens);
  double layer = 2 * times.dense("layernorm", tokens);
  for (const std::string& name : times.dense_layers()) {
    if (name == "embedding" || name == "final_layernorm" || name == "layernorm") continue;
    layer += times.dense(name, tokens);
  }
  us += static_cast<double>(times.model.n_layers) * layer;
  return us + times.per_sequence("lm_head", rows) + times.per_sequence("sampler", rows);
}

bool parts_add_up(const StepCost& cost) {
  return cost.total_ns == cost.linear_ns + cost.attention_ns + cost.comm_ns + cost.overhead_ns;
}

// A plan as an engine could make it.
StepPlan random_plan(Rng& rng) {
  std::vector<ScheduledChunk> chunks;
  const int num_decodes = draw(rng, 0, 100);
  for (int i = 0; i < num_decodes; ++i) chunks.push_back(decode(draw(rng, 1, 8000)));
  const int num_prompts = draw(rng, num_decodes == 0 ? 1 : 0, 4);
  for (int i = 0; i < num_prompts; ++i) {
    const std::int32_t num_tokens = draw(rng, 1, 400);
    chunks.push_back(prefill(draw(rng, 0, 4000), num_tokens));
  }
  return one_pass(std::move(chunks));
}

}  // namespace

TEST_CASE("a step is its layers, its attention and its head", "[profile]") {
  const SyntheticProfile synthetic;
  const SyntheticTimes& times = synthetic.times;
  ProfileCostModel model = model_of(synthetic, profile_of(synthetic));
  // 20 decodes run in the graph of 24; tables are linear, so anything between is exact.
  std::vector<ScheduledChunk> decodes;
  for (int i = 0; i < 20; ++i) decodes.push_back(decode(1000 + 10 * i));
  const StepCost alone = model.step_cost(one_pass(decodes));
  const double attention = 32 * times.attention(0, 0, 20, 1095);
  CHECK(static_cast<double>(alone.total_ns) ==
        Approx(1e3 * (rest_us(times, 24, 20) + attention)).epsilon(1e-6));
  CHECK(static_cast<double>(alone.attention_ns) == Approx(1e3 * attention).epsilon(1e-6));
  CHECK(alone.decode_only_ns == alone.total_ns);
  CHECK(alone.comm_ns == 0);
  CHECK(parts_add_up(alone));
  CHECK_FALSE(alone.is_extrapolated);

  decodes.push_back(prefill(512, 1024));
  const StepCost mixed = model.step_cost(one_pass(decodes));
  CHECK(static_cast<double>(mixed.total_ns) ==
        Approx(1e3 * (rest_us(times, 1044, 21) + 32 * times.attention(1024, 512, 20, 1095)))
            .epsilon(1e-6));
  CHECK(mixed.decode_only_ns == alone.total_ns);
  CHECK(parts_add_up(mixed));
}

TEST_CASE("several prompts are one of equal attention area", "[profile]") {
  const SyntheticProfile synthetic;
  ProfileCostModel model = model_of(synthetic, profile_of(synthetic));
  // (256 * (1000 + 128) + 256 * (3000 + 128)) = 512 * (1872 + 256)
  const StepCost two = model.step_cost(one_pass({prefill(1000, 256), prefill(3000, 256)}));
  CHECK(static_cast<double>(two.attention_ns) ==
        Approx(32e3 * synthetic.times.attention(512, 1872, 0, 0)).epsilon(1e-6));
  // Less than one prompt: its share of the triangle.
  const StepCost split = model.step_cost(one_pass({prefill(0, 256), prefill(0, 256)}));
  CHECK(static_cast<double>(split.attention_ns) ==
        Approx(32e3 * synthetic.times.attention(512, 0, 0, 0) / 2).epsilon(1e-6));
  CHECK(model.step_cost(one_pass({prefill(0, 512)})).attention_ns > split.attention_ns);
}

TEST_CASE("graphs end at the largest size", "[profile]") {
  const SyntheticProfile synthetic;
  const auto linear = [&](std::int64_t largest, int num_decodes) {
    CostModelConfig config;
    config.max_graph_tokens = largest;
    ProfileCostModel model(profile_of(synthetic), synthetic.times.model, synthetic.times.hardware,
                           config);
    std::vector<ScheduledChunk> chunks(static_cast<std::size_t>(num_decodes), decode(100));
    return static_cast<double>(model.step_cost(one_pass(chunks)).linear_ns);
  };
  const auto expected = [&](double tokens, double rows) {
    return 1e3 * (rest_us(synthetic.times, tokens, rows) - 20 - rows);  // without the sampler
  };
  CHECK(linear(512, 3) == Approx(expected(4, 3)).epsilon(1e-6));
  CHECK(linear(512, 5) == Approx(expected(8, 5)).epsilon(1e-6));
  CHECK(linear(512, 129) == Approx(expected(136, 129)).epsilon(1e-6));
  CHECK(linear(128, 129) == Approx(expected(129, 129)).epsilon(1e-6));
  CHECK(linear(0, 5) == Approx(expected(5, 5)).epsilon(1e-6));
}

TEST_CASE("what a model does not have or a GPU shares is priced", "[profile]") {
  const SyntheticProfile synthetic("mixtral-8x7b", 2);
  const SyntheticTimes& times = synthetic.times;
  ProfileCostModel model = model_of(synthetic, profile_of(synthetic));
  std::vector<ScheduledChunk> decodes(32, decode(1000));
  const StepCost cost = model.step_cost(one_pass(decodes));
  // Of 8 experts 2 for each of 32 tokens: all of them but for 8 * 0.75^32.
  const double activated = 8 * (1 - std::pow(0.75, 32));
  const double linear = rest_us(times, 32, 32) - times.per_sequence("sampler", 32) +
                        32 * times.experts(32, activated);
  CHECK(static_cast<double>(cost.linear_ns) == Approx(1e3 * linear).epsilon(1e-6));
  CHECK(static_cast<double>(cost.attention_ns) ==
        Approx(32e3 * times.attention(0, 0, 32, 1000)).epsilon(1e-6));
  const double bytes = 32. * 4096 * 2;
  const double logits = 32. * 32000 * 2 / 2;
  const double comm = 65 * (40 + bytes / 32e9 * 1e6) + 40 + logits / 32e9 * 1e6;
  CHECK(static_cast<double>(cost.comm_ns) == Approx(1e3 * comm).epsilon(1e-6));
  CHECK(parts_add_up(cost));

  Profile measured = profile_of(synthetic);
  measured.tables.allreduce = {{0, 1e6}, {10, 110}};
  const StepCost with_table = model_of(synthetic, measured).step_cost(one_pass(decodes));
  CHECK(static_cast<double>(with_table.comm_ns) ==
        Approx(1e3 * (65 * (10 + bytes / 1e4) + 10 + logits / 1e4)).epsilon(1e-6));
}

TEST_CASE("separate passes are priced apart and summed", "[profile]") {
  const SyntheticProfile synthetic;
  ProfileCostModel model = model_of(synthetic, profile_of(synthetic));
  const std::vector<ScheduledChunk> decodes(7, decode(500));
  const StepCost first = model.step_cost(one_pass(decodes));
  const StepCost second = model.step_cost(one_pass({prefill(0, 300)}));
  StepPlan plan = one_pass(decodes);
  plan.chunks.push_back(prefill(0, 300));
  plan.passes.push_back({7, 8});
  const StepCost both = model.step_cost(plan);
  CHECK(std::abs(both.total_ns - first.total_ns - second.total_ns) <= 4);  // roundings
  CHECK(both.decode_only_ns == first.total_ns);
}

TEST_CASE("decodes of unequal contexts take longer where the profile says so", "[profile]") {
  const SyntheticProfile synthetic;
  Profile profile = profile_of(synthetic);
  profile.filling = kFilling;
  std::vector<ScheduledChunk> equal(64, decode(1000));
  std::vector<ScheduledChunk> unequal(64, decode(500));
  unequal.back() = decode(500 + 64 * 500);
  ProfileCostModel off = model_of(synthetic, profile);
  profile.corrects_lengths = true;
  ProfileCostModel on = model_of(synthetic, profile);
  CHECK(on.step_cost(one_pass(equal)).total_ns == off.step_cost(one_pass(equal)).total_ns);
  CHECK(off.step_cost(one_pass(unequal)).total_ns == off.step_cost(one_pass(equal)).total_ns);
  const StepCost corrected = on.step_cost(one_pass(unequal));
  BlockLaunch launch(128);
  for (const ScheduledChunk& chunk : unequal) launch.add_decode(chunk.first_position);
  const double ratio =
      launch.time_us(8, kFilling.decode) / equal_blocks_us(64 * 8, 1000, 128, kFilling.decode);
  CHECK(ratio > 1.2);
  CHECK(static_cast<double>(corrected.attention_ns) ==
        Approx(ratio * static_cast<double>(off.step_cost(one_pass(equal)).attention_ns))
            .epsilon(1e-6));
  // Beside a prompt, too.
  equal.push_back(prefill(0, 256));
  unequal.push_back(prefill(0, 256));
  CHECK(on.step_cost(one_pass(unequal)).total_ns > on.step_cost(one_pass(equal)).total_ns);
}

TEST_CASE("between measured numbers of decodes their blocks decide", "[profile]") {
  const SyntheticProfile synthetic;
  Profile profile = profile_of(synthetic);
  profile.filling = kFilling;
  profile.corrects_lengths = true;
  // A kernel that takes its blocks' time and a quarter more, measured with 16 (contexts are split
  // there), 64 and 128 equal decodes.
  constexpr double kLevel = 1.25;
  Grid& table = profile.tables.attention.decode;
  table.rows = {16, 64, 128};
  table.columns = {64, 1024, 8192};
  table.us.clear();
  for (const double row : table.rows) {
    for (const double context : table.columns) {
      table.us.push_back(kLevel * equal_blocks_us(static_cast<std::int64_t>(row) * 8, context, 128,
                                                  kFilling.decode));
    }
  }
  ProfileCostModel model = model_of(synthetic, profile);
  BlockLaunch launch(128);
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Rng rng(seed, "contexts");
    std::vector<ScheduledChunk> decodes;
    launch.clear();
    // Launches that fill more than 1.6 blocks a multiprocessor are not split.
    for (int left = draw(rng, 32, 140); left > 0; --left) {
      decodes.push_back(decode(draw(rng, 64, 8000)));
      launch.add_decode(decodes.back().first_position);
    }
    const double expected_us = 32 * kLevel * launch.time_us(8, kFilling.decode);
    INFO("seed " << seed << ", " << decodes.size() << " decodes");
    CHECK(static_cast<double>(model.step_cost(one_pass(decodes)).attention_ns) ==
          Approx(1e3 * expected_us).epsilon(1e-4));
  }
}

TEST_CASE("steps hold together, whatever is planned", "[profile]") {
  const SyntheticProfile synthetic;
  Profile profile = profile_of(synthetic);
  profile.filling = kFilling;
  profile.corrects_lengths = true;
  // Measured apart and on another day: beside a chunk decodes may seem to take less than alone.
  for (TimeFamily<Grid>& of_tokens : profile.tables.attention.mixed.parts) {
    for (Grid& beside : of_tokens.parts) {
      for (double& us : beside.us) us *= 0.2;
    }
  }
  ProfileCostModel model = model_of(synthetic, std::move(profile));
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed, "plans");
    StepPlan plan = random_plan(rng);
    INFO("seed " << seed);
    const StepCost cost = model.step_cost(plan);
    CHECK(cost.total_ns > 0);
    CHECK(parts_add_up(cost));
    CHECK(cost.decode_only_ns <= cost.total_ns);
    CHECK(model.step_cost(plan).total_ns == cost.total_ns);
  }
}

TEST_CASE("more work is never cheaper where the tables say so", "[profile]") {
  const SyntheticProfile synthetic;
  ProfileCostModel model = model_of(synthetic, profile_of(synthetic));
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed, "more work");
    StepPlan plan = random_plan(rng);
    const TimeNs before = model.step_cost(plan).total_ns;
    ScheduledChunk& chunk = plan.chunks[static_cast<std::size_t>(
        draw(rng, 0, static_cast<int>(plan.chunks.size()) - 1))];
    chunk.first_position += draw(rng, 1, 1000);
    INFO("seed " << seed);
    CHECK(model.step_cost(plan).total_ns >= before);
    plan.chunks.push_back(decode(draw(rng, 1, 8000)));
    plan.passes.front().end += 1;
    const TimeNs longer = model.step_cost(plan).total_ns;
    plan.chunks.pop_back();
    plan.passes.front().end -= 1;
    CHECK(longer >= model.step_cost(plan).total_ns);
  }
}

TEST_CASE("a step beyond the tables is counted", "[profile]") {
  const SyntheticProfile synthetic;
  ProfileCostModel model = model_of(synthetic, profile_of(synthetic));
  CHECK_FALSE(model.step_cost(one_pass({prefill(8192, 2048)})).is_extrapolated);
  CHECK(model.step_cost(one_pass({prefill(8193, 2048)})).is_extrapolated);
  CHECK(model.step_cost(one_pass({prefill(0, 2049)})).is_extrapolated);
  CHECK(model.step_cost(one_pass({decode(8193)})).is_extrapolated);
  const std::vector<ScheduledChunk> decodes(257, decode(100));
  CHECK(model.step_cost(one_pass(decodes)).is_extrapolated);
}

TEST_CASE("pricing a step allocates nothing", "[profile]") {
  const SyntheticProfile synthetic;
  Profile profile = profile_of(synthetic);
  profile.filling = kFilling;
  profile.corrects_lengths = true;
  ProfileCostModel model = model_of(synthetic, std::move(profile));
  std::vector<StepPlan> plans;
  Rng rng(3, "allocations");
  for (int i = 0; i < 50; ++i) plans.push_back(random_plan(rng));
  TimeNs total = 0;
  const std::int64_t before = testing::num_allocations();
  for (const StepPlan& plan : plans) total += model.step_cost(plan).total_ns;
  const std::int64_t after = testing::num_allocations();
  CHECK(after == before);
  CHECK(total > 0);
}

TEST_CASE("a profile survives its file to the bit", "[profile]") {
  const SyntheticProfile synthetic("mixtral-8x7b");
  Profile profile = profile_of(synthetic);
  profile.filling = kFilling;
  profile.corrects_lengths = true;
  profile.tables.allreduce = {{1024, 4096}, {10, 0.1}};
  CostModelFile file;
  file.kind = "profile";
  file.name = "test.json";
  file.hardware = "rtx-4090";
  file.model = "mixtral-8x7b";
  file.body = std::make_shared<const Json>(profile_body(profile, synthetic.times.model));
  const std::string text = file.to_json();
  const CostModelFile parsed = parse_cost_model_file(text, "test.json");
  const Profile read = read_profile(parsed);
  CHECK(read.filling == profile.filling);
  CHECK(profile_body(read, synthetic.times.model) == *file.body);
  CHECK(parsed.to_json() == text);

  CHECK(error_of([&] {
          make_profile_model(parsed, find_model("llama-3.1-8b", {}), synthetic.times.hardware, {});
        }) ==
        "test.json: was measured with mixtral-8x7b, whose ffn_dim is 0; that of llama-3.1-8b is "
        "14336; allowed: a model of the same shape");
  Json broken = *file.body;
  broken["attention"]["decode"]["us"].erase(0);
  CostModelFile bad = file;
  bad.body = std::make_shared<const Json>(broken);
  CHECK(error_of([&] {
          read_profile(bad);
        }).find("body: attention: decode: us: has 89 times; allowed: 90") != std::string::npos);
}

TEST_CASE("how blocks fill a device is found again", "[profile][slow]") {
  // A table of the very device that is fitted.
  AttentionTable table;
  const auto add = [](Grid& grid, double us) { grid.us.push_back(us); };
  BlockLaunch launch(128);
  table.decode.rows = testing::powers(32, 256);
  table.decode.columns = testing::powers(128, 8192);
  for (const double decodes : table.decode.rows) {
    for (const double context : table.decode.columns) {
      add(table.decode, equal_blocks_us(static_cast<std::int64_t>(decodes) * 8, context, 128,
                                        {10, 4, 8, 0.3, 0}));
    }
  }
  for (const double tokens : {16., 128., 1024.}) {
    table.mixed.x.push_back(tokens);
    TimeFamily<Grid>& of_tokens = table.mixed.parts.emplace_back();
    for (const double history : {0., 1024., 4096.}) {
      Grid grid{testing::powers(1, 64), testing::powers(128, 4096), {}};
      for (const double decodes : grid.rows) {
        for (const double context : grid.columns) {
          launch.clear();
          for (double i = 0; i < decodes; ++i) launch.add_decode(context);
          launch.add_chunk(tokens, history);
          add(grid, launch.time_us(32, kFilling.mixed));
        }
      }
      of_tokens.x.push_back(history);
      of_tokens.parts.push_back(grid);
    }
  }
  const auto fit = fit_filling(table, {32, 8}, 128);
  REQUIRE(fit);
  CHECK(fit->decode_error < 0.01);
  CHECK(fit->mixed_error < 0.02);
  CHECK(fit->filling.decode.busy_tile_us == Approx(8).epsilon(0.03));
  CHECK(fit->filling.mixed.tile_us == Approx(4).epsilon(0.1));
  CHECK(fit_filling(table, {32, 8}, 128)->filling == fit->filling);
}

TEST_CASE("a folder is imported, run and listed from the command line", "[profile][cli]") {
  const ScratchFolder folder;
  const std::string out = folder.path() + "/model.json";
  SyntheticProfile synthetic;
  synthetic.write(folder);
  const testing::CommandResult imported =
      testing::run_metronome("calibrate --import " + folder.path() + " --out " + out);
  INFO(imported.err);
  REQUIRE(imported.exit_code == 0);
  CHECK(imported.out.find("llama-3.1-8b on rtx-4090, tensor_parallel_size 1, vllm 0.19.0") !=
        std::string::npos);
  const std::string scenario = folder.write("run.yaml", R"(model: llama-3.1-8b
cost_model: {file: model.json}
workload:
  num_requests: 5
  arrivals: {process: burst}
  prompt_tokens: {distribution: fixed, value: 300}
  output_tokens: {distribution: fixed, value: 10}
)");
  const testing::CommandResult run =
      testing::run_metronome("run " + scenario + " --out " + folder.path() + "/result");
  INFO(run.err);
  CHECK(run.exit_code == 0);

  // Something wrong: nothing is written.
  synthetic.files.at("tp1/dense.csv") += "act_fn,9999,-1\n";
  synthetic.write(folder);
  const std::string none = folder.path() + "/none.json";
  const testing::CommandResult refused =
      testing::run_metronome("calibrate --import " + folder.path() + " --out " + none);
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("dense.csv:110: time_us: '-1' is not a duration") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(none));
}

TEST_CASE("what a folder leaves out is said, or refused", "[profile][cli]") {
  const ScratchFolder folder;
  const std::string out = folder.path() + "/model.json";
  const auto import_without = [&](const char* file, const std::string& layer,
                                  const std::string& options = "") {
    SyntheticProfile synthetic;
    std::istringstream lines(synthetic.files.at(file));
    std::string kept;
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind(layer + ",", 0) != 0) kept += line + "\n";
    }
    synthetic.files.at(file) = kept;
    synthetic.write(folder);
    return testing::run_metronome("calibrate --import " + folder.path() + " --out " + out +
                                  options);
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  CHECK_FALSE(has(import_without("tp1/dense.csv", "none").out, "remark"));
  CHECK(has(import_without("tp1/per_sequence.csv", "lm_head").out,
            "remark        not measured, and counted as 0: lm_head\n"));
  CHECK(has(import_without("tp1/dense.csv", "layernorm").out, "counted as 0: layernorm\n"));
  CHECK(has(import_without("tp1/dense.csv", "none", " --model qwen3-8b").out,
            "remark        --model qwen3-8b: the folder says "));
  std::filesystem::remove(out);
  const testing::CommandResult refused = import_without("tp1/dense.csv", "o_proj");
  CHECK(refused.exit_code == 2);
  CHECK(has(refused.err, "has no times of o_proj"));
  CHECK_FALSE(std::filesystem::exists(out));
}

}  // namespace metronome::TEST_FILE
