// SPDX-License-Identifier: Apache-2.0
// How much of a user's text a message repeats.
#include "core/base/clip.h"
#include "core/base/json.h"
#include "core/base/names.h"
#include "tests/catch.h"
#include "tests/command_line.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

std::string parse_error(const std::string& text) {
  try {
    Json::parse(text);
  } catch (const JsonError& error) {
    return error.what();
  }
  return "parsed";
}

}  // namespace

TEST_CASE("a quoted text has 60 bytes at most, and whole characters", "[core][base][clip]") {
  CHECK(clipped("") == "");
  CHECK(clipped(std::string(60, 'a')) == std::string(60, 'a'));
  CHECK(clipped(std::string(61, 'a')) == std::string(60, 'a') + "...");
  CHECK(clipped(std::string(58, 'a') + "\xf0\x9f\x98\x80") == std::string(58, 'a') + "...");
  CHECK(clipped(std::string(59, 'a') + "\xc3\xa9") == std::string(59, 'a') + "...");
  CHECK(clipped(std::string(99, '\x80')).size() <= 63);
}

TEST_CASE("the words and the whole of a message are bounded", "[core][base][clip]") {
  CHECK(bounded_message("a: b; allowed: c") == "a: b; allowed: c");
  const std::string path = "/" + std::string(254, 'p');
  CHECK(bounded_message(path + ": is a folder") == path + ": is a folder");
  CHECK(bounded_message("unknown '" + std::string(1000, 'x') + "'; allowed: y") ==
        "unknown '" + std::string(59, 'x') + "..." + std::string(18, 'x') + "'; allowed: y");
  const std::string many = bounded_message("list " + std::string(100'000, ' ') + "; allowed: y");
  CHECK(many.size() <= 4096 + 3);
  CHECK(many.starts_with("list "));
  CHECK(many.ends_with("; allowed: y"));
  std::string euros;
  for (int i = 0; i < 400; ++i) euros += "\xe2\x82\xac";
  const std::string clipped_euros = bounded_message("a " + euros + " b");
  CHECK(printable(clipped_euros) == clipped_euros);  // no part of a character
}

TEST_CASE("errors of JSON quote little of it", "[core][base][clip][json]") {
  const std::string digits(1'000'000, '9');
  CHECK(parse_error("[1" + digits + "]").size() > 0);
  for (const std::string& text : {"{\"a\": 1" + digits + "e999}", "{\"a\": \"" + digits + "",
                                  "{\"a\": \"" + digits + "\x01\"}", "[" + digits + "x]",
                                  "[1 \"" + digits + "\"]", "nul" + digits}) {
    const std::string error = parse_error(text);
    INFO(error.substr(0, 300));
    CHECK(error.size() < 250);
  }
  CHECK(parse_error("[1e999]").find("'1e999'") != std::string::npos);
}

TEST_CASE("no message repeats a user's text at any length", "[core][base][clip][cli]") {
  const ScratchFolder scratch;
  const std::string many(100'000, '7');
  const std::string scenario = scratch.write("s.yaml", "seed: " + many + "\n" + kSmallScenario);
  const std::string good = "'" + scratch.write("good.yaml", kSmallScenario) + "' ";
  std::string parts = "a";
  for (int i = 0; i < 5000; ++i) parts += ".a";
  const std::string words = "'" + std::string(40'000, 'w') + " " + std::string(40'000, 'w') + "'";
  for (const std::string& arguments :
       {"run '" + scenario + "'", "run " + good + "--set " + parts + "=1",
        "run " + good + "--set engine.max_num_seqs=" + many, "run " + good + "--set model=" + many,
        "run " + good + "--set " + many, "run " + good + "--set workload.trace.file=" + many,
        "run " + good + "--set 'name=" + std::string(90'000, 'n') + "'",
        "run " + good + "--seed " + many, "run " + good + "--backend " + words,
        "sweep " + good + "--jobs " + many, words, "run " + words, "list " + words,
        "run " + good + "--" + many, "run " + good + "--variant " + words, "diagnose " + words,
        "bench " + words + " --predict h100", "run " + good + "--set hardware=" + words}) {
    INFO(arguments.substr(0, 60) << " " << arguments.substr(arguments.size() - 20));
    const CommandResult result = run_metronome(arguments);
    CHECK(result.exit_code == 2);
    CHECK(result.err.size() < 4300);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    CHECK(result.err.find(std::string(200, '7')) == std::string::npos);
    CHECK(result.err.find(std::string(200, 'w')) == std::string::npos);
  }
}

}  // namespace TEST_FILE
