// SPDX-License-Identifier: Apache-2.0
// steps.jsonl written beside a run, compared with the file that is written after it.
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/scenario/scenario.h"
#include "reports/files/result_files.h"
#include "reports/files/steps_stream.h"
#include "reports/files/variant_result.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/draws.h"
#include "tests/error_of.h"
#include "tests/fake_run.h"
#include "tests/scratch_folder.h"

namespace metronome::testing::TEST_FILE {
namespace {

// A run of so many steps, half of them repeated ones.
RunRecord run_with(StepSink& sink, std::int32_t num_steps, std::uint64_t seed) {
  Rng rng(seed, "steps stream");
  RunRecorder recorder(0, {}, &sink);
  FakeRun run({&recorder});
  const RequestId long_one = run.submit(0, 10);
  const RequestId prompt = run.submit(0, 1'000'000);
  TimeNs now = 0;
  while (run.next.step_index < num_steps) {
    std::vector<FakeChunk> chunks = {decode(long_one)};
    for (std::int32_t n = draw(rng, 0, 2); n > 0; --n) {
      chunks.push_back(prefill(prompt, draw(rng, 0, 9), draw(rng, 1, 99), false));
    }
    run.next.num_preempted = chance(rng, 0.02) ? 1 : 0;
    run.next.failed = chance(rng, 0.001);
    run.next.num_used_blocks = draw(rng, 0, 1000);
    const TimeNs begin = now + draw(rng, 0, 400);
    run.step(begin, now = begin + draw(rng, 1, 1'000'000), chunks);
    StepRecord last;
    last.num_decode_tokens = 1;
    std::vector<StepTimes> times;
    for (std::int32_t n = draw(rng, 0, 3); n > 0; --n) {
      const TimeNs planned = now;
      now += draw(rng, 1, 1'000'000);
      times.push_back({.planned_at = planned,
                       .started_at = planned,
                       .finished_at = now,
                       .num_used_blocks = draw(rng, 0, 1000)});
    }
    recorder.on_repeats(last, times);
    run.next.step_index += std::ssize(times);
  }
  return recorder.finish();
}

std::string written_after(const RunRecord& record) {
  const ScratchFolder scratch;
  FileWriter file(scratch.path() + "/steps.jsonl");
  write_steps_jsonl(record, file);
  file.close();
  return read_text_file(scratch.path() + "/steps.jsonl");
}

TEST_CASE("steps are written beside the run as they would be after it", "[reports][stream]") {
  for (const std::int32_t num_steps : {0, 1, 127, 128, 8191, 8192, 8193, 16'384, 30'000}) {
    INFO(num_steps << " steps, seed " << num_steps);
    const ScratchFolder scratch;
    const std::string path = scratch.path() + "/steps.jsonl";
    StepsStream stream(path, INT64_MAX);
    const RunRecord record = run_with(stream, num_steps, static_cast<std::uint64_t>(num_steps));
    REQUIRE(stream.finish());
    CHECK(read_text_file(path) == written_after(record));
  }
}

TEST_CASE("a stream ends at its limit, and the run goes on", "[reports][stream]") {
  const ScratchFolder scratch;
  for (const std::int64_t limit : {std::int64_t{100}, std::int64_t{1'000'000}}) {
    StepsStream stream(scratch.path() + "/steps.jsonl", limit);
    const RunRecord record = run_with(stream, 400'000, 1);
    CHECK_FALSE(stream.finish());
    CHECK(std::filesystem::file_size(scratch.path() + "/steps.jsonl") < 2'000'000);
    CHECK(record.steps.size() >= 400'000);
  }
  // Exactly the limit is allowed.
  StepsStream measure(scratch.path() + "/a", INT64_MAX);
  run_with(measure, 5000, 2);
  REQUIRE(measure.finish());
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(scratch.path() + "/a"));
  for (const std::int64_t limit : {size, size - 1}) {
    StepsStream stream(scratch.path() + "/b", limit);
    run_with(stream, 5000, 2);
    CHECK(stream.finish() == (limit == size));
  }
}

TEST_CASE("a full disk ends the stream with an error, and a run may be left", "[reports][stream]") {
  StepsStream stream("/dev/full", INT64_MAX);
  run_with(stream, 20'000, 3);
  CHECK(contains(error_of<std::runtime_error>([&] { stream.finish(); }),
                 "/dev/full: cannot write: "));
  const ScratchFolder scratch;
  CHECK(contains(
      error_of<std::runtime_error>([&] { StepsStream(scratch.path() + "/none/steps.jsonl", 1); }),
      "none/steps.jsonl: cannot write: "));
  StepsStream(scratch.path() + "/left.jsonl", 1);  // as when the run throws
}

// The reader of a pipe pauses, so the thread falls behind until the run waits for it.
TEST_CASE("a run waits for a slow disk", "[reports][stream]") {
  const ScratchFolder scratch;
  const std::string path = scratch.path() + "/pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  std::string lines;
  std::thread reader([&] {
    std::ifstream pipe(path);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    lines.assign(std::istreambuf_iterator<char>(pipe), {});
  });
  StepsStream stream(path, INT64_MAX);
  const RunRecord record = run_with(stream, 700'000, 5);
  stream.finish();
  reader.join();
  CHECK(lines == written_after(record));
}

// With drafts, every line has fields that the first drafts decide.
TEST_CASE("files of a run with drafts are written after it", "[reports][stream]") {
  const ScratchFolder scratch;
  ResultFolder folder(scratch.path() + "/out");
  StepsStream stream(folder.path("steps.jsonl"), INT64_MAX);
  VariantOutcome outcome;
  outcome.record = run_with(stream, 1000, 4);
  outcome.record.drafts.num_drafts = 1;
  CHECK(write_variant(outcome, {.steps = {}, .requests = {}, .trace = false}, folder, "", INT64_MAX,
                      {.steps = &stream, .requests = nullptr})
            .empty());
  const std::string lines = read_text_file(folder.path("steps.jsonl"));
  CHECK(lines == written_after(outcome.record));
  CHECK(contains(lines, "\"draft_ns\":0"));
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
