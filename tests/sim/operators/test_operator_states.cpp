// SPDX-License-Identifier: Apache-2.0
// Linear attention, gates and shared experts composed from tables.
#include <sstream>
#include <string>

#include "core/base/error.h"
#include "core/base/json.h"
#include "sim/measured_model.h"
#include "sim/operators/operator_file.h"
#include "sim/operators/operator_model.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/sim/operators/operator_lab.h"

namespace metronome::testing::TEST_FILE {
namespace {

using StateLab = OperatorTimesLab;

double conv_us(double heads, double sequences, double tokens) {
  return 2 + 1e-4 * heads * sequences * tokens;
}
double delta_us(double heads, double sequences, double tokens) {
  return 5 + 3e-4 * heads * sequences * tokens;
}

// Key heads are half of the value heads. A slower kernel of the same engine stands beside.
void write_states(OperatorFolder& folder, const std::string& engine = "vllm") {
  std::string& meta = folder.files["operators.json"];
  const std::size_t end = meta.rfind('}');
  meta = meta.substr(0, end) + ", \"states\": [128, 64, 4]}";
  for (const bool is_prompts : {true, false}) {
    std::ostringstream out;
    out.precision(15);
    out << "kernel,key_heads,value_heads,sequences,tokens,time_us,engine,version\n";
    for (const double heads : {16., 32.}) {
      for (const double sequences : doubling(1, 256)) {
        for (const double tokens : doubling(1, is_prompts ? 16384 : 1)) {
          const auto row = [&](const char* kernel, double us) {
            out << kernel << ',' << heads / 2 << ',' << heads << ',' << sequences << ',' << tokens
                << ',' << us << ',' << engine << ",1.0\n";
          };
          row("causal_conv1d", conv_us(heads, sequences, tokens));
          row("delta", delta_us(heads, sequences, tokens));
          row("delta_slow", 2 * delta_us(heads, sequences, tokens));
        }
      }
    }
    folder.files[is_prompts ? "context_states.csv" : "decode_states.csv"] = out.str();
  }
}

// Llama-3.1-8B, of whose layers three in four keep states of 32 heads of 128 x 64.
ModelConfig hybrid() {
  ModelConfig model = find_model("llama-3.1-8b", {});
  model.name = "hybrid";
  model.has_gated_attention = true;
  LinearAttention& linear = model.linear_attention;
  for (std::int64_t layer = 0; layer < model.n_layers; ++layer) {
    if (layer % 4 != 3) linear.layers.push_back(layer);
  }
  linear.n_key_heads = 16;
  linear.n_value_heads = 32;
  linear.key_head_dim = 128;
  linear.value_head_dim = 64;
  linear.conv_width = 4;
  return model;
}

OperatorTimes times_of(const ModelConfig& model, std::int64_t tp = 1) {
  OperatorFolder folder;
  write_states(folder);
  return compose_operators(tables_of(folder), model, tp);
}

double value_at(const Curve& curve, double x) {
  bool ignored = false;
  return curve.at(x, ignored);
}

Approx about(double us) { return Approx(us).margin(0.003).epsilon(1e-9); }

}  // namespace

TEST_CASE("layers of linear attention are their products and kernels", "[operators][states]") {
  for (const std::int64_t tp : {1, 2}) {
    CAPTURE(tp);
    const OperatorTimes times = times_of(hybrid(), tp);
    const double share = 1.0 / static_cast<double>(tp);
    const double heads = 32 * share;
    REQUIRE(times.states);
    bool ignored = false;
    // The faster delta rule counts.
    CHECK(times.states->prompts.at(4, 1024, ignored) ==
          about(conv_us(heads, 4, 1024) + delta_us(heads, 4, 1024)));
    CHECK(value_at(times.states->decodes, 64) ==
          about(conv_us(heads, 64, 1) + delta_us(heads, 64, 1)));
    CHECK_FALSE(ignored);
    // Queries and keys of 16 x 128, values and gates of 32 x 64, two numbers a value head.
    CHECK(value_at(times.linear_projections, 512) ==
          Approx(StateLab::product_us(512, (2 * 2048 + 2 * 2048 + 64) * share, 4096) +
                 StateLab::product_us(512, 4096, 2048 * share))
              .epsilon(1e-3));
    // The gate is as wide as the queries.
    CHECK(value_at(times.projections, 512) ==
          Approx(StateLab::product_us(512, (2 * 4096 + 2 * 1024) * share, 4096) +
                 StateLab::product_us(512, 4096, 4096 * share))
              .epsilon(1e-3));
  }
}

TEST_CASE("a hybrid's step, known answers", "[operators][states]") {
  const ModelConfig model = hybrid();
  const HardwareSpec hardware = find_hardware("h100-sxm", {});
  CostModelConfig config;
  config.max_graph_tokens = 0;
  const auto attention_ns = [&](const StepPlan& plan) {
    OperatorCostModel costs(times_of(model), model, hardware, config);
    return static_cast<double>(costs.step_cost(plan).attention_ns);
  };
  StepPlan plan;
  const ScheduledChunk decode = {RequestId{0}, 1023, 1, ChunkKind::Decode, true};
  plan.chunks.assign(64, decode);
  plan.passes.push_back({0, 64});
  const double decodes_us =
      8 * StateLab::decodes_us(32, 64, 1024) + 24 * (conv_us(32, 64, 1) + delta_us(32, 64, 1));
  CHECK(attention_ns(plan) == Approx(1e3 * decodes_us).epsilon(1e-3));
  plan.chunks.assign(1, {RequestId{0}, 0, 4096, ChunkKind::Prefill, true});
  plan.passes.assign(1, {0, 1});
  const double prompt_us = 8 * StateLab::prompts_us(32, 1, 4096.0 * 4096 / 2) +
                           24 * (conv_us(32, 1, 4096) + delta_us(32, 1, 4096));
  CHECK(attention_ns(plan) == Approx(1e3 * prompt_us).epsilon(1e-3));
}

TEST_CASE("shared experts are a product of their own", "[operators][states]") {
  OperatorFolder folder("[4096, 14336, 2, 8]");
  ModelConfig model = find_model("mixtral-8x7b", {});
  model.shared_expert_ffn_dim = 1024;
  const OperatorTimes times = compose_operators(tables_of(folder), model, 1);
  CHECK(value_at(times.shared_experts, 64) ==
        about(StateLab::product_us(64, 2048, 4096) + StateLab::product_us(64, 4096, 1024)));
}

TEST_CASE("a file of a hybrid's operators", "[operators][states]") {
  const ModelConfig model = hybrid();
  const HardwareSpec hardware = find_hardware("h100-sxm", {});
  const OperatorTimes times = times_of(model);
  CostModelFile file = file_of(times, model);
  file.name = "operators.json";
  const OperatorTimes read = read_operator_times(file);
  REQUIRE(read.states);
  CHECK(read.states->prompts.us == times.states->prompts.us);
  CHECK(read.states->decodes.us == times.states->decodes.us);
  CHECK(read.linear_projections.us == times.linear_projections.us);
  CHECK_NOTHROW(make_cost_model(file, model, hardware, {}));

  const auto refusal = [&](const ModelConfig& other) {
    return error_of([&] { make_cost_model(file, other, hardware, {}); });
  };
  ModelConfig other = model;
  other.linear_attention.n_value_heads = 48;
  CHECK(refusal(other) ==
        "operators.json: was measured with hybrid, whose linear_value_heads is 32; that of hybrid "
        "is 48; allowed: a model of the same shape");
  // The operators of a model that attends in all layers.
  const ModelConfig plain = find_model("llama-3.1-8b", {});
  file.model = plain.name;
  file.body = std::make_shared<const Json>(operator_body(operators_of("llama-3.1-8b"), plain));
  CHECK(contains(refusal(model),
                 "was measured with llama-3.1-8b, which has no "
                 "has_gated_attention; that of hybrid is 1"));
  file.kind = "profile";
  CHECK(contains(refusal(model), "is of kind profile, which has no times of linear attention"));
}

TEST_CASE("linear attention that was not measured", "[operators][states]") {
  const auto refusal = [](const OperatorFolder& folder, const ModelConfig& model) {
    return error_of([&] { compose_operators(tables_of(folder), model, 1); });
  };
  CHECK(contains(refusal(OperatorFolder(), hybrid()),
                 "has no linear attention of 16/32 key and value heads of 128 x 64 and a "
                 "convolution of 4; allowed: none was measured"));
  OperatorFolder folder;
  write_states(folder);
  ModelConfig other = hybrid();
  other.linear_attention.n_value_heads = 64;
  CHECK(contains(refusal(folder, other),
                 "16/64 key and value heads of 128 x 64 and a convolution "
                 "of 4; allowed: 16/32, 8/16"));
  // Of another engine, with a remark.
  OperatorFolder sglang;
  write_states(sglang, "sglang");
  const OperatorTimes times = compose_operators(tables_of(sglang), hybrid(), 1);
  REQUIRE(times.remarks.size() == 1);
  CHECK(times.remarks.front() == "linear attention: of sglang 1.0");
}

}  // namespace metronome::testing::TEST_FILE
