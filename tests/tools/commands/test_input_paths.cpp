// SPDX-License-Identifier: Apache-2.0
// Paths of input that cannot be read: each command says in one line which, why, and what it takes.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "tests/catch.h"
#include "tests/command_line.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Workplace {
  Workplace() {
    std::filesystem::create_symlink("loop", path("loop"));
    ::mkfifo(path("pipe").c_str(), 0600);
    scenario = "'" + folder.write("s.yaml", kSmallScenario) + "'";
    trace = "'" +
            folder.write("t.yaml",
                         "model: llama-3.2-1b\nhardware: h200\n"
                         "workload: {trace: {file: t.csv}}\n") +
            "'";
  }

  std::string path(const std::string& name) const { return folder.path() + "/" + name; }

  ScratchFolder folder;
  std::string scenario, trace;
};

// Arguments in which PATH stands for the file, SCENARIO for a scenario that runs, and TRACE for one
// of a trace.
const std::vector<std::string>& uses_of_files() {
  static const std::vector<std::string> uses = {
      "run 'PATH'",
      "report 'PATH'",
      "diagnose 'PATH'",
      "validate 'PATH' 'PATH'",
      "calibrate --from 'PATH' --model tiny-llama",
      "decisions --engine vllm 'PATH'",
      "run SCENARIO --set model='PATH'",
      "run SCENARIO --set hardware='PATH'",
      "run SCENARIO --set cost_model.file='PATH'",
      "run TRACE --set workload.trace.file='PATH'",
      "serve SCENARIO --tokenizer 'PATH' --port 0",
      "serve SCENARIO --chat-template 'PATH' --port 0",
      "serve SCENARIO --ssl-certfile 'PATH' --ssl-keyfile 'PATH' --port 0",
      "chat tiny-llama --prompt x --tokenizer 'PATH'",
      "chat tiny-llama --prompt x --chat-template 'PATH'",
      "bench tiny-llama --predict h200 --measured 'PATH'",
      "bench tiny-llama --predict h200 --cost-model 'PATH'",
      "tune 'PATH'",
      "sweep 'PATH' --over seed=1,2",
      "workload 'PATH'",
  };
  return uses;
}

std::string replaced_all(std::string text, const std::string& part, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += by.size()) {
    text.replace(at, part.size(), by);
  }
  return text;
}

CommandResult use(const Workplace& place, const std::string& arguments, const std::string& path) {
  std::string whole = replaced_all(arguments, "SCENARIO", place.scenario);
  whole = replaced_all(replaced_all(whole, "TRACE", place.trace), "PATH", path);
  return run_metronome(whole, "timeout 20");
}

void check_one_line(const CommandResult& result) {
  INFO(result.err);
  CHECK(result.exit_code == 2);
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  CHECK_FALSE(contains(result.err, "filesystem error"));
  CHECK_FALSE(contains(result.err, "basic_filebuf"));
  CHECK((contains(result.err, "allowed: ") || contains(result.err, "it must be a readable")));
}

}  // namespace

TEST_CASE("a link to itself is named, with the reason", "[cli][paths]") {
  const Workplace place;
  for (const std::string& arguments : uses_of_files()) {
    INFO(arguments);
    const CommandResult result = use(place, arguments, place.path("loop"));
    check_one_line(result);
    CHECK(contains(result.err, place.path("loop")));
    CHECK(contains(result.err, "cannot be read (Too many levels of symbolic links)"));
  }
}

TEST_CASE("a link to itself as a folder of results or a model is named, too", "[cli][paths]") {
  const Workplace place;
  for (const char* arguments : {"run SCENARIO --out 'PATH'", "tune SCENARIO --out 'PATH' --load 1",
                                "serve 'PATH'", "chat 'PATH'", "run SCENARIO --set model='PATH'"}) {
    INFO(arguments);
    const CommandResult result = use(place, arguments, place.path("loop"));
    check_one_line(result);
    CHECK(contains(result.err, "cannot be read (Too many levels of symbolic links)"));
  }
}

TEST_CASE("a model's file that is not there does not exist", "[cli][paths]") {
  const Workplace place;
  for (const char* arguments : {"chat PATH", "serve PATH", "run SCENARIO --set model=PATH"}) {
    for (const char* name : {"no_such.gguf", "no/such.gguf", "no_such/config.json"}) {
      INFO(arguments << ' ' << name);
      const CommandResult result = use(place, arguments, name);
      check_one_line(result);
      CHECK(contains(result.err, std::string(name) + "' does not exist; allowed: "));
    }
  }
}

TEST_CASE("a file whose read fails is named, with the reason", "[cli][paths]") {
  const Workplace place;
  for (const std::string& arguments : uses_of_files()) {
    if (arguments.starts_with("report")) continue;  // takes folders
    INFO(arguments);
    const CommandResult result = use(place, arguments, "/proc/self/mem");
    check_one_line(result);
    CHECK(contains(result.err, "/proc/self/mem"));
    CHECK(contains(result.err, "cannot be read (Input/output error)"));
  }
}

TEST_CASE("no command waits for a device or a pipe", "[cli][paths]") {
  const Workplace place;
  for (const std::string& path : {std::string("/dev/zero"), std::string("/dev/urandom"),
                                  std::string("/dev/full"), place.path("pipe")}) {
    for (const std::string& arguments : uses_of_files()) {
      INFO(arguments << " " << path);
      const CommandResult result = use(place, arguments, path);
      check_one_line(result);
      CHECK(contains(result.err, path));
    }
  }
}

TEST_CASE("a path at which nothing is does not exist", "[cli][paths]") {
  const Workplace place;
  const auto error = [&](const std::string& arguments) {
    return use(place, arguments, place.path("nothing")).err;
  };
  const std::string missing = "metronome: error: " + place.path("nothing") + ": does not exist";
  CHECK(error("diagnose 'PATH'") ==
        missing +
            "; allowed: a result folder, the log of a server, or the result "
            "of a benchmark's client\n");
  CHECK(error("report 'PATH'") ==
        missing + "; allowed: a folder that `metronome run` or `metronome sweep` wrote\n");
  CHECK(error("calibrate --from 'PATH' --model tiny-llama") ==
        missing + "; allowed: a result folder, a vLLM log, a request log, or a CSV of steps\n");
  for (const std::string arguments :
       {"validate 'PATH' 'PATH'", "decisions --engine vllm 'PATH'", "run 'PATH'", "tune 'PATH'",
        "bench tiny-llama --predict h200 --measured 'PATH'"}) {
    INFO(arguments);
    CHECK(error(arguments).starts_with(missing));
  }
}

TEST_CASE("a file where a folder is wanted", "[cli][paths]") {
  const Workplace place;
  CHECK(use(place, "report 'PATH'", place.path("s.yaml"))
            .err.starts_with("metronome: error: " + place.path("s.yaml") +
                             ": is neither JSON, nor YAML of benchmarks, nor a table of metrics; "
                             "allowed: a result of "));
  CHECK(contains(use(place, "diagnose 'PATH'", "/dev/null").err,
                 "/dev/null: is a pipe or a device; allowed: a result folder, the log"));
}

TEST_CASE("a pipe without an end is read up to a limit", "[cli][paths]") {
  const CommandResult result = run_metronome(
      "diagnose /dev/fd/3", "bash -c 'exec 3< <(cat /dev/zero); exec timeout 60 \"$0\" \"$@\"'");
  check_one_line(result);
  CHECK(contains(result.err, "/dev/fd/3: is too large"));
}

TEST_CASE("an option whose value cannot be read says what is allowed", "[cli]") {
  const Workplace place;
  const auto error = [&](const std::string& arguments) { return use(place, arguments, "").err; };
  // One bound, whichever way a value is outside of it.
  for (const char* command : {"sweep", "tune"}) {
    for (const char* jobs : {"99999999999999", "x", "0", "1025"}) {
      INFO(command << ' ' << jobs);
      CHECK(contains(error(std::string(command) + " SCENARIO --jobs " + jobs),
                     "; allowed: 1 to 1024"));
    }
  }
  for (const char* bytes : {"x", "0", "99999999999999999999", "1099511627777"}) {
    INFO(bytes);
    CHECK(contains(error("serve SCENARIO --max-body-bytes " + std::string(bytes)),
                   "; allowed: 1 to 1099511627776"));
  }
  CHECK(contains(error("serve SCENARIO --speed fast"), "; allowed: 0.001 to 1000000"));
  CHECK(contains(error("run SCENARIO --seed 1 --seed 2"), "; allowed: once"));
  CHECK(contains(error("run SCENARIO --out"), "; allowed: --out DIR"));
  CHECK(contains(error("run SCENARIO --varriant x"), ", did you mean 'variant'?"));
  CHECK(contains(error("bench tiny-llama --predict h200 --measured '" + place.path("s.yaml") + "'"),
                 "is not JSON: "));
  CHECK(contains(error("bench tiny-llama --predict h200 --measured '" + place.path("s.yaml") + "'"),
                 "; allowed: JSON"));
}

}  // namespace TEST_FILE
