// SPDX-License-Identifier: Apache-2.0
// `metronome calibrate --import` of operator tables: from a folder of CSV files, and through the
// tool, for which a script of this test stands in.
#include "core/base/json.h"
#include "sim/cost/cost_model_file.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/sim/operators/operator_lab.h"

namespace metronome::testing::TEST_FILE {
namespace {

CommandResult import_from(const std::string& folder, const std::string& options,
                          const std::string& prefix = "") {
  return run_metronome("calibrate --import '" + folder + "' " + options, prefix);
}

std::string error_from(const std::string& folder, const std::string& options,
                       const std::string& prefix = "") {
  const CommandResult result = import_from(folder, options, prefix);
  CHECK(result.exit_code == 2);
  CHECK(result.out == "");
  return result.err;
}

// A folder that looks like the package, and a python3 that runs `script` instead of the tool, whose
// arguments begin with TOOL --venv operators FROM OUT. A prefix for the command.
std::string with_python(const ScratchFolder& folder, const std::string& script) {
  folder.write("package/systems/data/h100_sxm/none", "");
  const std::string python = folder.write("bin/python3", "#!/bin/sh\n" + script);
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  return "PATH='" + folder.path() + "/bin'";
}

}  // namespace

TEST_CASE("operators of a folder become a cost model that runs", "[operators][cli]") {
  const ScratchFolder folder;
  const std::string tables = OperatorFolder().write(folder);
  const std::string out = folder.path() + "/model.json";
  const CommandResult result = import_from(tables, "--model llama-3.1-8b --out '" + out + "'");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.out ==
        "operators     package 1.0 (Apache-2.0), h100_sxm: llama-3.1-8b on h100-sxm, "
        "tensor_parallel_size 1, vllm 1.0\n"
        "products      1 to 16,384 tokens\n"
        "attention     1 to 256 prompts of 2 to 16,384 tokens\n"
        "              1 to 256 decodes at contexts of 2 to 16,384\n"
        "wrote         " +
            out + ", " + std::to_string(read_text_file(out).size() / 1000) + "," +
            std::to_string(1000 + read_text_file(out).size() % 1000).substr(1) + " bytes\n");
  const CostModelFile file = parse_cost_model_file(read_text_file(out), out);
  CHECK(file.kind == "operators");
  CHECK(file.hardware == "h100-sxm");
  CHECK(file.engine == "vllm 1.0");
  CHECK(file.source == "package 1.0 (Apache-2.0), h100_sxm");

  const std::string scenario =
      folder.write("run.yaml",
                   "model: llama-3.1-8b\nhardware: h100-sxm\ncost_model: {file: model.json}\n"
                   "workload: {num_requests: 20, arrivals: {rate: 10}, prompt_tokens: {value: "
                   "500}, output_tokens: {value: 20}}\n");
  const CommandResult run =
      run_metronome("run '" + scenario + "' -q --out '" + folder.path() + "/run'");
  INFO(run.err);
  CHECK(run.exit_code == 0);
}

TEST_CASE("operators are imported at the precision that is asked for", "[operators][cli]") {
  const ScratchFolder folder;
  OperatorFolder tables;
  tables.write_products("fp8");
  tables.write(folder);
  const std::string out = folder.path() + "/model.json";
  const std::string own = folder.write(
      "own.yaml",
      "own-h100: {peak_flops: 9e14, peak_bandwidth: 3e12, memory_bytes: 80000000000}\n");
  REQUIRE(import_from(folder.path(),
                      "--model llama-3.1-8b --quantization fp8 --kv-dtype fp8 --tp 2 "
                      "--source own --hardware '" +
                          own + "' --out '" + out + "'")
              .exit_code == 0);
  const CostModelFile file = parse_cost_model_file(read_text_file(out), out);
  CHECK(file.tensor_parallel_size == 2);
  CHECK(file.hardware == "own-h100");
  CHECK(file.source == "own");
  CHECK(file.body->at("formats").at("linear_format").string() == "fp8");
  CHECK(file.body->at("shape").at("bytes_per_kv_element").get<int>() == 1);
  CHECK(file.body->at("remarks").size() == 2);  // attention of prompts and decodes with bf16 KV
}

TEST_CASE("routers are imported as vLLM computes them", "[operators][cli]") {
  const ScratchFolder folder;
  // The experts' own shape.
  OperatorFolder("[3072, 1536, 8, 256]").write(folder);
  const auto remarks = [&](const std::string& options) {
    const CommandResult result =
        import_from(folder.path(), "--model minimax-m2.5 --quantization none " + options);
    INFO(result.err);
    CHECK(result.exit_code == 0);
    return result.out;
  };
  CHECK(contains(remarks(""), "remark        router in float32: not measured"));
  CHECK(contains(remarks("--router-dtype tf32"), "remark        router in tf32: not measured"));
  CHECK_FALSE(contains(remarks("--router-dtype bfloat16"), "router in"));
}

TEST_CASE("what cannot be imported is said in one line", "[operators][cli]") {
  const ScratchFolder folder;
  const std::string tables = OperatorFolder().write(folder);
  const auto error = [&](const std::string& options) { return error_from(tables, options); };
  CHECK(error("") ==
        "metronome: error: --model: is missing; allowed: a name of `metronome list models`, or a "
        "config.json\n");
  CHECK(error("--model llama-3.1-8b --quantization fp9") ==
        "metronome: error: --quantization: 'fp9' is unknown, did you mean 'fp8'?; allowed: none, "
        "fp8, fp8_block, nvfp4, "
        "mxfp4, int4\n");
  CHECK(error("--model llama-3.1-8b --quantization mxfp4") ==
        "metronome: error: --quantization: mxfp4 stores experts, and llama-3.1-8b has none; "
        "allowed: none, fp8, fp8_block, nvfp4, int4\n");
  CHECK(
      error("--model llama-3.1-8b --kv-dtype fp4") ==
      "metronome: error: --kv-dtype: 'fp4' is unknown, did you mean 'fp8'?; allowed: bf16, fp8\n");
  CHECK(error("--model mixtral-8x7b --router-dtype fp32") ==
        "metronome: error: --router-dtype: 'fp32' is unknown, did you mean 'tf32'?; allowed: "
        "bfloat16, tf32, float32\n");
  CHECK(error("--model llama-3.1-8b --router-dtype tf32") ==
        "metronome: error: --router-dtype: has no effect, as llama-3.1-8b has no experts; allowed: "
        "leave the option out\n");
  CHECK(error("--model llama-3.1-8b --experts-kernel triton") ==
        "metronome: error: --experts-kernel: has no effect, as llama-3.1-8b has no experts; "
        "allowed: leave the option out\n");
  CHECK(contains(error("--model mixtral-8x7b --experts-kernel triton"),
                 "--experts-kernel: has no effect, as " + tables + " has one time of each size"));
  CHECK(run_metronome("calibrate --from x --experts-kernel triton").err ==
        "metronome: error: --experts-kernel: has no effect; allowed: with --import of operator "
        "tables\n");
  CHECK(error("--model llama-3.1-8b --engine orca") ==
        "metronome: error: --engine: 'orca' is unknown; allowed: vllm, sglang, trtllm\n");
  CHECK(error("--model llama-3.1-8b --hardware h200") ==
        "metronome: error: --hardware: h200 is not the GPU of --system h100_sxm; allowed: "
        "h100-sxm, a YAML file with an entry of its own, or leave the option out\n");
  CHECK(import_from(tables, "--model llama-3.1-8b --hardware h100").exit_code == 0);
  CHECK(error_from("/nowhere", "--model llama-3.1-8b") ==
        "metronome: error: --import: /nowhere does not exist; allowed: a folder with kernel times, "
        "a wheel of aiconfigurator-core, or the folder it unpacks to\n");
  CHECK(error("--model llama-3.1-8b --system b200_sxm") ==
        "metronome: error: --system: b200_sxm is not that of " + tables + "; allowed: h100_sxm\n");
  CHECK(error("--model mixtral-8x7b") ==
        "metronome: error: package 1.0, h100_sxm: has no 2 of 8 experts of 4096 x 14336; allowed: "
        "none was measured\n");
  CHECK(contains(error("--model llama-3.1-8b --tp 3"), "--tp: 3 cannot be used with llama-3.1-8b"));
  const CommandResult unused = run_metronome("calibrate --from x --system h100_sxm");
  CHECK(unused.err ==
        "metronome: error: --system: has no effect; allowed: with --import of operator tables\n");
}

TEST_CASE("the tool reads what the program cannot", "[operators][cli]") {
  const ScratchFolder folder;
  const ScratchFolder ready;
  OperatorFolder().write(ready);
  const std::string package = folder.path() + "/package";
  const std::string options = "--model llama-3.1-8b --system h100_sxm";
  const std::string prefix =
      with_python(folder, "echo \"$@\" >'" + folder.path() + "/log'\n/bin/cp '" + ready.path() +
                              "'/* \"$5\"\n");
  const CommandResult result = import_from(package, options + " --tp 2 --quantization fp8", prefix);
  CHECK(result.err ==
        "metronome: error: package 1.0, h100_sxm: has no matrix products of --quantization fp8; "
        "allowed: none\n");
  const CommandResult plain = import_from(package, options, prefix);
  INFO(plain.err);
  CHECK(plain.exit_code == 0);
  const std::string log = read_text_file(folder.path() + "/log");
  const std::string out = log.substr(log.find(package) + package.size() + 1);
  CHECK(contains(log, "/tools/import_tables --venv operators " + package + " "));
  CHECK(contains(log, " --system h100_sxm --engine vllm --dtypes bfloat16 --head-dim 128\n"));
  CHECK_FALSE(std::filesystem::exists(out.substr(0, out.find(' '))));

  CHECK(error_from(package, "--model llama-3.1-8b", prefix) ==
        "metronome: error: --system: is missing; allowed: a system of the package, such as "
        "h100_sxm\n");
  with_python(folder, "echo a long story; echo import_tables: no such luck >&2; exit 3\n");
  CHECK(error_from(package, options, prefix) == "metronome: error: import_tables: no such luck\n");
  with_python(folder, "kill -9 $$\n");
  CHECK(error_from(package, options, prefix) == "metronome: error: import_tables: was stopped\n");
  CHECK(error_from(package, options, "PATH=/nowhere") ==
        "metronome: error: --import: python3 cannot be run; allowed: a python3 in PATH, or a "
        "folder that tools/import_tables wrote elsewhere\n");
}

}  // namespace metronome::testing::TEST_FILE
