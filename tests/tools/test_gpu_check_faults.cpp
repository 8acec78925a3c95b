// SPDX-License-Identifier: Apache-2.0
// tools/gpu_check where something is wrong: each fault is said, costs nothing but itself, and
// leaves its evidence in what comes back.
#include <filesystem>
#include <string>

#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/tools/fake_gpu_build.h"

namespace TEST_FILE {
using namespace metronome::testing;
namespace fs = std::filesystem;

namespace {

// The GPU's folder in an archive of the results.
class Returned {
 public:
  explicit Returned(const FakeGpuBuild& place) : folder_(place.scratch.path() + "/returned") {
    fs::remove_all(folder_);
    const CommandResult result = run_program(
        "tools/gpu_check", "unpack '" + place.scratch.path() + "/kept' --out '" + folder_ + "'");
    INFO(result.err);
    CHECK(result.exit_code == 0);
    folder_ += "/" + place.gpu;
  }
  std::string text(const std::string& name) const { return read_text_file(folder_ + "/" + name); }

 private:
  std::string folder_;
};

std::string archive_option(const FakeGpuBuild& place) {
  return "--archive '" + place.scratch.path() + "/kept' ";
}

}  // namespace

TEST_CASE("gpu_check goes on without an invariance that does not hold",
          "[tools][gpu_check][slow]") {
  const FakeGpuBuild place;
  const CommandResult result =
      place.check("start,bench,decisions", "uneven", archive_option(place));
  CHECK(result.exit_code == 1);
  const Returned returned(place);
  const std::string readme = returned.text("README.md");
  CHECK(contains(readme, "| start | failed: invariance does not hold; later stages ran with "));
  CHECK(contains(readme, "    n 512, k 64: id 66, digest 1234\n"));
  CHECK(contains(readme, "| bench | passed | "));
  CHECK(contains(readme, "| decisions | passed | "));
}

TEST_CASE("a crash costs gpu_check nothing but itself", "[tools][gpu_check][slow]") {
  SECTION("of a run") {
    const FakeGpuBuild place;
    CHECK(place.check("start,bench,decisions", "qwen3-4b", archive_option(place)).exit_code == 1);
    const Returned returned(place);
    const std::string readme = returned.text("README.md");
    CHECK(contains(readme, "| bench | failed: qwen3-4b chunk (exit status -11) | "));
    CHECK(contains(readme, "| decisions | failed: qwen3-4b chunked_prefill: the measured run | "));
    CHECK(contains(readme, "mixed steps: 25.0 %"));
    CHECK(contains(returned.text("decisions.log"), "gemma-3-1b/prefix_caching"));
    CHECK_FALSE(contains(returned.text("decisions.log"), "differ"));
  }
  SECTION("of a test, which is tried again with another build") {
    const FakeGpuBuild place;
    CHECK(place.check("tests", "crash=test_gpu_norm").exit_code == 1);
    const char* fault = "| tests | failed: test_gpu_norm crashed (signal 11) | ";
    CHECK(contains(place.text("README.md"), fault));
    CHECK(contains(place.text("tests.log"), "a case of [#test_gpu_norm]~[slow]\n"));
    CHECK(contains(place.text("tests.log"), "ran [#test_step_timer]~[slow]\n"));
    CHECK(place.check("tests", "", "--resume").exit_code == 1);
    CHECK(contains(place.text("README.md"), fault));
    CHECK_FALSE(contains(place.text("tests.log"), "ran [#test_gpu_norm]"));
    place.write_program("build/metronome_gpu_tests", std::string(kFakeTests) + "# mended\n");
    CHECK(place.check("tests", "", "--resume").exit_code == 0);
    CHECK(contains(place.text("tests.log"), "ran [#test_gpu_norm]~[slow]\n"));
    CHECK(contains(place.text("README.md"), "| tests | passed | "));
  }
}

TEST_CASE("a test that hangs costs its own limit", "[tools][gpu_check][slow]") {
  const FakeGpuBuild place;
  CHECK(place.check("tests", "hang=test_gpu_heads", "--clock-speed 20").exit_code == 1);
  CHECK(contains(place.text("README.md"), "| tests | failed: test_gpu_heads hung | "));
  CHECK(contains(place.text("tests.log"), "a case of [#test_gpu_heads]~[slow]\n"));
  const std::string log = place.text("tests.log");
  // The tests that options rest on come first, the longest tests last.
  const auto index_of = [&](const char* file) { return log.find(std::string("[#test_") + file); };
  CHECK(index_of("gpu_norm]") < index_of("gpu_batching]"));
  CHECK(index_of("gpu_batching]") < index_of("gpu_chunking]"));
  CHECK(index_of("gpu_chunking]") < index_of("gpu_model]"));
  CHECK(index_of("gpu_model]") < index_of("gpu_gemm]"));
  CHECK(index_of("step_timer]") < index_of("gpu_bench]"));
}

TEST_CASE("tests for which no time is left are said, and run by the next call",
          "[tools][gpu_check][slow]") {
  const FakeGpuBuild place;
  // The first file hangs for 40 s of 60, and the next one for what is left.
  CHECK(place.check("tests,slow", "hang=test_gpu", "--budget 60 --clock-speed 10").exit_code == 1);
  const std::string readme = place.text("README.md");
  CHECK(contains(readme,
                 "| tests | failed: test_gpu_norm hung; no time was left for test_gpu_heads, "));
  CHECK(contains(readme, ", test_gpu_bench | "));
  CHECK(contains(readme, "| slow | waiting: no time was left for test_gpu_norm, "));
  CHECK(place.check("tests", "", "--resume").exit_code == 1);
  CHECK(contains(place.text("README.md"), "| tests | failed: test_gpu_norm hung | "));
  CHECK(contains(place.text("tests.log"), "ran [#test_gpu_bench]~[slow]\n"));
}

TEST_CASE("a stage that could not end is not begun", "[tools][gpu_check][slow]") {
  const FakeGpuBuild place;
  CHECK(place.check("calibrate,bench,torch,parity,start", "", "--budget 60").exit_code == 1);
  const std::string readme = place.text("README.md");
  CHECK(contains(readme, "| calibrate | waiting: no time was left for llama-3.2-3b chunk, "));
  CHECK(contains(readme, "| torch | waiting: no time was left for it ("));
  CHECK(contains(readme, "| parity | waiting: no time was left for it ("));
  CHECK(contains(place.text("README.md"), "| start | passed | "));
}

TEST_CASE("what takes too long may hand over what it has", "[tools][gpu_check][slow]") {
  const FakeGpuBuild place;
  CHECK(place
            .check("products", "slow",
                   "--models llama-3.2-3b --clock-speed 30 " + archive_option(place))
            .exit_code == 1);
  const Returned returned(place);
  CHECK(contains(returned.text("README.md"), "| products | failed: llama-3.2-3b (longer than "));
  CHECK(returned.text("products.llama-3.2-3b.json") == "{\"points\": []}\n");
}

TEST_CASE("nothing runs where the programs do not start", "[tools][gpu_check][slow]") {
  const FakeGpuBuild place;
  const CommandResult result = place.check("tests,bench", "dead", archive_option(place));
  CHECK(result.exit_code == 1);
  const Returned returned(place);
  const std::string readme = returned.text("README.md");
  CHECK(contains(readme, "| machine | failed: "));
  CHECK(contains(readme, "does not start (exit status 127)"));
  CHECK(contains(readme, "    no such library\n"));
  CHECK(contains(readme, "| bench | waiting: not started: "));
}

TEST_CASE("reports of garbage are said and shown", "[tools][gpu_check][slow]") {
  const FakeGpuBuild place;
  CHECK(place.check("tests,options,bench,decisions", "garbage", archive_option(place)).exit_code ==
        0);
  const Returned returned(place);
  CHECK(contains(returned.text("options.log"), "options.default.json cannot be read: "));
  CHECK(returned.text("options.default.json") == "{\"points\": 7\n");
  CHECK(contains(returned.text("findings.md"), "| decisions identical in simulation and "));
  CHECK(contains(returned.text("findings.log"), "bench.qwen3-4b.chunk.json is not JSON"));
}

TEST_CASE("a PyTorch that does not come up costs its limit", "[tools][gpu_check][slow]") {
  const FakeGpuBuild place;
  place.scratch.write("python/torch.py",
                      "import os, time\n"
                      "print('libraries:', os.environ.get('LD_LIBRARY_PATH'), flush=True)\n"
                      "time.sleep(100)\n");
  CHECK(place.check("bench,torch", "", "--clock-speed 20", "LD_LIBRARY_PATH=/my/own").exit_code ==
        1);
  CHECK(contains(place.text("README.md"), "| torch | failed: longer than 60 s: "));
  // The user's environment, not that of metronome.
  CHECK(contains(place.text("torch.log"), "libraries: /my/own\n"));
}

TEST_CASE("a state of garbage is said, and every stage begins anew", "[tools][gpu_check][slow]") {
  for (const char* text : {"{", "[]", R"({"build": 3})"}) {
    const FakeGpuBuild place;
    place.scratch.write("out/unknown/state.json", text);
    const CommandResult result = place.check("start", "", "--resume");
    CHECK(result.exit_code == 0);
    CHECK(contains(result.out, ": all stages start again\n"));
    CHECK(contains(place.text("README.md"), "| start | passed | "));
  }
}

TEST_CASE("a call that is killed leaves what it had a moment ago", "[tools][gpu_check][slow]") {
  const FakeGpuBuild place;
  // A copy every 90 s, which are 3 here; each of many files hangs for 1.3.
  place.check("start,tests", "hang=test_gpu",
              "--clock-speed 30 --requests 4 " + archive_option(place), "timeout -s KILL 8");
  const Returned returned(place);
  CHECK(contains(returned.text("start.log"), "--backend=cuda"));
}

TEST_CASE("a test that the end of time cuts short has not hung", "[tools][gpu_check][slow]") {
  const FakeGpuBuild place;
  CHECK(place.check("tests", "hang=test_gpu_norm", "--budget 20 --clock-speed 10").exit_code == 1);
  CHECK(contains(place.text("README.md"),
                 "| tests | waiting: no time was left for test_gpu_norm, test_gpu_heads, "));
  CHECK(place.check("tests", "", "--resume").exit_code == 0);
}

TEST_CASE("an engine that does not start is no invariance that does not hold",
          "[tools][gpu_check][slow]") {
  const FakeGpuBuild place;
  CHECK(place.check("start,bench", "workload.num_requests=2").exit_code == 1);
  CHECK(contains(place.text("README.md"), "| start | failed: exit status -11, twice | "));
  CHECK(contains(place.text("state.json"), "\"invariance\": \"chunk\""));
  CHECK(contains(place.text("README.md"), "| bench | passed | "));
}

TEST_CASE("a disk that is full costs what it has no room for", "[tools][gpu_check][slow]") {
  const FakeGpuBuild place;
  fs::create_directories(place.out + "/unknown");
  for (const char* name : {"progress.log", "state.json.partial", "README.md.partial"}) {
    fs::create_symlink("/dev/full", place.out + "/unknown/" + name);
  }
  const CommandResult result = place.check("start,bench", "", "--resume");
  INFO(result.err);
  CHECK(contains(result.out, "README.md cannot be written: "));
  CHECK(contains(result.out, "gpu_check: bench: passed ("));
}

TEST_CASE("an archive that cannot be replaced stays", "[tools][gpu_check][slow]") {
  const ScratchFolder scratch;
  scratch.write("out/a.log", "first\n");
  // Parts fail to be written, twice.
  const std::string script =
      "import pathlib, sys; sys.path.insert(0, 'tools'); sys.dont_write_bytecode = True\n"
      "from gpu_checks import archive\n"
      "scratch = pathlib.Path('" +
      scratch.path() +
      "')\n"
      "kept = archive.Archive(scratch / 'out', scratch / 'kept')\n"
      "kept.write()\n"
      "(scratch / 'out/a.log').write_text('second')\n"
      "write = pathlib.Path.write_bytes\n"
      "def fail(path, data):\n"
      "    write(path, data[:3])\n"
      "    raise OSError('no room')\n"
      "pathlib.Path.write_bytes = fail\n"
      "for attempt in range(2):\n"
      "    try:\n"
      "        kept.write()\n"
      "    except OSError:\n"
      "        print('no room')\n"
      "pathlib.Path.write_bytes = write\n"
      "archive.unpack_results(scratch / 'kept', scratch / 'seen')\n"
      "print((scratch / 'seen/a.log').read_text(), len(list((scratch / 'kept').iterdir())))\n";
  const std::string path = scratch.write("script.py", script);
  const CommandResult result = run_program("python3", "'" + path + "'");
  INFO(result.err);
  CHECK(result.out == "no room\nno room\nfirst\n 2\n");
}

}  // namespace TEST_FILE
