// SPDX-License-Identifier: Apache-2.0
// Latent attention composed from tables.
#include <sstream>
#include <string>

#include "core/base/error.h"
#include "core/base/json.h"
#include "sim/measured_model.h"
#include "sim/operators/latent_times.h"
#include "sim/operators/operator_file.h"
#include "sim/operators/operator_model.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/sim/operators/operator_lab.h"

namespace metronome::testing::TEST_FILE {
namespace {

using Lab = OperatorTimesLab;

// The products of one side of the latent space.
double side_us(double heads, double tokens, bool is_entry) {
  return (is_entry ? 3 : 5) + 1e-3 * heads * tokens;
}

// Kernels of TensorRT-LLM, and those of SGLang: the same for decodes, three times as long for
// prompts. Products of 4 to 32 heads.
void write_latent(OperatorFolder& folder) {
  std::string& meta = folder.files["operators.json"];
  const std::string head_dim = "\"head_dim\": 128";
  meta.replace(meta.find(head_dim), head_dim.size(), "\"head_dim\": 192");
  meta = meta.substr(0, meta.rfind('}')) + ", \"latent\": [512, 128, 64, 128]}";
  std::ostringstream prompts;
  std::ostringstream decodes;
  std::ostringstream products;
  for (std::ostringstream* out : {&prompts, &decodes, &products}) out->precision(15);
  const std::string start = "kernel,dtype,kv_dtype,heads,kv_heads,window,";
  prompts << start << "prompts,tokens,time_us,engine,version\n";
  decodes << start << "sequences,context,time_us,engine,version\n";
  products << "side,dtype,heads,tokens,time_us,engine,version\n";
  for (const char* engine : {"sglang", "trtllm"}) {
    const double slowness = std::string(engine) == "sglang" ? 3 : 1;
    for (const double heads : {8., 16., 32.}) {
      for (const double count : doubling(1, 256)) {
        for (const double length : doubling(2, 16384)) {
          std::ostringstream row;
          row << "mla,bfloat16,bfloat16," << heads << ',' << heads << ",0," << count << ',';
          prompts << row.str() << length << ','
                  << slowness * Lab::prompts_us(heads, count, length * length / 2) << ',' << engine
                  << ",1.0\n";
          decodes << row.str() << length - 1 << ',' << Lab::decodes_us(heads, count, length) << ','
                  << engine << ",1.0\n";
        }
      }
    }
  }
  for (const double heads : {4., 8., 16., 32.}) {
    for (const double tokens : doubling(1, 16384)) {
      for (const bool is_entry : {true, false}) {
        const auto row = [&](const char* dtype, double us) {
          products << (is_entry ? "mla_gen_pre," : "mla_gen_post,") << dtype << ',' << heads << ','
                   << tokens << ',' << us << ",sglang,1.0\n";
        };
        row("bfloat16", side_us(heads, tokens, is_entry));
        row("fp8", side_us(heads, tokens, is_entry) / 2);
      }
    }
  }
  folder.files["context_attention.csv"] = prompts.str();
  folder.files["decode_attention.csv"] = decodes.str();
  folder.files["latent_products.csv"] = products.str();
}

// Dense layers of 32 heads of DeepSeek's sizes.
ModelConfig latent_model(std::int64_t q_rank = 1536) {
  ModelConfig model = find_model("llama-3.1-8b", {});
  model.name = "latent";
  model.n_kv_heads = model.n_heads;
  model.head_dim = 192;
  model.latent_attention = {
      .kv_rank = 512, .q_rank = q_rank, .nope_dim = 128, .rope_dim = 64, .value_dim = 128};
  return model;
}

OperatorTimes times_of(const ModelConfig& model, std::int64_t tp = 1) {
  OperatorFolder folder;
  write_latent(folder);
  return compose_operators(tables_of(folder), model, tp);
}

Approx about(double us) { return Approx(us).epsilon(1e-3).margin(0.003); }

bool has_remark(const OperatorTimes& times, const std::string& text) {
  for (const std::string& remark : times.remarks) {
    if (contains(remark, text)) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("layers of latent attention are their products and kernels", "[operators][latent]") {
  for (const std::int64_t tp : {1, 2}) {
    CAPTURE(tp);
    const OperatorTimes times = times_of(latent_model(), tp);
    const double heads = 32.0 / static_cast<double>(tp);
    REQUIRE(times.latent);
    // Every device computes both latent vectors: 1,536 and 512 + 64 numbers.
    CHECK(at(times.projections, 512) ==
          about(Lab::product_us(512, 1536 + 576, 4096) + Lab::product_us(512, heads * 192, 1536) +
                Lab::product_us(512, 4096, heads * 128)));
    CHECK(at(times.latent->expansion, 4096) == about(Lab::product_us(4096, heads * 256, 512)));
    CHECK(at(times.latent->absorption, 64) ==
          about(side_us(heads, 64, true) + side_us(heads, 64, false)));
    bool ignored = false;
    CHECK(times.attention.prompts.at(4, 1024.0 * 1024 / 2, ignored) ==
          about(Lab::prompts_us(heads, 4, 1024.0 * 1024 / 2)));
    CHECK(times.attention.decodes.at(64, 1024, ignored) == about(Lab::decodes_us(heads, 64, 1024)));
    CHECK(has_remark(times,
                     "latent attention of prompts: not those of sglang 1.0, which take 3.0 times "
                     "as long as others"));
    CHECK(has_remark(times, "attention of prompts: of trtllm 1.0"));
    CHECK(has_remark(times, "attention of decodes: of sglang 1.0"));
  }
  // Queries that no latent vector stands between.
  CHECK(at(times_of(latent_model(0)).projections, 512) ==
        about(Lab::product_us(512, 32 * 192 + 576, 4096) + Lab::product_us(512, 4096, 4096)));
}

TEST_CASE("products in fp8 where projections are, and other heads", "[operators][latent]") {
  OperatorFolder folder;
  write_latent(folder);
  const OperatorTables tables = tables_of(folder);
  std::vector<std::string> remarks;
  const double whole = side_us(32, 64, true) + side_us(32, 64, false);
  CHECK(at(latent_products(tables, 32, WeightFormat::Plain, remarks), 64) == about(whole));
  CHECK(at(latent_products(tables, 32, WeightFormat::Nvfp4, remarks), 64) == about(whole));
  CHECK(at(latent_products(tables, 32, WeightFormat::Fp8Block, remarks), 64) == about(whole / 2));
  remarks.clear();
  CHECK(at(latent_products(tables, 48, WeightFormat::Plain, remarks), 64) == about(1.5 * whole));
  CHECK(remarks ==
        std::vector<std::string>{
            "products into and out of the latent space: of sglang 1.0",
            "products into and out of the latent space: 48 heads are 32 heads times 1.50"});
  CHECK(latent_products({}, 32, WeightFormat::Plain, remarks).empty());
}

TEST_CASE("a step with latent attention, known answers", "[operators][latent]") {
  const ModelConfig model = latent_model();
  const HardwareSpec hardware = find_hardware("h100-sxm", {});
  CostModelConfig config;
  config.max_graph_tokens = 0;
  const auto attention_us = [&](const StepPlan& plan) {
    OperatorCostModel costs(times_of(model), model, hardware, config);
    return static_cast<double>(costs.step_cost(plan).attention_ns) / 1e3;
  };
  StepPlan plan;
  plan.chunks.assign(64, {RequestId{0}, 1023, 1, ChunkKind::Decode, true});
  plan.passes.push_back({0, 64});
  CHECK(attention_us(plan) == about(32 * (Lab::decodes_us(32, 64, 1024) + side_us(32, 64, true) +
                                          side_us(32, 64, false))));
  // A chunk of 3,072 behind 1,024 expands 4,096 positions: a product, and their joined keys.
  plan.chunks.assign(1, {RequestId{0}, 1024, 3072, ChunkKind::Prefill, true});
  plan.passes.assign(1, {0, 1});
  const double joined_us = 1 + 4. * 4096 * 32 * 192 / (0.88 * 3.35e12) * 1e6;
  CHECK(attention_us(plan) == about(32 * (Lab::prompts_us(32, 1, 3072. * (1024 + 1536)) +
                                          Lab::product_us(4096, 32 * 256, 512) + joined_us)));
  // Two tokens behind 16,382 have few pairs. They read the expanded keys and values at least:
  // 192 + 128 numbers of each head.
  plan.chunks.assign(1, {RequestId{0}, 16382, 2, ChunkKind::Prefill, true});
  const auto moved_us = [](double numbers) { return 1 + 2 * numbers / (0.88 * 3.35e12) * 1e6; };
  const double positions = 16384;
  const double read_us = moved_us(positions * 32 * (192 + 128));
  CHECK(read_us > Lab::prompts_us(32, 1, 2. * 16383));
  CHECK(attention_us(plan) == about(32 * (read_us + Lab::product_us(positions, 32 * 256, 512) +
                                          moved_us(2 * positions * 32 * 192))));
}

TEST_CASE("decodes with drafts fill tiles with the heads that share a latent vector",
          "[operators][latent]") {
  const ModelConfig model = latent_model();
  OperatorCostModel costs(times_of(model), model, find_hardware("h100-sxm", {}), {});
  StepPlan plan;
  plan.passes.push_back({0, 1});
  const auto is_outside = [&](std::int32_t num_tokens) {
    plan.chunks.assign(1, {RequestId{0}, 1000, num_tokens, ChunkKind::Decode, true});
    return costs.step_cost(plan).is_extrapolated;
  };
  CHECK_FALSE(is_outside(4));  // 128 queries of 32 heads
  CHECK(is_outside(5));
}

TEST_CASE("without a latent vector of queries it has no norm", "[operators][latent]") {
  const HardwareSpec hardware = find_hardware("h100-sxm", {});
  StepPlan plan;
  plan.chunks.assign(1, {RequestId{0}, 1023, 1, ChunkKind::Decode, true});
  plan.passes.push_back({0, 1});
  const auto linear_us = [&](std::int64_t q_rank) {
    const ModelConfig model = latent_model(q_rank);
    OperatorTimes times = times_of(model);
    for (double& us : times.projections.us) us = 10;
    OperatorCostModel costs(times, model, hardware, {});
    return static_cast<double>(costs.step_cost(plan).linear_ns) / 1e3;
  };
  CHECK(linear_us(1536) - linear_us(0) == Approx(32 * 1.9).margin(0.01));
}

TEST_CASE("a file of latent attention's operators", "[operators][latent]") {
  const ModelConfig model = latent_model();
  const HardwareSpec hardware = find_hardware("h100-sxm", {});
  const OperatorTimes times = times_of(model);
  CostModelFile file = file_of(times, model);
  file.name = "operators.json";
  const OperatorTimes read = read_operator_times(file);
  REQUIRE(read.latent);
  CHECK(read.latent->expansion.us == times.latent->expansion.us);
  CHECK(read.latent->absorption.us == times.latent->absorption.us);
  CHECK_NOTHROW(make_cost_model(file, model, hardware, {}));

  const auto refusal = [&](const ModelConfig& other) {
    return error_of([&] { make_cost_model(file, other, hardware, {}); });
  };
  ModelConfig other = model;
  other.latent_attention.q_rank = 0;
  CHECK(refusal(other) ==
        "operators.json: was measured with latent, whose latent_q_rank is 1536; that of latent "
        "is 0; allowed: a model of the same shape");
  Json body = *file.body;
  body.erase("latent");
  file.body = std::make_shared<const Json>(body);
  CHECK(contains(refusal(model), "has no times of latent attention; allowed: operators of latent"));
  // Kernel profiles have none.
  file.kind = "profile";
  CHECK(contains(refusal(model), "is of kind profile, which has no times of latent attention"));
}

TEST_CASE("latent attention that was not measured", "[operators][latent]") {
  const auto refusal = [](const OperatorFolder& folder, const ModelConfig& model) {
    return error_of([&] { compose_operators(tables_of(folder), model, 1); });
  };
  ModelConfig other = latent_model();
  other.latent_attention.kv_rank = 256;
  OperatorFolder folder;
  write_latent(folder);
  CHECK(contains(refusal(folder, other),
                 "has no latent attention of 256/128/64/128; allowed: 512/128/64/128"));
  folder.files.erase("latent_products.csv");
  CHECK(contains(refusal(folder, latent_model()),
                 "has no products into and out of the latent space; allowed: none was measured"));
  other = latent_model();
  other.head_dim = 128;
  CHECK(contains(refusal(OperatorFolder(), other),
                 "has no latent attention of 512/128/64/128; allowed: none was measured"));
}

}  // namespace metronome::testing::TEST_FILE
