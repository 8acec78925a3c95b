// SPDX-License-Identifier: Apache-2.0
// `metronome chat` as a user runs it, on small models with drawn weights.
#include <set>
#include <string>

#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/models/weights/gguf_models.h"
#include "tests/scratch_folder.h"

namespace metronome::testing::TEST_FILE {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A conversation whose lines are those of a file.
CommandResult chat_lines(const std::string& file) {
  return run_program("sh", "-c '" + metronome_program() +
                               " chat tiny-llama --temperature 0 --max-tokens 8 < " + file + "'");
}

TEST_CASE("chat answers a prompt and shows its times", "[cli][chat]") {
  const CommandResult result = run_metronome(
      "chat tiny-llama --prompt Hello --temperature 0 --max-tokens 12 --set "
      "sampling.ignore_eos=true");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(has(result.out, "first token "));
  // "user: Hello", a line break and "assistant:" by bytes.
  CHECK(has(result.out, "(22 prompt tokens, 0 of them cached)"));
  CHECK(has(result.out, "longest "));
  // The likeliest tokens are the same every time.
  const CommandResult again = run_metronome(
      "chat tiny-llama --prompt Hello --temperature 0 --max-tokens 12 --set "
      "sampling.ignore_eos=true");
  CHECK(again.out.substr(0, again.out.find("first token ")) ==
        result.out.substr(0, result.out.find("first token ")));
}

TEST_CASE("a later turn finds the earlier ones in the cache", "[cli][chat]") {
  const ScratchFolder folder;
  const std::string lines = folder.write("lines.txt",
                                         "Tell me of the sea, of ships and of their lamps.\n"
                                         "And of the wind?\n/new\nHello\n\nnot read\n");
  const CommandResult result = chat_lines(lines);
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  // 65 tokens of the first prompt: whole blocks of 16 are found again.
  CHECK(has(result.out, "(65 prompt tokens, 0 of them cached)"));
  CHECK(has(result.out, ", 64 of them cached)"));
  CHECK(has(result.out, "(22 prompt tokens, 0 of them cached)"));
  CHECK(!has(result.out, "not read"));
}

TEST_CASE("the demonstration shows one long gap, and the same texts in chunks", "[cli][chat]") {
  const CommandResult result = run_metronome("chat tiny-llama --demo");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(has(result.out, "The long prompt is computed in one step:"));
  CHECK(has(result.out, "63 prompt tokens"));  // a chunk beside the short answer's decode
  CHECK(has(result.out, "longest gap"));
  CHECK(has(result.out, "Both ways gave the same texts."));
}

TEST_CASE("chat reads its options first", "[cli][chat]") {
  const auto error = [](const std::string& arguments) {
    const CommandResult result = run_metronome("chat " + arguments);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    return result.err;
  };
  CHECK(error("") ==
        "metronome: error: chat: give one model, not 0 (see `metronome chat --help`)\n");
  CHECK(error("tiny-llama --max-tokens 0") ==
        "metronome: error: --max-tokens: 0 is out of range; allowed: 1 to 1000000\n");
  CHECK(error("tiny-llama --temperature 3") ==
        "metronome: error: --temperature: 3 is out of range; allowed: 0 to 2\n");
  for (const std::string option :
       {"--prompt x", "--system x", "--max-tokens 512", "--temperature 0.7", "--seed 3"}) {
    CHECK(error("tiny-llama --demo " + option) ==
          "metronome: error: --demo: has prompts and settings of its own; allowed: without " +
              option.substr(0, option.find(' ')) + "\n");
  }
  CHECK(error("scenarios/cpu.yaml --demo") ==
        "metronome: error: --demo: needs a model; scenarios/cpu.yaml is a scenario; allowed: a "
        "name, a GGUF file or a folder\n");
  CHECK(has(error("tiny-lama --prompt x"), "did you mean 'tiny-llama'?"));
  // The weights of a published model are not drawn without a word.
  for (const std::string model : {"llama-3.1-8b", "qwen3-0.6b"}) {
    const std::string refused = error(model + " --prompt x");
    CHECK(has(refused, "the weights of " + model + " are not on this machine"));
    CHECK(has(refused, "`tools/model smollm2` and the name smollm2, or --set weights=random\n"));
    const CommandResult served = run_metronome(
        "serve quickstart --variant budget-1024 --port 0 "
        "--backend=cpu --set model=" +
        model);
    CHECK(served.exit_code == 2);
    CHECK(has(served.err, "the weights of " + model + " are not on this machine"));
  }
}

TEST_CASE("the demonstration fits the model's context", "[cli][chat]") {
  const CommandResult result =
      run_metronome("chat tiny-llama --demo --set engine.max_model_len=256");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(has(result.out, "Both ways gave the same texts."));
  // By bytes a line of the logbook has 78 to 81 tokens: one more has no room beside the answer.
  const std::size_t at = result.out.find("The long prompt's answer (");
  REQUIRE(at != std::string::npos);
  const int num_tokens = std::stoi(result.out.substr(at + 26));
  CHECK(num_tokens > 256 - 16 - 81);
  CHECK(num_tokens <= 256 - 16);

  const CommandResult brief = run_metronome("chat tiny-llama --demo --set engine.max_model_len=64");
  CHECK(brief.exit_code == 2);
  CHECK(brief.out.empty());
  CHECK(brief.err ==
        "metronome: error: --demo: the short prompt: the model's context is 64 tokens; the prompt "
        "has 58, max_tokens asks for 48 more; allowed: a shorter prompt, or fewer tokens\n");
  const CommandResult no_day =
      run_metronome("chat tiny-llama --demo --set engine.max_model_len=120");
  CHECK(no_day.exit_code == 2);
  CHECK(no_day.out.empty());
  CHECK(no_day.err ==
        "metronome: error: --demo: the model's context is 120 tokens; allowed: room for a prompt "
        "of several chunks of 64 tokens, and its answer\n");
}

TEST_CASE("chat takes texts of any bytes", "[cli][chat]") {
  const ScratchFolder folder;
  const std::string lines = folder.write("lines.txt", "a\xff\xfez\nHello\n");
  const CommandResult result = chat_lines(lines);
  INFO(result.err);
  CHECK(result.exit_code == 0);
  // Two characters U+FFFD of three bytes each, and "user: az", a line break and "assistant:".
  CHECK(has(result.out, "(25 prompt tokens, "));
  for (const std::string option : {"--prompt", "--system"}) {
    const CommandResult refused =
        run_metronome("chat tiny-llama " + option + " \"$(printf 'a\\377')\"");
    CHECK(refused.exit_code == 2);
    CHECK(refused.out.empty());
    CHECK(refused.err ==
          "metronome: error: " + option + ": is not UTF-8; allowed: a text in UTF-8\n");
  }
  const CommandResult model = run_metronome("chat \"$(printf 'a\\377')\"");
  CHECK(model.exit_code == 2);
  CHECK(has(model.err, "metronome: error: 'a\\xff' is not UTF-8; allowed: "));
}

TEST_CASE("chat reads lines that end with CR and LF", "[cli][chat]") {
  const ScratchFolder folder;
  const std::string lines = folder.write("lines.txt", "Tell\r\n/new\r\nHello\r\n\r\nnot read\r\n");
  const CommandResult result = chat_lines(lines);
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(has(result.out, "(21 prompt tokens, 0 of them cached)"));
  CHECK(has(result.out, "(22 prompt tokens, "));
  CHECK(!has(result.out, "not read"));
}

TEST_CASE("chat says where an answer was cut", "[cli][chat]") {
  const std::string ask = "chat tiny-llama --prompt Hello --temperature 0 ";
  CHECK(has(run_metronome(ask + "--max-tokens 12").out, " (cut at 12 tokens)\n"));
  CHECK(has(run_metronome(ask + "--max-tokens 1").out,
            "(22 prompt tokens, 0 of them cached) (cut at 1 token)\n"));
  CHECK(has(run_metronome(ask + "--set engine.max_model_len=40").out, " (cut at 18 tokens)\n"));
  // A simulated answer ends by itself.
  const CommandResult whole = run_metronome(
      "chat tiny-llama --prompt Hello --backend sim --set hardware=h100-sxm --max-tokens 200");
  CHECK(whole.exit_code == 0);
  CHECK(has(whole.out, "; then 63 tokens, "));
  CHECK(!has(whole.out, "(cut at"));
}

TEST_CASE("a question that cannot be answered fails the command", "[cli][chat]") {
  const CommandResult longer =
      run_metronome("chat tiny-llama --set engine.max_model_len=20 --prompt Hello");
  CHECK(longer.exit_code == 2);
  CHECK(longer.out.empty());
  CHECK(longer.err ==
        "metronome: error: --prompt: the model's context is 20 tokens; the prompt has 22; "
        "allowed: a shorter prompt, or fewer tokens\n");
  const CommandResult blocks =
      run_metronome("chat tiny-llama --set kv_cache.num_blocks=2 --prompt Hello");
  CHECK(blocks.exit_code == 1);
  CHECK(blocks.out.empty());
  CHECK(blocks.err.starts_with("metronome: error: "));

  const ScratchFolder folder;
  const std::string lines = folder.write("lines.txt", "Hello\nHello\n");
  const CommandResult typed = run_program(
      "sh", "-c '" + metronome_program() +
                " chat tiny-llama --set kv_cache.num_blocks=2 --max-tokens 8 < " + lines + "'");
  INFO(typed.out);
  CHECK(typed.exit_code == 0);
  // A question without an answer is forgotten: the second one fails for the same reason.
  const std::size_t first = typed.out.find("\n(");
  REQUIRE(first != std::string::npos);
  const std::string reason = typed.out.substr(first + 1, typed.out.find('\n', first + 1) - first);
  CHECK(has(typed.out, reason + reason));
}

// A model of few tokens with drawn weights, which fit no tokenizer.
std::string small_model(const ScratchFolder& folder, int vocab_size) {
  folder.write("config.json",
               R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1,
                   "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2,
                   "num_key_value_heads": 2, "max_position_embeddings": 256,
                   "rms_norm_eps": 1e-5, "torch_dtype": "float32", "eos_token_id": null,
                   "vocab_size": )" +
                   std::to_string(vocab_size) + "}");
  return "chat '" + folder.path() + "' --set weights=random --prompt a ";
}

TEST_CASE("chat warns beside an answer, too", "[cli][chat]") {
  const ScratchFolder folder;
  const CommandResult result = run_metronome(small_model(folder, 200) + "--max-tokens 4");
  CHECK(result.exit_code == 0);
  CHECK(has(result.err, "warning: the tokenizer has "));
  CHECK(has(result.err,
            " tokens and the model 200: a text with a token beyond the model's is "
            "refused\n"));
  CHECK(!has(result.out, "warning"));
}

TEST_CASE("chat draws tokens as the model's generation_config.json asks", "[cli][chat]") {
  const ScratchFolder folder;
  const std::string ask = small_model(folder, 300) + "--max-tokens 12 ";
  // The answers of three seeds.
  const auto answers = [&](const std::string& options) {
    std::set<std::string> texts;
    for (const char* seed : {"1", "2", "3"}) {
      const std::string out = run_metronome(ask + options + "--seed " + seed).out;
      texts.insert(out.substr(0, out.find("first token ")));
    }
    return texts.size();
  };
  CHECK(answers("") == 3);
  folder.write("generation_config.json", R"({"temperature": 0.6, "top_k": 1})");
  CHECK(answers("") == 1);
  CHECK(answers("--generation-config vllm ") == 3);
  const ScratchFolder other;
  other.write("generation_config.json", R"({"temperature": 0})");
  CHECK(answers("--generation-config '" + other.path() + "' --set seed=5 ") == 1);
  const CommandResult none = run_metronome(ask + "--generation-config /no/folder");
  CHECK(none.exit_code == 2);
  CHECK(none.err ==
        "metronome: error: --generation-config: /no/folder has no generation_config.json; allowed: "
        "auto, vllm, a folder that has one\n");
  folder.write("generation_config.json", R"({"top_p": 2})");
  const CommandResult wrong = run_metronome(ask);
  CHECK(wrong.exit_code == 2);
  CHECK(wrong.err == "metronome: error: " + folder.path() +
                         "/generation_config.json: top_p: is 2; allowed: numbers above 0, to 1\n");
}

TEST_CASE("tabs of an answer stay tabs", "[cli][chat]") {
  const ScratchFolder folder;
  // The model's tokens: the letter a, a tab and a line break.
  const std::string tokenizer =
      folder.write("tabs.json",
                   R"({"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer":
          {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
           "use_regex": false}, "post_processor": null, "decoder": {"type": "ByteLevel",
           "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
          "model": {"type": "BPE", "vocab": {"a": 0, "ĉ": 1, "Ċ": 2}, "merges": []}})");
  const std::string chat = folder.write("plain.jinja", "{{ messages[0]['content'] }}");
  const CommandResult result =
      run_metronome(small_model(folder, 3) + "--temperature 2 --max-tokens 64 --tokenizer '" +
                    tokenizer + "' --chat-template '" + chat + "'");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const std::string answer = result.out.substr(0, result.out.find("first token "));
  CHECK(has(answer, "\t"));
  CHECK(has(answer, "a"));
  CHECK(!has(answer, "\\"));
}

TEST_CASE("errors of chat and serve name the model", "[cli][chat]") {
  const auto error = [](const std::string& arguments) {
    const CommandResult result = run_metronome(arguments);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    return result.err;
  };
  for (const std::string command : {"chat", "serve"}) {
    CHECK(error(command + " tiny-llama --backend sim") ==
          "metronome: error: tiny-llama: hardware: required key is missing (`--set "
          "hardware=NAME`): --backend sim predicts step times; allowed: a name of `metronome list "
          "hardware`, or the path of a YAML file with one entry\n");
    CHECK(
        error(command + " no/file --backend cpu")
            .starts_with("metronome: error: no/file: model: no such file or repository: no/file"));
    CHECK(has(error(command + " tiny-llama --backend cpu --set engine.max_num_seqs=0"),
              "metronome: error: --set engine.max_num_seqs: "));
  }
  CHECK(has(error("chat tiny-llama --set 'scheduler={policy: slo}' --set "
                  "kv_cache.enable_prefix_caching=false --set slo.itl_ms=50 --prompt x"),
            "(`--set hardware=NAME`): policy 'slo' predicts step times; "));

  const ScratchFolder folder;
  GgufBytes bytes = keys_of("qwen3");
  bytes.u32("qwen3.attention.value_length", 2);
  const std::string file = folder.write("values.gguf", with_table(bytes).bytes());
  CHECK(error("chat " + file + " --prompt x") ==
        "metronome: error: " + file + ": model: cannot be computed here: " + file +
            ": qwen3.attention.value_length: values of another length than keys are not supported; "
            "allowed: 4\n");
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
