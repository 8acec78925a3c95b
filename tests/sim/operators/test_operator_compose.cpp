// SPDX-License-Identifier: Apache-2.0
// From CSV files to the operators of one model: formulas come back, and what lacks is named.
#include "core/base/json.h"
#include "sim/operators/operator_compose.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/sim/operators/operator_lab.h"

namespace metronome::testing::TEST_FILE {
namespace {

using Lab = OperatorTimesLab;

// Rounded to nanoseconds.
Approx near(double us) { return Approx(us).margin(0.002).epsilon(1e-9); }

ModelConfig model(const std::string& name) { return find_model(name, {}); }

std::string refusal(const OperatorFolder& folder, const ModelConfig& model, std::int64_t tp = 1) {
  return error_of([&] { compose_operators(tables_of(folder), model, tp); });
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  const std::size_t place = text.find(from);
  REQUIRE(place != std::string::npos);
  text.replace(place, from.size(), to);
}

}  // namespace

TEST_CASE("layers are their products", "[operators]") {
  const OperatorTimes times = operators_of("llama-3.1-8b");
  for (const double m : {1., 8., 512., 4096.}) {
    CHECK(at(times.projections, m) ==
          near(Lab::product_us(m, 6144, 4096) + Lab::product_us(m, 4096, 4096)));
    CHECK(at(times.mlp, m) ==
          near(Lab::product_us(m, 28672, 4096) + Lab::product_us(m, 4096, 14336)));
    CHECK(at(times.head, m) == near(Lab::product_us(m, 128256, 4096)));
  }
  bool ignored = false;
  CHECK(times.attention.prompts.at(4, 5e5, ignored) == near(Lab::prompts_us(32, 4, 5e5)));
  CHECK(times.attention.decodes.at(20, 1000, ignored) == near(Lab::decodes_us(32, 20, 1000)));
  CHECK(times.experts.empty());
  CHECK(times.collectives.empty());
  CHECK(times.memory_bandwidth == 3.35e12);
  CHECK_FALSE(times.fuses_norms);
  CHECK(times.remarks.empty());
}

TEST_CASE("devices have their share of products and heads", "[operators]") {
  const OperatorTimes times = operators_of("llama-3.1-8b", 4);
  CHECK(at(times.projections, 64) ==
        near(Lab::product_us(64, 1536, 4096) + Lab::product_us(64, 4096, 1024)));
  CHECK(at(times.mlp, 64) ==
        near(Lab::product_us(64, 7168, 4096) + Lab::product_us(64, 4096, 3584)));
  CHECK(at(times.head, 64) == near(Lab::product_us(64, 32064, 4096)));
  bool ignored = false;
  CHECK(times.attention.decodes.at(20, 1000, ignored) == near(Lab::decodes_us(8, 20, 1000)));
  REQUIRE(times.collectives.size() == 2);
  for (const CollectiveTimes& collective : times.collectives) {
    CHECK(collective.num_devices == 4);
    CHECK(at(collective.us, 1e6) == near(Lab::collective_us(1e6)));
  }
}

TEST_CASE("experts follow the power law, or what was measured", "[operators]") {
  OperatorFolder folder("[4096, 14336, 2, 8]");
  const ModelConfig mixtral = model("mixtral-8x7b");
  const OperatorTimes times = compose_operators(tables_of(folder), mixtral, 1);
  CHECK(times.mlp.empty());
  CHECK(at(times.experts, 64) == near(Lab::experts_us(1, 64) + Lab::product_us(64, 8, 4096) + 1.9));
  CHECK(times.remarks.empty());
  // On 4 devices: those of 2, scaled.
  const OperatorTimes scaled = compose_operators(tables_of(folder), mixtral, 4);
  CHECK(at(scaled.experts, 64) ==
        near(Lab::experts_us(2, 64) / 2 + Lab::product_us(64, 8, 4096) + 1.9));
  CHECK(scaled.remarks == std::vector<std::string>{"experts: measured on 2 devices, scaled to 4"});

  // Two groups of devices have half of the experts each, and divide them among two.
  OperatorFolder divided("[4096, 14336, 2, 8]", 2);
  const OperatorTimes whole = compose_operators(tables_of(divided), mixtral, 4);
  CHECK(at(whole.experts, 64) == near(Lab::experts_us(2, 64) + Lab::product_us(64, 8, 4096) + 1.9));
  CHECK(whole.remarks.empty());

  OperatorFolder restricted("[4096, 14336, 2, 8]");
  replace(restricted.files["operators.json"], "}", ", \"experts_kernel\": \"triton\"}");
  CHECK(compose_operators(tables_of(restricted), mixtral, 1).remarks ==
        std::vector<std::string>{"experts: measured ones by kernels named *triton*"});

  CHECK(refusal(OperatorFolder("[4096, 1024, 2, 8]"), mixtral) ==
        "package 1.0, h100_sxm: has no 2 of 8 experts of 4096 x 14336; allowed: 2 of 8 experts of "
        "4096 x 1024");
  ModelConfig quantised = mixtral;
  quantised.expert_format = WeightFormat::Nvfp4;
  CHECK(refusal(folder, quantised) ==
        "package 1.0, h100_sxm: has no experts of this shape of --quantization nvfp4, each divided "
        "by 1; allowed: none by 1, none by 2");
}

TEST_CASE("products timed with their launches are passed over", "[operators]") {
  ModelConfig quantised = model("llama-3.1-8b");
  quantised.linear_format = WeightFormat::Fp8Block;
  OperatorFolder folder;
  CHECK(refusal(folder, quantised) ==
        "package 1.0, h100_sxm: has no matrix products of --quantization fp8_block; allowed: none");
  folder.write_products("fp8_block", "vllm", 60);
  CHECK(refusal(folder, quantised) ==
        "package 1.0, h100_sxm: has no matrix products of --quantization fp8_block that were not "
        "timed with their launches; allowed: none");
  folder.write_products("fp8_block", "sglang");
  const OperatorTimes times = compose_operators(tables_of(folder), quantised, 1);
  CHECK(at(times.projections, 64) == near(Lab::product_us(64, 6144, 4096, "fp8_block") +
                                          Lab::product_us(64, 4096, 4096, "fp8_block")));
  CHECK(at(times.head, 64) == near(Lab::product_us(64, 128256, 4096)));
  REQUIRE(times.remarks.size() == 2);
  CHECK(contains(times.remarks[0], "not those of vllm 1.0, where the smallest take 65 us"));
  CHECK(times.remarks[1] == "products in fp8_block: of sglang 1.0");
}

TEST_CASE("TensorRT-LLM's products lose what quantising takes", "[operators]") {
  ModelConfig quantised = model("llama-3.1-8b");
  quantised.linear_format = WeightFormat::Fp8;
  OperatorFolder folder;
  replace(folder.files["operators.json"], "\"vllm\"", "\"trtllm\"");
  folder.write_products("fp8", "trtllm", 7);
  const auto projections = [&] {
    return at(compose_operators(tables_of(folder), quantised, 1).projections, 64);
  };
  const double kernels =
      Lab::product_us(64, 6144, 4096, "fp8") + Lab::product_us(64, 4096, 4096, "fp8");
  CHECK(projections() > kernels + 10);
  folder.files["quantize.csv"] = "kind,m,k,time_us,engine,version\n";
  for (const char* row : {"scale_matrix,1,4096,4", "scale_matrix,512,4096,4",
                          "computescale,1,4096,2", "computescale,512,4096,2"}) {
    folder.files["quantize.csv"] += std::string(row) + ",trtllm,1.0\n";
  }
  const double less = projections();
  folder.files["quantize.csv"] += "scale_matrix,1,4096,900,trtllm,0.9\n";  // older: unused
  CHECK(projections() == less);
  CHECK(less < kernels + 7);
  CHECK(less > kernels - 7);
}

TEST_CASE("all-reduces that are fused with norms are TensorRT-LLM's", "[operators]") {
  const ModelConfig llama = model("llama-3.1-8b");
  constexpr double kMiB = 1 << 20;
  OperatorFolder folder;
  for (const char* row : {"1024,2", "67108864,20", "134217728,30"}) {
    folder.files["collectives.csv"] += "all_reduce,2,graph," + std::string(row) + ",trtllm,1.3\n";
  }
  const auto reduce_us = [&](double bytes) {
    return at(compose_operators(tables_of(folder), llama, 2).collectives.front().us, bytes);
  };
  CHECK(reduce_us(64 * kMiB) == near(Lab::collective_us(64 * kMiB)));  // Hopper
  replace(folder.files["operators.json"], "\"sm_version\": 90", "\"sm_version\": 100");
  CHECK(reduce_us(1024) == near(2));
  CHECK(reduce_us(64 * kMiB) == near(20));
  CHECK(reduce_us(128 * kMiB) == near(Lab::collective_us(128 * kMiB)));  // beyond the fusion
  CHECK(compose_operators(tables_of(folder), llama, 2).remarks.front() ==
        "all_reduce: up to 64 MiB of trtllm 1.3, whose kernels are fused with norms");
}

TEST_CASE("MLPs and shared experts may have a format of their own", "[operators]") {
  OperatorFolder folder("[4096, 14336, 2, 8]");
  folder.write_products("fp8");
  ModelConfig mixtral = model("mixtral-8x7b");
  mixtral.shared_expert_ffn_dim = 1024;
  mixtral.mlp_format = WeightFormat::Fp8;
  const OperatorTimes times = compose_operators(tables_of(folder), mixtral, 1);
  CHECK(at(times.shared_experts, 64) ==
        near(Lab::product_us(64, 2048, 4096, "fp8") + Lab::product_us(64, 4096, 1024, "fp8")));
  CHECK(at(times.projections, 64) ==
        near(Lab::product_us(64, 6144, 4096) + Lab::product_us(64, 4096, 4096)));
}

TEST_CASE("the head is a product in its own format", "[operators]") {
  OperatorFolder folder;
  folder.write_products("int4_wo");
  ModelConfig llama = model("llama-3.1-8b");
  const auto head_us = [&] { return at(compose_operators(tables_of(folder), llama, 1).head, 64); };
  const double plain = Lab::product_us(64, 128256, 4096);
  const double int4 = Lab::product_us(64, 128256, 4096, "int4_wo");
  REQUIRE(int4 < plain);
  CHECK(head_us() == near(plain));
  llama.module_formats = {{ModuleKind::Embedding, WeightFormat::Plain, 0, 1},
                          {ModuleKind::Head, WeightFormat::Int4, 0.515625, 1}};
  CHECK(head_us() == near(int4));
  llama.has_tied_embeddings = true;
  llama.module_formats.pop_back();
  CHECK(head_us() == near(plain));
  llama.module_formats = {{ModuleKind::Embedding, WeightFormat::Int4, 0.515625, 1}};
  CHECK(head_us() == near(int4));
  // Not measured, and said so.
  llama.module_formats = {{ModuleKind::Embedding, WeightFormat::WeightOnly, 0.5625, 1}};
  CHECK(head_us() == near(plain));
  CHECK(compose_operators(tables_of(folder), llama, 1).remarks ==
        std::vector<std::string>{"products in weight_only: not measured; those in bfloat16 count"});
}

TEST_CASE("SGLang fuses norms for some models, up to 2,048 tokens", "[operators]") {
  OperatorFolder folder;
  replace(folder.files["operators.json"], "\"vllm\"", "\"sglang\"");
  for (const char* row : {"1024,2", "16777216,20", "33554432,30"}) {
    folder.files["collectives.csv"] += "all_reduce,2,graph," + std::string(row) + ",trtllm,1.3\n";
  }
  ModelConfig fused = model("llama-3.1-8b");
  const auto times = [&] { return compose_operators(tables_of(folder), fused, 2); };
  CHECK_FALSE(times().fuses_norms);  // Llama
  fused.architecture = "Qwen3MoeForCausalLM";
  for (const char* sm_version : {"90", "100"}) {
    CAPTURE(sm_version);
    replace(folder.files["operators.json"], "\"sm_version\": 90",
            std::string("\"sm_version\": ") + sm_version);
    CHECK(times().fuses_norms);
    CHECK(times().max_fused_bytes == 2048 * 4096 * 2);
    const Curve reduce = times().collectives.front().us;
    CHECK(at(reduce, 1024) == near(2));
    CHECK(at(reduce, 2048 * 4096 * 2) == near(20));
    CHECK(at(reduce, 2 * 2048 * 4096 * 2) == near(Lab::collective_us(2 * 2048 * 4096 * 2)));
  }
  replace(folder.files["operators.json"], "\"sm_version\": 100", "\"sm_version\": 89");
  CHECK_FALSE(times().fuses_norms);
}

TEST_CASE("windows without a table cut the lengths of full attention", "[operators]") {
  OperatorFolder folder;
  ModelConfig windowed = model("llama-3.1-8b");
  windowed.sliding_window = 512;
  windowed.global_layer_interval = 2;
  const OperatorTimes cut = compose_operators(tables_of(folder), windowed, 1);
  CHECK_FALSE(cut.windowed);
  CHECK(cut.remarks == std::vector<std::string>{"attention with window 512: not measured; full "
                                                "attention with its lengths cut to the window "
                                                "counts"});
  for (const char* name : {"context_attention.csv", "decode_attention.csv"}) {
    std::string& text = folder.files[name];
    for (const char* count : {"1", "2"}) {
      for (const char* length : {"128", "1024"}) {
        text +=
            std::string("fa,bfloat16,bfloat16,32,8,512,") + count + "," + length + ",20,vllm,1.0\n";
      }
    }
  }
  const OperatorTimes measured = compose_operators(tables_of(folder), windowed, 1);
  REQUIRE(measured.windowed);
  CHECK(measured.windowed->prompts.columns == std::vector<double>{128, 1024});
  CHECK(measured.remarks.empty());
}

TEST_CASE("what tables lack is named", "[operators]") {
  const ModelConfig llama = model("llama-3.1-8b");
  OperatorFolder folder;
  ModelConfig other = llama;
  other.head_dim = 64;
  CHECK(refusal(folder, other) ==
        "package 1.0, h100_sxm: has no attention of head_dim 64; allowed: 128");
  other = llama;
  other.bytes_per_kv_element = 4;
  CHECK(refusal(folder, other) == "package 1.0, h100_sxm: has no KV of 4 bytes; allowed: 1, 2");
  CHECK(refusal(folder, llama, 8) ==
        "package 1.0, h100_sxm: has no all_reduce among 8 devices; allowed: 2, 4");
  folder.files.erase("collectives.csv");
  CHECK(refusal(folder, llama, 2) ==
        "package 1.0, h100_sxm: has no all_reduce among 2 devices; allowed: none was measured");
  folder.files.erase("context_attention.csv");
  CHECK(refusal(folder, llama) ==
        "package 1.0, h100_sxm: has no attention of 32/8 heads; allowed: 16/4, 32/8, 8/2");
  folder.files.erase("gemm.csv");
  CHECK(refusal(folder, llama) ==
        "package 1.0, h100_sxm: has no matrix products of --quantization none; allowed: none was "
        "measured");
}

TEST_CASE("a corrupt table is refused with file and line", "[operators]") {
  const auto error_with = [](const std::string& name, const std::string& text) {
    OperatorFolder folder;
    folder.files[name] = text;
    const ScratchFolder place;
    folder.write(place);
    const std::string error = error_of([&] { read_operator_tables(place.path()); });
    REQUIRE(error.starts_with(place.path() + "/"));
    return error.substr(place.path().size() + 1);
  };
  const std::string gemm = "dtype,m,n,k,time_us,engine,version\n";
  CHECK(error_with("gemm.csv", gemm + "bfloat16,1,128,128,0,vllm,1\n") ==
        "gemm.csv:2: time_us: '0' is not a duration; allowed: above 0, at most 1e9");
  CHECK(error_with("gemm.csv", gemm + "bfloat16,1,128,128,-inf,vllm,1\n") ==
        "gemm.csv:2: time_us: '-inf' is not a number; allowed: a finite number");
  CHECK(error_with("gemm.csv", gemm + "bfloat16,0,128,128,1,vllm,1\n") ==
        "gemm.csv:2: m: is 0; allowed: at least 1");
  CHECK(error_with("gemm.csv", gemm + "bfloat16,1,128,128\n") ==
        "gemm.csv:2: columns: the line has 4 fields; allowed: 7, as the first line has");
  CHECK(error_with("moe.csv", "dtype,tokens\n") ==
        "moe.csv:1: tp: missing column; allowed: a table of dtype, tp, distribution, tokens, "
        "time_us, engine, version");
  CHECK(error_with("collectives.csv",
                   "collective,devices,launch,bytes,time_us,engine,version\nbroadcast,2,graph,1,1,"
                   "nccl,1\n") ==
        "collectives.csv:2: collective: 'broadcast' is unknown; allowed: all_reduce, all_gather, "
        "reduce_scatter, all_to_all");
  CHECK(contains(error_with("operators.json", "{\"package\": 1}"), "operators.json: package"));
}

}  // namespace metronome::testing::TEST_FILE
