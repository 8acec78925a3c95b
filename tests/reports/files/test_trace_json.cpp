// SPDX-License-Identifier: Apache-2.0
// trace.json: read back, it keeps the rules of the trace event format and says what the record
// says.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "core/base/json.h"
#include "core/base/json_text.h"
#include "reports/files/request_slices.h"
#include "reports/files/result_files.h"
#include "reports/files/result_reader.h"
#include "system/file_writer.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/fake_run.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;
namespace {

constexpr const char* kTight =
    "--set kv_cache.num_blocks=130 --set engine.max_waiting_requests=6 "
    "--set workload.arrivals.rate=60 --set workload.output_tokens.value=300 "
    "--set workload.num_requests=60 --set workload.prompt_tokens.max=1200 ";

TimeNs ns(const Json& us) { return static_cast<TimeNs>(std::llround(us.get<double>() * 1000)); }

struct Slice {
  TimeNs begin = 0;
  TimeNs end = 0;
  const Json* event = nullptr;
};
using Track = std::pair<int, std::int64_t>;

struct Trace {
  Json json;
  std::map<Track, std::vector<Slice>> slices;  // by begin, the longer first
  std::vector<const Json*> steps, stalls, counters, starts, ends;

  explicit Trace(const std::string& text) : json(Json::parse(text)) {
    for (const Json& event : json.at("traceEvents")) sort_in(event);
    for (auto& [track, all] : slices) {
      std::stable_sort(all.begin(), all.end(), [](const Slice& a, const Slice& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
      });
    }
  }

  // The innermost slice of a track around a time.
  const Slice* slice_at(Track track, TimeNs time) const {
    const Slice* found = nullptr;
    for (const Slice& slice : slices.at(track)) {
      if (slice.begin <= time && time <= slice.end &&
          (found == nullptr || slice.end - slice.begin < found->end - found->begin)) {
        found = &slice;
      }
    }
    return found;
  }

 private:
  // Checks the fields that each phase must have.
  void sort_in(const Json& event) {
    const std::string phase = event.at("ph").string();
    REQUIRE(event.at("name").is_string());
    const Track track{event.at("pid").get<int>(), event.at("tid").get<std::int64_t>()};
    // No number is a track of both processes.
    REQUIRE((track.first == 2) == (track.second >= 1000));
    if (phase == "M") {
      REQUIRE(event.at("args").size() == 1);
      return;
    }
    REQUIRE(event.at("ts").is_number());
    if (phase == "X") {
      REQUIRE(event.at("dur").get<double>() >= 0);
      const TimeNs begin = ns(event.at("ts"));
      slices[track].push_back({begin, begin + ns(event.at("dur")), &event});
      if (track == Track{1, 1}) steps.push_back(&event);
    } else if (phase == "i") {
      REQUIRE(event.at("s") == "t");
      stalls.push_back(&event);
    } else if (phase == "C") {
      for (const auto& [name, value] : event.at("args").items()) REQUIRE(value.is_number());
      counters.push_back(&event);
    } else {
      REQUIRE((phase == "s" || phase == "f"));
      REQUIRE(event.at("cat") == "chunk");
      REQUIRE(event.contains("id"));
      (phase == "s" ? starts : ends).push_back(&event);
      if (phase == "f") REQUIRE(event.at("bp") == "e");
    }
  }
};

void check_nesting(const Trace& trace) {
  for (const auto& [track, slices] : trace.slices) {
    std::vector<TimeNs> open;
    for (const Slice& slice : slices) {
      while (!open.empty() && open.back() <= slice.begin) open.pop_back();
      if (!open.empty() && slice.end > open.back()) FAIL(slice.event->dump());
      open.push_back(slice.end);
      REQUIRE(open.size() <= (track.first == 1 ? 1 : 2));
    }
  }
}

// Rules of the Trace Event Format beside nesting: times that are not negative, counters that
// do not go back in time, arrows of one id that have one start and one end, not before it, and a
// name for every process and track.
void check_format(const Trace& trace) {
  std::map<std::string, TimeNs> last_counter;
  std::map<std::int64_t, std::pair<TimeNs, int>> starts, ends;  // time, and how many
  std::set<int> used_processes, named_processes;
  std::set<Track> used, named;
  for (const Json& event : trace.json.at("traceEvents")) {
    const std::string phase = event.at("ph").string();
    const Track track{event.at("pid").get<int>(), event.at("tid").get<std::int64_t>()};
    if (phase == "M") {
      if (event.at("name") == "process_name") REQUIRE(named_processes.insert(track.first).second);
      if (event.at("name") == "thread_name") REQUIRE(named.insert(track).second);
      continue;
    }
    const TimeNs time = ns(event.at("ts"));
    REQUIRE(time >= 0);
    used_processes.insert(track.first);
    if (phase == "C") {
      const auto [last, is_first] = last_counter.try_emplace(event.at("name").string(), time);
      REQUIRE((is_first || last->second < time));
      last->second = time;
      continue;  // a counter is its process's
    }
    used.insert(track);
    if (phase != "s" && phase != "f") continue;
    auto& [at, count] = (phase == "s" ? starts : ends)[event.at("id").get<std::int64_t>()];
    at = time;
    ++count;
  }
  REQUIRE(starts.size() == ends.size());
  for (const auto& [id, start] : starts) {
    REQUIRE((start.second == 1 && ends.count(id) == 1 && ends.at(id).second == 1));
    REQUIRE(start.first <= ends.at(id).first);
  }
  const auto has_all = [](const auto& all, const auto& some) {
    return std::includes(all.begin(), all.end(), some.begin(), some.end());
  };
  CHECK(has_all(named_processes, used_processes));
  CHECK(has_all(named, used));
  CHECK(trace.json.at("displayTimeUnit") == "ms");  // or "ns", nothing else
}

void check_steps(const Trace& trace, const RunRecord& record) {
  REQUIRE(trace.steps.size() == record.steps.size());
  TimeNs free_at = 0;
  for (std::size_t s = 0; s < record.steps.size(); ++s) {
    const StepEntry& step = record.steps[s];
    const Json& event = *trace.steps[s];
    const Json& args = event.at("args");
    REQUIRE(ns(event.at("ts")) == std::max(step.started_at, free_at));
    REQUIRE(ns(event.at("ts")) + ns(event.at("dur")) == step.finished_at);
    REQUIRE(args.at("prefill_tokens") == step.num_prefill_tokens);
    REQUIRE(args.at("decode_tokens") == step.num_decode_tokens);
    REQUIRE(args.at("kv_blocks") == step.num_used_blocks);
    REQUIRE(args.at("preemptions") == static_cast<int>(step.num_preempted));
    REQUIRE(args.value("chunks", Json::array()).size() ==
            static_cast<std::size_t>(step.num_prefill_chunks));
    free_at = step.finished_at;
  }
}

void check_counters(const Trace& trace, const StoredRun& run) {
  std::size_t next = 0;
  int running = -1, waiting = -1;
  double used = -1;
  const double num_blocks = static_cast<double>(run.result.info.num_blocks);
  for (const StepEntry& step : run.record.steps) {
    for (; next < trace.counters.size(); ++next) {
      const Json& event = *trace.counters[next];
      if (ns(event.at("ts")) > step.planned_at) break;
      const Json& args = event.at("args");
      if (event.at("name") == "requests") {
        running = args.at("running").get<int>();
        waiting = args.at("waiting").get<int>();
      } else {
        used = args.at("used %").get<double>();
      }
    }
    REQUIRE((running == step.num_running && waiting == step.num_waiting));
    REQUIRE(used == 100.0 * step.num_used_blocks / num_blocks);
  }
  REQUIRE(ns(trace.counters.back()->at("ts")) == run.record.steps.back().finished_at);
}

void check_arrows(const Trace& trace, const RunRecord& record) {
  REQUIRE(trace.starts.size() == record.prefills.size());
  REQUIRE(trace.ends.size() == record.prefills.size());
  for (std::size_t i = 0; i < trace.starts.size(); ++i) {
    const Json& start = *trace.starts[i];
    const Json& end = *trace.ends[i];
    REQUIRE(start.at("id") == end.at("id"));
    const Slice* chunk =
        trace.slice_at({2, start.at("tid").get<std::int64_t>()}, ns(start.at("ts")));
    const Slice* step = trace.slice_at({1, 1}, ns(end.at("ts")));
    REQUIRE((chunk != nullptr && step != nullptr));
    REQUIRE(chunk->event->at("name").get<std::string>().starts_with("prefill chunk "));
    REQUIRE(chunk->event->at("args").at("step") == step->event->at("args").at("step"));
    REQUIRE((chunk->begin == step->begin && chunk->end == step->end));
    const auto id = start.at("id").get<std::size_t>();
    REQUIRE(chunk->event->at("args").at("prefill_tokens") == record.prefills[id].num_tokens);
  }
}

// Checks the sums of the slices of each request.
void check_requests(const Trace& trace, const RunRecord& record) {
  struct Sums {
    TimeNs queue_ns = 0;
    std::int64_t output_tokens = 0, prefill_tokens = 0;
    int num_chunks = 0, num_preemptions = 0;
  };
  std::map<std::size_t, Sums> sums;
  std::map<Track, std::size_t> current;
  for (const Json& event : trace.json.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("pid") != 2) continue;
    const Track track{2, event.at("tid").get<std::int64_t>()};
    const std::string name = event.at("name").string();
    if (name.starts_with("request ")) {
      current[track] = std::stoul(name.substr(8));
      sums[current[track]];
      continue;
    }
    Sums& sum = sums[current.at(track)];
    const Json& args = event.at("args");
    if (name == "queue") sum.queue_ns += ns(event.at("dur"));
    if (name == "preempted") ++sum.num_preemptions;
    sum.output_tokens += args.value("output_tokens", 0).get<int>();
    if (!name.starts_with("prefill chunk ")) continue;
    REQUIRE(std::stoi(name.substr(14)) == ++sum.num_chunks);
    sum.prefill_tokens += args.at("prefill_tokens").get<int>();
  }
  REQUIRE(sums.size() == record.requests.size());
  std::map<std::size_t, std::int64_t> prefill_tokens;
  for (const PrefillChunk& chunk : record.prefills) {
    prefill_tokens[index(chunk.request)] += chunk.num_tokens;
  }
  for (const auto& [i, sum] : sums) {
    const RequestRecord& request = record.requests[i];
    INFO("request " << i);
    if (request.first_scheduled != kNoTime) REQUIRE(sum.queue_ns == record.queue_ns(i));
    REQUIRE(sum.output_tokens == request.num_output_tokens);
    REQUIRE(sum.num_chunks == request.num_prefill_chunks);
    REQUIRE(sum.num_preemptions == request.num_preemptions);
    REQUIRE(sum.prefill_tokens == prefill_tokens[i]);
  }
}

void check_stalls(const Trace& trace) {
  REQUIRE_FALSE(trace.stalls.empty());
  TimeNs longest = INT64_MAX;
  for (const Json* event : trace.stalls) {
    const Json& args = event->at("args");
    const auto part = [&](const char* name) { return ns(args.at(name).get<double>() * 1000); };
    REQUIRE(part("gap_ms") == part("decode_ms") + part("prefill_ms") + part("host_ms") +
                                  part("waiting_ms") + part("preemption_ms"));
    REQUIRE(part("gap_ms") <= longest);
    longest = part("gap_ms");
    REQUIRE((part("prefill_ms") + part("preemption_ms") == 0) == !args.contains("culprit"));
  }
}

std::string trace_of(const RunRecord& record, const RunInfo& info,
                     std::size_t max_bytes = kMaxTraceBytes) {
  const ScratchFolder scratch;
  FileWriter file(scratch.path() + "/trace.json");
  write_trace_json(record, info, file, max_bytes);
  file.close();
  return read_text_file(scratch.path() + "/trace.json");
}

StoredRun run_small(const ScratchFolder& scratch, const std::string& options) {
  const std::string file = scratch.write("small.yaml", kSmallScenario);
  const std::string out = scratch.path() + "/out";
  const CommandResult run = run_metronome("run '" + file + "' -q --out '" + out + "' " + options);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  return read_result(out);
}

}  // namespace

TEST_CASE("a trace says what the record says, by the rules of its format", "[reports][trace]") {
  std::int64_t num_preemptions = 0, num_refused = 0;
  for (const char* policy :
       {"continuous", "chunked --set scheduler.prefill_chunk_size=64", "token_budget", "static",
        // With this seed the engine never plans two steps with other counts at one instant.
        "vllm --set engine.async_depth=2 --set seed=5", "single_prefill",
        "sglang --set engine.async_depth=1", "sarathi", "simple_chunking",
        "vllm --set engine.async_depth=1 --set workload.num_requests=250 "
        "--set workload.arrivals.rate=9"}) {
    INFO(policy);
    const ScratchFolder scratch;
    const StoredRun run =
        run_small(scratch, std::string(kTight) + " --set scheduler.policy=" + policy);
    const std::string text = read_text_file(run.folder + "/trace.json");
    CHECK(text == trace_of(run.record, run.result.info));
    const Trace trace(text);
    check_format(trace);
    check_nesting(trace);
    check_steps(trace, run.record);
    check_counters(trace, run);
    check_arrows(trace, run.record);
    check_requests(trace, run.record);
    check_stalls(trace);
    num_preemptions += run.result.summary.num_preemptions;
    num_refused += run.result.summary.refused;
    const bool has_lanes = text.find("\"lane 1\"") != std::string::npos;
    CHECK(has_lanes == (run.record.requests.size() > kMaxRequestTracks));
    if (has_lanes) CHECK(trace.slices.size() < 50);
  }
  CHECK(num_preemptions > 10);
  CHECK(num_refused > 10);
}

TEST_CASE("a trace that would be too large shows the longest stall", "[reports][trace]") {
  const ScratchFolder scratch;
  const StoredRun run = run_small(scratch, std::string(kTight) + "--set workload.num_requests=300");
  const std::string text = trace_of(run.record, run.result.info, 200'000);
  CHECK(text.size() < 300'000);
  CHECK(text.size() > 100'000);
  const Trace trace(text);
  check_format(trace);
  check_nesting(trace);
  const Json& about = trace.json.at("otherData");
  CHECK(about.at("is_cut") == true);
  const auto first = about.at("first_step").get<std::int32_t>();
  const auto last = about.at("last_step").get<std::int32_t>();
  CHECK((first > 0 && last + 1 < static_cast<std::int32_t>(run.record.steps.size())));
  CHECK(trace.steps.size() == static_cast<std::size_t>(last - first + 1));
  REQUIRE(trace.stalls.size() >= 1);
  const Stall& stall = run.result.summary.longest_stall;
  CHECK(trace.stalls[0]->at("args").at("gap_ms") == to_ms(stall.gap_ns));
  std::size_t num_chunks = 0;
  for (std::int32_t s = first; s <= last; ++s) {
    const auto chunks = run.record.steps[static_cast<std::size_t>(s)].num_prefill_chunks;
    num_chunks += static_cast<std::size_t>(chunks);
  }
  CHECK(trace.starts.size() == num_chunks);
  const TimeNs from = ns(trace.steps.front()->at("ts"));
  for (const auto& [track, slices] : trace.slices) CHECK(slices.front().begin >= from);
}

TEST_CASE("a run of nothing has a trace", "[reports][trace]") {
  const Trace trace(trace_of(RunRecord(), RunInfo()));
  CHECK(trace.slices.empty());
  CHECK(trace.json.at("otherData").at("num_steps") == 0);
}

TEST_CASE("no trace is written where it is not wanted", "[reports][trace]") {
  const ScratchFolder scratch;
  const StoredRun run = run_small(scratch, "--set results.trace=false");
  CHECK_FALSE(std::filesystem::exists(run.folder + "/trace.json"));
}

TEST_CASE("slices of a request that was preempted and passed over", "[reports][trace]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId a = run.submit(5, 100);
  run.admit(a, 7);
  run.step(10, 20, {prefill(a, 0, 60, false)});
  run.step(21, 30, {prefill(a, 60, 40, true)});
  run.step(30, 40, {decode(a)});
  run.step(41, 50, {decode(a)});
  const RequestId b = run.submit(50, 1);
  run.step(50, 60, {prefill(b, 0, 1, true)});  // passes a over
  run.step(60, 70, {decode(a)});
  run.preempt(a, 72);
  run.step(72, 80, {decode(b)});
  run.step(80, 95, {prefill(a, 0, 104, true)});
  run.end(a, 95);
  const RunRecord record = recorder.finish();
  const std::vector<RequestSlice> slices = RequestSlices(record).of(0);
  struct Expected {
    SliceKind kind;
    TimeNs begin, end;
    std::int32_t num_tokens;
  };
  const std::vector<Expected> expected = {
      {SliceKind::Queue, 5, 7, 0},       {SliceKind::Prefill, 10, 20, 0},
      {SliceKind::Prefill, 21, 30, 1},   {SliceKind::Decode, 30, 50, 2},
      {SliceKind::Waiting, 50, 60, 0},   {SliceKind::Decode, 60, 70, 1},
      {SliceKind::Preempted, 72, 80, 0}, {SliceKind::Prefill, 80, 95, 1}};
  REQUIRE(slices.size() == expected.size());
  for (std::size_t i = 0; i < slices.size(); ++i) {
    INFO("slice " << i);
    CHECK(slices[i].kind == expected[i].kind);
    CHECK(slices[i].begin == expected[i].begin);
    CHECK(slices[i].end == expected[i].end);
    CHECK(slices[i].num_tokens == expected[i].num_tokens);
  }
}

TEST_CASE("a step that was handed over early begins behind the one before", "[reports][trace]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId a = run.submit(0, 10);
  const RequestId b = run.submit(0, 10);
  run.admit(a, 0);
  run.admit(b, 400);
  run.step(0, 1000, {prefill(a, 0, 10, true)});
  run.step(400, 2000, {decode(a), prefill(b, 0, 10, true)});
  run.end(a, 2000);
  run.end(b, 2000);
  const RunRecord record = recorder.finish();
  const Trace trace(trace_of(record, RunInfo()));
  check_nesting(trace);
  check_steps(trace, record);
  check_arrows(trace, record);
  CHECK(trace.json.at("otherData").at("decode_times_are_estimates") == true);
}

TEST_CASE("counters are zero while nobody is there, and only then", "[reports][trace]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const auto step = [&run](TimeNs from, TimeNs until, const std::vector<FakeChunk>& chunks) {
    run.next.num_running = 1;
    run.step(from, until, chunks);
  };
  const RequestId a = run.submit(0, 10);
  step(0, 1000, {prefill(a, 0, 10, true)});
  step(1500, 2000, {decode(a)});  // the host took its time: a is still there
  run.end(a, 2000);
  const RequestId b = run.submit(5000, 10);
  step(5000, 6000, {prefill(b, 0, 10, true)});
  run.end(b, 6000);
  const Trace trace(trace_of(recorder.finish(), RunInfo()));
  std::vector<std::pair<TimeNs, int>> running;
  for (const Json* event : trace.counters) {
    running.emplace_back(ns(event->at("ts")), event->at("args").at("running").get<int>());
  }
  CHECK(running == std::vector<std::pair<TimeNs, int>>{{0, 1}, {2000, 0}, {5000, 1}, {6000, 0}});
}

TEST_CASE("times in microseconds lose nothing", "[reports][trace]") {
  JsonText json;
  json.begin_array();
  for (const TimeNs time : {TimeNs{0}, TimeNs{1}, TimeNs{1500}, TimeNs{2000}, kNever})
    json.us(time);
  json.end_array();
  CHECK(json.view() == "[0,0.001,1.5,2,9223372036854775.807]");
}

}  // namespace TEST_FILE
