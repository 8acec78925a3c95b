// SPDX-License-Identifier: Apache-2.0
// `metronome serve` names the template, the tokenizer and the weights at its start.
#include <filesystem>
#include <string>

#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/places.h"
#include "tests/scratch_folder.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

std::string fixtures() { return std::string(source_dir()) + "/tests/fixtures"; }

// A scenario whose model is a folder with a tokenizer.
std::string write_scenario(const ScratchFolder& folder) {
  std::filesystem::copy(fixtures() + "/models/llama-mha/config.json",
                        folder.path() + "/config.json");
  std::filesystem::copy(fixtures() + "/tokenizers/smollm2.json", folder.path() + "/tokenizer.json");
  return folder.write("s.yaml", "model: " + folder.path() +
                                    "\nhardware: h200\nengine: {max_model_len: 128}\nworkload:\n"
                                    "  num_requests: 1\n"
                                    "  arrivals: {process: poisson, rate: 1}\n"
                                    "  prompt_tokens: {distribution: fixed, value: 10}\n"
                                    "  output_tokens: {distribution: fixed, value: 10}\n");
}

}  // namespace

TEST_CASE("a template that cannot be rendered ends serve at its start", "[serve]") {
  const ScratchFolder folder;
  const std::string scenario = write_scenario(folder);
  folder.write("chat_template.jinja", "a\n{% include 'x' %}");
  const CommandResult of_folder = run_metronome("serve " + scenario + " --port 0");
  CHECK(of_folder.exit_code == 2);
  CHECK(contains(of_folder.err, folder.path() + "/chat_template.jinja: line 2: the tag include is "
                                                "not supported; allowed: if, for, "));
  const std::string file = folder.write("own.jinja", "{{ x | urlize }}");
  const CommandResult of_option =
      run_metronome("serve " + scenario + " --port 0 --chat-template " + file);
  CHECK(of_option.exit_code == 2);
  CHECK(contains(of_option.err, file + ": line 1: the filter urlize is not supported; allowed: "));
}

TEST_CASE("serve says that weights are random and that a token is a byte", "[serve][slow]") {
  const ScratchFolder folder;
  const std::string scenario = write_scenario(folder);
  const auto banner = [&](const std::string& options) {
    return run_metronome("serve " + scenario + " --port 0 " + options, "timeout --signal=INT 5")
        .out;
  };
  CHECK(contains(banner(""), "\ntokenizer   " + folder.path() + "/tokenizer.json\n"));
  const std::string computed = banner("--backend cpu --set model=tiny-llama");
  CHECK(contains(computed, "\nweights     random, "));
  CHECK(contains(computed, "\ntokenizer   bytes: one token per byte, as the model has no "));
}

TEST_CASE("serve asks for no workload that it does not read", "[serve]") {
  const ScratchFolder folder;
  const std::string scenario =
      folder.write("served.yaml",
                   "model: tiny-llama\nengine: {max_num_seqs: 8, max_model_len: 512}\n"
                   "kv_cache: {num_blocks: 256}\n"
                   "scheduler: {policy: vllm, max_num_batched_tokens: 512}\n");
  const std::string serve = "serve " + scenario + " --port 0 ";
  CHECK(contains(run_metronome(serve + "--backend=cpu", "timeout --signal=INT 3").out,
                 "\nserving     http://127.0.0.1:"));
  const CommandResult simulated = run_metronome(serve + "--set hardware=h200");
  CHECK(simulated.exit_code == 2);
  CHECK(contains(simulated.err, "workload.output_tokens"));
  CHECK(contains(run_metronome(serve + "--set hardware=h200 --set workload.output_tokens.value=9",
                               "timeout --signal=INT 3")
                     .out,
                 "\nserving     http://127.0.0.1:"));
}

TEST_CASE("serve says which template it uses", "[serve][slow]") {
  const ScratchFolder folder;
  const std::string scenario = write_scenario(folder);
  const auto banner = [&] {
    return run_metronome("serve " + scenario + " --port 0", "timeout --signal=INT 5").out;
  };
  CHECK(contains(banner(),
                 "\ntemplate    roles and contents in lines, as the model has no chat "
                 "template here\n"));
  folder.write("chat_template.jinja", "{{ messages[0].content }}");
  CHECK(contains(banner(), "\ntemplate    " + folder.path() + "/chat_template.jinja\n"));
}

}  // namespace TEST_FILE
