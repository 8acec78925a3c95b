// SPDX-License-Identifier: Apache-2.0
// Steps composed from operators: known sums, files, and what is refused.
#include <algorithm>
#include <cmath>

#include "core/base/json.h"
#include "core/base/real.h"
#include "core/base/rng.h"
#include "sim/operators/operator_file.h"
#include "tests/allocations.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/error_of.h"
#include "tests/pass_plans.h"
#include "tests/sim/operators/operator_lab.h"

namespace metronome::testing::TEST_FILE {
namespace {

using Lab = OperatorTimesLab;

HardwareSpec h100() { return find_hardware("h100-sxm", {}); }

OperatorCostModel model_of(const std::string& name, std::int64_t tp = 1,
                           CostModelConfig config = {}) {
  config.tensor_parallel_size = static_cast<std::int32_t>(tp);
  return {operators_of(name, tp), find_model(name, {}), h100(), config};
}

double elementwise_us(double bytes) { return std::max(1.9, 1 + bytes / (0.88 * 3.35e12) * 1e6); }

Approx near(double us) { return Approx(1e3 * us).epsilon(2e-5); }

// Llama-3.1-8B on one device: t tokens (padded), r rows (padded).
double linear_us(double t, double r) {
  const double layer = Lab::product_us(t, 6144, 4096) + Lab::product_us(t, 4096, 4096) +
                       Lab::product_us(t, 28672, 4096) + Lab::product_us(t, 4096, 14336) +
                       2 * elementwise_us(8 * t * 4096) + elementwise_us(4 * t * 6144) +
                       elementwise_us(6 * t * 14336);
  return 32 * layer + Lab::product_us(r, 128256, 4096) + elementwise_us(4 * t * 4096);
}

double overhead_us(double rows) {
  return 32 * 9 * 1.3 + 200 + 30 + rows * 128256 * 10 / (0.88 * 3.35e12) * 1e6;
}

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

TEST_CASE("a step is its operators and its terms", "[operators]") {
  OperatorCostModel model = model_of("llama-3.1-8b");
  // 20 decodes run in the graph of 24, which is between two measured sizes; 16 are one.
  std::vector<ScheduledChunk> decodes;
  for (int i = 0; i < 16; ++i) decodes.push_back(decode(1000 + 10 * i));
  const StepCost alone = model.step_cost(one_pass(decodes));
  CHECK(real(alone.linear_ns) == near(linear_us(16, 16)));
  CHECK(real(alone.attention_ns) == near(32 * Lab::decodes_us(32, 16, 1076)));
  CHECK(real(alone.overhead_ns) == near(overhead_us(16)));
  CHECK(alone.comm_ns == 0);
  CHECK(alone.total_ns == alone.linear_ns + alone.attention_ns + alone.overhead_ns);
  CHECK(alone.decode_only_ns == alone.total_ns);
  CHECK_FALSE(alone.is_extrapolated);

  // 1024 tokens of a prompt behind 512 are 1024 x (512 + 512) pairs; the pass has 1040 tokens.
  decodes.push_back(prefill(512, 1024));
  const StepCost mixed = model.step_cost(one_pass(decodes));
  CHECK(real(mixed.attention_ns) ==
        near(32 * (Lab::decodes_us(32, 16, 1076) + Lab::prompts_us(32, 1, 1024 * 1024.))));
  CHECK(real(mixed.overhead_ns) == near(overhead_us(17)));
  CHECK(mixed.decode_only_ns == alone.total_ns);
  CHECK(mixed.decode_only_attention_ns == alone.attention_ns);
  // The last token of a prompt is a decode.
  CHECK(model.step_cost(one_pass({prefill(1000, 1)})).total_ns ==
        model.step_cost(one_pass({decode(1000)})).total_ns);
}

TEST_CASE("a short chunk reads its context as a decode does", "[operators]") {
  OperatorCostModel model = model_of("llama-3.1-8b");
  const auto attention = [&](const ScheduledChunk& chunk) {
    return real(model.step_cost(one_pass({chunk})).attention_ns);
  };
  CHECK(Lab::decodes_us(32, 1, 8002) > Lab::prompts_us(32, 1, 2 * 8001));
  CHECK(attention(prefill(8000, 2)) == attention(decode(8001)));
  CHECK(attention(prefill(8000, 2)) > attention(prefill(8000, 1)));
}

TEST_CASE("several prompts are as many of their mean area", "[operators]") {
  OperatorCostModel model = model_of("llama-3.1-8b");
  const double pairs = (256 * (1000 + 128.) + 768 * (3000 + 384.)) / 2;
  CHECK(real(model.step_cost(one_pass({prefill(1000, 256), prefill(3000, 768)})).attention_ns) ==
        near(32 * Lab::prompts_us(32, 2, pairs)));
}

TEST_CASE("passes are padded to captured graphs", "[operators]") {
  CostModelConfig config;
  config.max_graph_tokens = 8;
  OperatorCostModel model = model_of("llama-3.1-8b", 1, config);
  const auto linear_ns = [&](int num_decodes) {
    const std::vector<ScheduledChunk> chunks(static_cast<std::size_t>(num_decodes), decode(100));
    return model.step_cost(one_pass(chunks)).linear_ns;
  };
  CHECK(linear_ns(5) == linear_ns(8));
  CHECK(real(linear_ns(3)) == near(linear_us(4, 4)));
  CHECK(linear_ns(9) < linear_ns(16));  // eager
}

TEST_CASE("devices reduce activations and gather logits", "[operators]") {
  const std::vector<ScheduledChunk> decodes(32, decode(1000));
  const StepCost cost = model_of("llama-3.1-8b", 2).step_cost(one_pass(decodes));
  // A measured size, and one that is between two.
  const double expected_us =
      65 * Lab::collective_us(32 * 4096 * 2) + Lab::collective_us(32. * 128256 * 2);
  const auto near = [](double us) { return Approx(1e3 * us).epsilon(1e-4); };  // 65 roundings
  CHECK(real(cost.comm_ns) == near(expected_us));
  // A scenario's link counts before the file's, and its factor in both cases.
  CostModelConfig config;
  config.link_factor = 2;
  CHECK(real(model_of("llama-3.1-8b", 2, config).step_cost(one_pass(decodes)).comm_ns) ==
        near(2 * expected_us));
  config.link = "pcie5-host";
  CHECK(model_of("llama-3.1-8b", 2, config).step_cost(one_pass(decodes)).comm_ns >
        10 * cost.comm_ns);
}

TEST_CASE("norms over the heads of all devices exchange their sums", "[operators]") {
  const StepPlan plan = one_pass({prefill(0, 512)});
  CostModelConfig config;
  config.tensor_parallel_size = 2;
  const auto cost_of = [&](const std::string& architecture) {
    ModelConfig shape = find_model("llama-3.1-8b", {});
    shape.architecture = architecture;
    return OperatorCostModel(operators_of("llama-3.1-8b", 2), shape, h100(), config)
        .step_cost(plan);
  };
  const StepCost plain = cost_of("LlamaForCausalLM");
  const StepCost exchanging = cost_of("MiniMaxM2ForCausalLM");
  // Two sums in fp32 for each of 512 tokens; 2,560 elements of Q and K are read for them.
  CHECK(real(exchanging.comm_ns - plain.comm_ns) ==
        Approx(32e3 * Lab::collective_us(512 * 8)).margin(20));
  CHECK(real(exchanging.linear_ns - plain.linear_ns) ==
        Approx(32e3 * elementwise_us(2. * 512 * 2560)).margin(2));
}

TEST_CASE("fused norms, QK norms and windows change their terms alone", "[operators]") {
  const StepPlan plan = one_pass({decode(3000), decode(100), prefill(300, 400)});
  const ModelConfig llama = find_model("llama-3.1-8b", {});
  OperatorTimes times = operators_of("llama-3.1-8b");
  const auto cost_of = [&](const ModelConfig& model) {
    return OperatorCostModel(times, model, h100(), {}).step_cost(plan);
  };
  const StepCost plain = cost_of(llama);
  ModelConfig normed = llama;
  normed.has_qk_norm = true;
  const double tokens = 416;
  CHECK(real(cost_of(normed).linear_ns - plain.linear_ns) ==
        Approx(32e3 * elementwise_us(4 * tokens * 6144)).margin(2));
  times.fuses_norms = true;
  CHECK(real(plain.linear_ns - cost_of(llama).linear_ns) ==
        Approx(64e3 * elementwise_us(8 * tokens * 4096)).margin(2));
  // An all-reduce of so many bytes still has them inside, a larger one has not.
  const StepCost fused = cost_of(llama);
  times.max_fused_bytes = tokens * 4096 * 2;
  CHECK(cost_of(llama).linear_ns == fused.linear_ns);
  times.max_fused_bytes = tokens * 4096 * 2 - 1;
  CHECK(cost_of(llama).linear_ns == plain.linear_ns);
  ModelConfig windowed = llama;
  windowed.sliding_window = 512;
  windowed.global_layer_interval = 4;
  // Behind 300 tokens, 212 of 400 see less than the window.
  const double pairs = 212 * (300 + 106.) + 188 * 512.;
  const double full_us = Lab::decodes_us(32, 2, 1551) + Lab::prompts_us(32, 1, 400 * (300 + 200.));
  const double cut_us = Lab::decodes_us(32, 2, (512 + 101) / 2.) + Lab::prompts_us(32, 1, pairs);
  CHECK(real(cost_of(windowed).attention_ns) == near(8 * full_us + 24 * cut_us));
  times.windowed = {{{1, 2}, {128, 1024}, {5, 12, 5, 12}}, {{1, 2}, {128, 4096}, {7, 7, 9, 9}}};
  // 400 tokens are 272 / 896 of the way from 128 to 1024.
  CHECK(real(cost_of(windowed).attention_ns) == near(8 * full_us + 24 * (9 + 5 + 7 * 272. / 896)));
}

TEST_CASE("steps of operators hold together, whatever is planned", "[operators]") {
  OperatorCostModel model = model_of("llama-3.1-8b", 2);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed, "plans");
    StepPlan plan = random_plan(rng);
    INFO("seed " << seed);
    const StepCost cost = model.step_cost(plan);
    CHECK(cost.total_ns == cost.linear_ns + cost.attention_ns + cost.comm_ns + cost.overhead_ns);
    CHECK(cost.decode_only_ns <= cost.total_ns);
    plan.chunks.push_back(prefill(draw(rng, 0, 4000), draw(rng, 1, 400)));
    plan.passes.front().end += 1;
    CHECK(model.step_cost(plan).total_ns > cost.total_ns);
  }
}

TEST_CASE("pricing a step of operators allocates nothing", "[operators]") {
  OperatorCostModel model = model_of("llama-3.1-8b", 2);
  std::vector<StepPlan> plans;
  Rng rng(3, "allocations");
  for (int i = 0; i < 50; ++i) plans.push_back(random_plan(rng));
  TimeNs total = 0;
  const std::int64_t before = num_allocations();
  for (const StepPlan& plan : plans) total += model.step_cost(plan).total_ns;
  CHECK(num_allocations() == before);
  CHECK(total > 0);
}

TEST_CASE("a step beyond the operators is counted", "[operators]") {
  OperatorCostModel model = model_of("llama-3.1-8b");
  CHECK_FALSE(model.step_cost(one_pass({prefill(0, 16384)})).is_extrapolated);
  CHECK(model.step_cost(one_pass({prefill(0, 16385)})).is_extrapolated);
  CHECK_FALSE(model.step_cost(one_pass({decode(16383)})).is_extrapolated);
  CHECK(model.step_cost(one_pass({decode(16384)})).is_extrapolated);
  // The shortest of its curves counts.
  OperatorTimes times = operators_of("llama-3.1-8b");
  for (std::vector<double>* values : {&times.mlp.x, &times.mlp.us}) values->resize(11);
  OperatorCostModel shorter(times, find_model("llama-3.1-8b", {}), h100(), {});
  CHECK_FALSE(shorter.step_cost(one_pass({prefill(0, 1024)})).is_extrapolated);
  CHECK(shorter.step_cost(one_pass({prefill(0, 1025)})).is_extrapolated);
}

TEST_CASE("operators survive their file to the bit", "[operators]") {
  ModelConfig llama = find_model("llama-3.1-8b", {});
  OperatorTimes times = operators_of("llama-3.1-8b", 2);
  times.remarks = {"a remark"};
  times.windowed = times.attention;
  const CostModelFile file = file_of(times, llama, 2);
  const std::string text = file.to_json();
  const CostModelFile parsed = parse_cost_model_file(text, "test.json");
  const OperatorTimes read = read_operator_times(parsed);
  CHECK(operator_body(read, llama) == *file.body);
  CHECK(parsed.to_json() == text);
  CHECK(read.remarks == times.remarks);

  CostModelConfig config;
  config.tensor_parallel_size = 2;
  const StepPlan plan = one_pass({decode(3000), decode(100), prefill(300, 400)});
  OperatorCostModel model(times, llama, h100(), config);
  CHECK(make_operator_model(parsed, llama, h100(), config)->step_cost(plan).total_ns ==
        model.step_cost(plan).total_ns);
  llama.n_layers = 16;  // another number of layers is fine
  CHECK(make_operator_model(parsed, llama, h100(), config)->step_cost(plan).total_ns <
        model.step_cost(plan).total_ns);
}

TEST_CASE("a file of operators is for one shape and precision", "[operators]") {
  const ModelConfig llama = find_model("llama-3.1-8b", {});
  const CostModelFile file = file_of(operators_of("llama-3.1-8b"), llama);
  const auto refusal = [&](const ModelConfig& model, const CostModelConfig& config = {}) {
    return error_of([&] { make_operator_model(file, model, h100(), config); });
  };
  CHECK(refusal(llama) == "");
  CHECK(refusal(find_model("qwen3-8b", {})) ==
        "test.json: was measured with llama-3.1-8b, whose ffn_dim is 14336; that of qwen3-8b is "
        "12288; allowed: a model of the same shape");
  ModelConfig other = llama;
  other.linear_format = WeightFormat::Fp8;
  CHECK(refusal(other) ==
        "test.json: was made for linear_format plain; that of llama-3.1-8b is fp8; allowed: a "
        "model of the same precision (scenario key quantization)");
  other = llama;
  other.mlp_format = WeightFormat::Fp8;
  CHECK(refusal(other) ==
        "test.json: was made for mlp_format plain; that of llama-3.1-8b is fp8; allowed: a model "
        "of the same precision (scenario key quantization)");
  other = llama;
  other.bytes_per_kv_element = 1;
  CHECK(contains(refusal(other), "whose bytes_per_kv_element is 2; that of llama-3.1-8b is 1"));
  other = llama;
  other.sliding_window = 1024;
  CHECK(contains(refusal(other), "whose sliding_window is 0"));
  CostModelConfig config;
  config.batching = Batching::Padded;
  CHECK(contains(refusal(llama, config), "cost_model.batching: padded is not"));
  config = {};
  config.gather_kv = true;
  CHECK(contains(refusal(llama, config), "cost_model.gather_kv: test.json was measured"));
}

TEST_CASE("a file of operators is for the same formats of every module", "[operators]") {
  const ModelConfig llama = find_model("llama-3.1-8b", {});
  ModelConfig head = llama;
  head.module_formats = {{ModuleKind::Head, WeightFormat::Int4, 0.515625, 1}};
  ModelConfig output = llama;
  output.module_formats = {{ModuleKind::AttentionOut, WeightFormat::Int4, 0.515625, 1}};
  ModelConfig mlp = llama;
  mlp.mlp_format = WeightFormat::Fp8;
  const OperatorTimes times = operators_of("llama-3.1-8b");
  const auto refusal = [&](const ModelConfig& measured, const ModelConfig& model) {
    const CostModelFile file = file_of(times, measured);
    return error_of([&] { make_operator_model(file, model, h100(), {}); });
  };
  CHECK(refusal(head, head) == "");
  const std::pair<const ModelConfig*, const ModelConfig*> pairs[] = {
      {&head, &llama}, {&llama, &head}, {&head, &output}};
  for (const auto& [measured, model] : pairs) {
    CHECK(refusal(*measured, *model) ==
          "test.json: was made for a model with other formats of some modules than "
          "llama-3.1-8b; allowed: a model of the same precision (scenario key quantization)");
  }
  CHECK(refusal(mlp, mlp) == "");
  CHECK(refusal(mlp, llama) ==
        "test.json: was made for mlp_format fp8; that of llama-3.1-8b is plain; allowed: a model "
        "of the same precision (scenario key quantization)");
}

TEST_CASE("a file of operators with something wrong in it is refused", "[operators]") {
  const ModelConfig llama = find_model("llama-3.1-8b", {});
  const auto refusal = [&](const std::function<void(Json&)>& break_it, std::int64_t tp = 1) {
    CostModelFile file = file_of(operators_of("llama-3.1-8b", tp), llama, tp);
    Json body = *file.body;
    break_it(body);
    file.body = std::make_shared<const Json>(std::move(body));
    return error_of([&] { read_operator_times(file); });
  };
  CHECK(refusal([](Json& body) { body["mlp"]["us"][3] = 1e6; }) ==
        "test.json: body: mlp: us: falls at tokens 16; allowed: times that do not fall");
  CHECK(
      refusal([](Json& body) { body["attention"]["decodes"]["us"][2] = 1e6; }) ==
      "test.json: body: attention: decodes: us: falls at entry 3; allowed: times that do not fall");
  CHECK(contains(refusal([](Json& body) { body["head"]["us"].erase(0); }), "body: head: us: has"));
  CHECK(contains(refusal([](Json& body) { body["head"]["us"][0] = -1; }), "body: head: us"));
  CHECK(contains(refusal([](Json& body) { body.erase("projections"); }), "projections"));
  CHECK(refusal([](Json& body) { body["collectives"] = Json::array(); }, 2) ==
        "test.json: body: collectives: has no all_reduce; allowed: times among 2 devices");
  CHECK(contains(refusal([](Json& body) { body["collectives"][0]["collective"] = "x"; }, 2),
                 "collective: allowed: all_reduce, all_gather"));
}

}  // namespace metronome::testing::TEST_FILE
