// `metronome chat` as a user runs it, on small models with drawn weights.
#include <string>

#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/scratch_folder.h"

namespace metronome::testing {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
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
  const CommandResult result =
      run_program("sh", "-c '" + metronome_program() +
                            " chat tiny-llama --temperature 0 --max-tokens 8 < " + lines + "'");
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
        "metronome: error: --temperature: is out of range; allowed: 0 to 2\n");
  CHECK(error("tiny-llama --demo --prompt x") ==
        "metronome: error: --demo: has prompts of its own; allowed: without --prompt\n");
  CHECK(has(error("tiny-lama --prompt x"), "did you mean 'tiny-llama'?"));
}

}  // namespace
}  // namespace metronome::testing
