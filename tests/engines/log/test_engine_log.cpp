// SPDX-License-Identifier: Apache-2.0
// Logs of vLLM and SGLang: what their lines say, in every form that the engines write, and what
// becomes of lines that are cut, coloured or written into each other.
#include <algorithm>
#include <sstream>

#include "core/base/rng.h"
#include "engines/log/log_dialect.h"
#include "engines/log/log_text.h"
#include "engines/sglang/product.h"
#include "engines/vllm/iteration_log.h"
#include "engines/vllm/product.h"
#include "reports/terminal/log_facts.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/draws.h"
#include "tests/error_of.h"
#include "tests/expected.h"
#include "tests/places.h"
#include "tests/scratch_folder.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

const std::string kAt = "[2026-01-02 03:04:05 TP0] ";
const std::string kPrefill =
    "Prefill batch, #new-seq: 2, #new-token: 4096, #cached-token: 512, token usage: 0.31, "
    "#running-req: 7, #queue-req: 3, #pending-token: 9000, cuda graph: False, "
    "input throughput (token/s): 20480.00";
const std::string kDecode =
    "Decode batch, #running-req: 9, #token: 4104, token usage: 0.42, cuda graph: True, "
    "gen throughput (token/s): 900.25, #queue-req: 1";
const std::string kRetraction =
    "KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_tokens_gained: 1536, "
    "#new_token_ratio: 0.3051 -> 0.6480";
const std::string kVllmAt = "(APIServer pid=9) INFO 07-01 12:00:03 [loggers.py:199] ";
const std::string kIteration =
    "Engine 000: Iteration(7): 2 context requests, 1024 context tokens, 5 generation requests, 5 "
    "generation tokens, iteration elapsed time: 41.50 ms, GPU KV cache usage: 71.5%";
const std::string kReport =
    "Engine 000: Avg prompt throughput: 1000.5 tokens/s, Avg generation throughput: 50.0 tokens/s, "
    "Running: 8 reqs, Waiting: 4 reqs, Preemptions: 3, GPU KV cache usage: 99.1%, Prefix cache hit "
    "rate: 12.5%";

EngineLog read_text(const std::string& text, const LogDialect* engine = nullptr) {
  std::istringstream in(text);
  return read_engine_log(in, "x.log", engine);
}

// The only observation of a log with this line.
LogObservation only(const std::string& line) {
  const EngineLog log = read_text(line + "\n");
  INFO(line);
  REQUIRE(log.observations.size() == 1);
  CHECK(log.num_broken == 0);
  return log.observations.front();
}

std::string refusal(const std::string& text, const LogDialect* engine = nullptr) {
  return error_of([&] { (void)read_text(text, engine); });
}

std::string changed(std::string text, const std::string& part, const std::string& by) {
  const std::size_t at = text.find(part);
  REQUIRE(at != std::string::npos);
  return text.replace(at, part.size(), by);
}

}  // namespace

TEST_CASE("SGLang's prefill line, in its forms", "[engines][engine_log]") {
  const LogObservation seen = only(kAt + kPrefill);
  CHECK((seen.kind == Observed::Prefill && seen.line == 1 && seen.time == "03:04:05"));
  CHECK((seen.num_prefill_requests == 2 && seen.num_prefill_tokens == 4096));
  CHECK((seen.num_cached_tokens == 512 && seen.num_pending_tokens == 9000));
  CHECK((seen.num_running == 7 && seen.num_waiting == 3 && seen.cache_usage == 0.31));
  CHECK((seen.elapsed_ns == 200 * kNsPerMs && seen.number == -1 && seen.rank == 0));

  // SGLANG_LOG_FORWARD_ITERS, SGLANG_LOG_MS, ranks.
  const LogObservation numbered =
      only("[2026-01-02 03:04:05.678 DP1 TP8 EP8] " + changed(kPrefill, "batch,", "batch [123],"));
  CHECK((numbered.number == 123 && numbered.rank == 1 && numbered.time == "03:04:05.678"));
  // Sliding windows, state-space layers, both.
  CHECK(
      only(changed(kPrefill, "token usage: 0.31", "full token usage: 0.20, swa token usage: 0.90"))
          .cache_usage == 0.9);
  CHECK(only(changed(kPrefill, "token usage: 0.31", "full token usage: 0.50, mamba usage: 0.25"))
            .cache_usage == 0.5);
  // A prefill server, a language-only server, other devices, estimates and timers.
  const std::string more =
      changed(changed(kPrefill, "cuda graph: False",
                      "#replay-token: 1024, #bootstrap-req: 1, #inflight-req: 2, #optimistic-req: "
                      "0, waiting-image-req: 3, npu graph: True"),
              "20480.00",
              "20480.00, est. prefill TFLOPS/s (per GPU): 12.00, fwd occupancy: nan%, fwd+idle "
              "occupancy: 99.00%");
  CHECK(only(more).elapsed_ns == 250 * kNsPerMs);
  // 0.4: a full stop, no pending tokens, no throughput.
  const LogObservation old = only(
      "[2024-12-01 10:00:00 TP0] Prefill batch. #new-seq: 1, #new-token: 6, #cached-token: 1, "
      "token usage: 0.00, #running-req: 0, #queue-req: 0, ");
  CHECK((old.num_prefill_tokens == 6 && old.elapsed_ns == 0));
}

TEST_CASE("a log may come in parts", "[engines][engine_log]") {
  for (const char* name : {"sglang.log", "vllm.log", "vllm_full.log"}) {
    const std::string text =
        read_text_file(std::string(source_dir()) + "/tests/expected/logs/" + name);
    const EngineLog whole = read_text(text);
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      INFO(name << ", seed " << seed);
      Rng rng(seed, "parts");
      EngineLogReader reader("x.log", nullptr);
      const auto num_seen = [&] { return reader.observations(*whole.dialect).size(); };
      std::size_t last_seen = 0;
      for (std::size_t at = 0; at < text.size();) {
        const auto size = static_cast<std::size_t>(rng.uniform_int(0, 400));
        reader.add(std::string_view(text).substr(at, size));
        at += size;
        CHECK(num_seen() >= last_seen);
        last_seen = num_seen();
      }
      CHECK(last_seen + 1 >= whole.observations.size());  // the last line may have no end
      const EngineLog parts = reader.finish();
      CHECK(parts.observations == whole.observations);
      CHECK((parts.settings == whole.settings && parts.num_broken == whole.num_broken));
      CHECK(num_seen() == 0);
    }
  }
  EngineLogReader endless("x.log", nullptr);
  const std::string part(1 << 20, 'x');
  CHECK_THROWS_AS(([&] {
                    while (true) endless.add(part);
                  })(),
                  ConfigError);
}

TEST_CASE("SGLang's decode line, in its forms", "[engines][engine_log]") {
  const LogObservation seen = only(kAt + kDecode);
  CHECK((seen.kind == Observed::Decode && seen.num_running == 9 && seen.num_waiting == 1));
  CHECK((seen.cache_usage == 0.42 && seen.decode_rate == 900.25));
  CHECK(only(changed(kDecode, "#token: 4104, token usage: 0.42",
                     "#full token: 10, full token usage: 0.10, #swa token: 9, swa token usage: "
                     "0.77, mamba num: 1, mamba usage: 0.01"))
            .cache_usage == 0.77);
  CHECK(only(changed(kDecode, "#token: 4104, token usage: 0.42",
                     "#gpu token: 4, gpu token usage: 0.33, #cpu token: 5, cpu token usage: 0.99"))
            .cache_usage == 0.33);
  const std::string disaggregated = changed(
      kDecode, "cuda graph",
      "accept len: 2.50, accept rate: 0.50, cap len: 3.00, pre-allocated usage: 0.10, #prealloc-req"
      ": 1, #transfer-req: 2, #host-receive-req: 0, #retracted-req: 4, cpu graph");
  CHECK(only(disaggregated).decode_rate == 900.25);
  CHECK(read_text(disaggregated + "\n").has_speculation);
  CHECK_FALSE(read_text(kDecode + "\n").has_speculation);
  CHECK(only(changed(kDecode, "batch,", "batch [9],") +
             ", est. decode TFLOPS/s (per GPU): 1.00, est. read BW (GB/s per GPU): 2.00")
            .number == 9);
}

TEST_CASE("SGLang's retractions", "[engines][engine_log]") {
  const LogObservation seen = only(kAt + kRetraction);
  CHECK((seen.kind == Observed::Retraction && seen.num_preempted == 2));
  CHECK(seen.num_freed_tokens == 1536);
  CHECK((seen.old_reserve_ratio == 0.3051 && seen.new_reserve_ratio == 0.6480));
  CHECK(only(changed(kRetraction, "gained: 1536", "gained: 1536, #mamba_num_gained: 2"))
            .num_freed_tokens == 1536);
  CHECK_FALSE(
      only(changed(kRetraction, "#new_tokens_gained: 1536, ", "")).num_freed_tokens.has_value());
  const EngineLog aborted = read_text(
      kAt + "retract_decode: aborted last request ab12 due to OOM\n" + kRetraction + "\n");
  CHECK((aborted.num_aborted == 1 && aborted.observations.size() == 1 && aborted.num_broken == 0));
  CHECK(only("Testing retraction. #retracted_reqs: 1, #new_tokens_gained: 64").num_preempted == 1);
}

TEST_CASE("SGLang's settings, of a dictionary or of a call", "[engines][engine_log]") {
  for (const char* arguments :
       {"server_args={'model_path': 'a/b, c}', 'chunked_prefill_size': 8192, 'x': {'y': [1, (2,)]},"
        " 'enable_mixed_chunk': False, 'prefill_max_requests': None, 'z': \"it's\"}",
        "server_args=ServerArgs(model_path='a/b, c}', chunked_prefill_size=8192, x={'y': [1, (2,)]}"
        ", enable_mixed_chunk=False, prefill_max_requests=None, z=\"it's\")"}) {
    INFO(arguments);
    const EngineLog log = read_text(
        kAt + arguments + "\n" + kAt +
        "max_total_num_tokens=65536, chunked_prefill_size=2048, max_prefill_tokens=16384, "
        "max_running_requests=256, context_len=32768, available_gpu_mem=9.30 GB\n" +
        kDecode + "\n");
    CHECK(log.num_broken == 0);
    CHECK(log.settings.at("model_path") == "a/b, c}");
    CHECK(log.settings.at("chunked_prefill_size") == "2048");  // as the scheduler resolved it
    CHECK(log.settings.at("enable_mixed_chunk") == "False");
    CHECK(log.settings.at("prefill_max_requests") == "None");
    CHECK(log.settings.at("z") == "it's");
    CHECK(log.settings.at("max_total_num_tokens") == "65536");
    CHECK(log.settings.at("context_len") == "32768");
    CHECK_FALSE(log.settings.contains("y"));
  }
  const EngineLog cut = read_text(kAt + "server_args={'a': 'b\n" + kDecode + "\n");
  CHECK((cut.num_broken == 1 && cut.settings.empty()));
}

TEST_CASE("vLLM's lines, in their forms", "[engines][engine_log]") {
  const LogObservation seen = only(kVllmAt + kIteration);
  CHECK((seen.kind == Observed::Iteration && seen.number == 7 && seen.time == "12:00:03"));
  CHECK((seen.num_prefill_requests == 2 && seen.num_prefill_tokens == 1024));
  CHECK((seen.num_running == 5 && seen.num_decode_tokens == 5 && seen.cache_usage == 0.715));
  CHECK(seen.elapsed_ns == 41'500'000);
  CHECK(only(changed(kIteration, "Engine 000", "Engine 012")).rank == 12);
  CHECK(only(changed(kIteration, "Engine 000: ", "(EngineCore_DP3 pid=1) INFO ")).rank == 3);
  const LogObservation report = only(kVllmAt + kReport);
  CHECK((report.kind == Observed::Report && report.num_preempted == 3));
  CHECK((report.prompt_rate == 1000.5 && report.decode_rate == 50));
  CHECK((report.num_running == 8 && report.num_waiting == 4));
  CHECK((report.cache_usage == 0.991 && report.hit_rate == 0.125));
  // Before 0.30 without preemptions; without prefix caching; with what newer versions insert.
  const LogObservation plain =
      only(changed(changed(kReport, "Preemptions: 3, ", ""), ", Prefix cache hit rate: 12.5%", ""));
  CHECK((plain.num_preempted == 0 && !plain.hit_rate));
  CHECK(only(changed(kReport, "Preemptions",
                     "Deferred: 1 reqs, KV fetch: 1 waiting to start, 0 in progress, 2 completed "
                     "waiting, Preemptions") +
             ", External prefix cache hit rate: 90.0%, MM cache hit rate: 80.0%")
            .hit_rate == 0.125);
  CHECK(only("INFO 2 Engines Aggregated: " + kReport.substr(12)).rank == 0);
  // An iteration of a data-parallel engine that had nothing to compute is none.
  const std::string dummy =
      "Engine 001: Iteration(3): 0 context requests, 0 context tokens, 0 generation requests, 0 "
      "generation tokens, iteration elapsed time: 3.00 ms (dummy), GPU KV cache usage: 0.0%\n";
  CHECK(read_text(dummy + kIteration + "\n").observations.size() == 1);
  // The reader of `calibrate` and `validate` takes the same lines.
  const ScratchFolder scratch;
  const IterationLog strict = read_iteration_log(
      scratch.write("x.log", dummy + kVllmAt + changed(kIteration, "000", "004")));
  REQUIRE(strict.iterations.size() == 1);
  CHECK((strict.iterations[0].engine == 4 && strict.iterations[0].elapsed_ns == 41'500'000));
  const EngineLog settings = read_text(
      "INFO [startup.py:96] non-default args: {'model_tag': 'm', 'max_num_batched_tokens': 2048}\n"
      "INFO Initializing a V1 LLM engine (v0.33.0) with config: model='m'\n"
      "INFO GPU KV cache size: 1,234,560 tokens, Maximum concurrency for 8,192 tokens per request: "
      "150.70x\nINFO SpecDecoding metrics: Mean acceptance length: 2.00\n" +
      kReport + "\n");
  CHECK(settings.settings.at("max_num_batched_tokens") == "2048");
  CHECK(settings.settings.at("version") == "0.33.0");
  CHECK(settings.settings.at("kv_cache_size_tokens") == "1234560");
  CHECK(settings.has_speculation);
}

TEST_CASE("lines are read through colours, carriage returns and prefixes",
          "[engines][engine_log]") {
  const auto coloured = [](const std::string& text) {
    return "\x1b[0;36m(APIServer pid=9)\x1b[0;0m \x1b[32mINFO\x1b[0m \x1b[90m07-01 12:00:03\x1b[0m "
           "\x1b[90m[loggers.py:199]\x1b[0m " +
           text + "\x1b[0m";
  };
  CHECK(only(coloured(kIteration)).time == "12:00:03");
  CHECK(only(coloured(kReport)).hit_rate == 0.125);
  CHECK(only("pod-7 | 2026-01-02T03:04:05.1Z " + kAt + kDecode + "\r").time == "03:04:05");
  CHECK(only("{\"message\": \"" + kAt + kDecode + "\"}").num_waiting == 1);
  // Two processes, one line.
  const EngineLog both = read_text("[2026-01-02 03:04:05 DP0 TP0] " + kDecode +
                                   "[2026-01-02 03:04:06 DP1 TP0] " + kPrefill + "\n");
  REQUIRE(both.observations.size() == 2);
  CHECK((both.observations[0].num_waiting == 1 && both.observations[0].rank == 0));
  CHECK((both.observations[1].rank == 1 && both.observations[1].time == "03:04:06"));
  CHECK(both.num_broken == 0);
  // The stages of a pipeline write the same batches; the first counts.
  const EngineLog stages = read_text("[2026-01-02 03:04:05 PP0 TP0] " + kDecode +
                                     "\n[2026-01-02 03:04:05 PP1 TP0] " + kDecode + "\n");
  CHECK(stages.observations.size() == 1);
}

TEST_CASE("broken lines are counted, and a last line may be cut", "[engines][engine_log]") {
  for (const std::string& line : {kPrefill, kDecode, kRetraction, kIteration, kReport}) {
    const std::string good = line + "\n";
    const std::size_t marker = line == kIteration || line == kReport ? 20 : 14;
    for (std::size_t length = marker; length + 12 < line.size(); ++length) {
      const std::string cut = line.substr(0, length);
      INFO(cut);
      // Cut at the end of a field, a report of vLLM may be whole.
      const EngineLog at_end = read_text(good + cut);
      CHECK(at_end.num_broken == 0);
      const EngineLog inside = read_text(good + cut + "\n" + good);
      CHECK(inside.observations.size() + static_cast<std::size_t>(inside.num_broken) >= 2);
      if (inside.num_broken > 0) CHECK(inside.first_broken == 2);
    }
  }
  // A line that another one interrupts.
  const EngineLog cut_into =
      read_text(kPrefill.substr(0, 60) + kAt + kDecode + "\n" + kPrefill.substr(60) + "\n");
  CHECK((cut_into.observations.size() == 1 && cut_into.num_broken == 1));
  for (const std::string& bad :
       {changed(kPrefill, "4096", "-1"), changed(kPrefill, "4096", "4096Prefill"),
        changed(kPrefill, "4096", "1e300"), changed(kPrefill, "4096", "40968192"),
        changed(kPrefill, "20480.00", "nan"), changed(kPrefill, "20480.00", "20480"),
        changed(kDecode, "900.25", "inf"), changed(kDecode, "#running-req: 9", "#running-req: 9.5"),
        changed(kRetraction, "1536", "x"), changed(kRetraction, "->", "-")}) {
    INFO(bad);
    const EngineLog log = read_text(kDecode + "\n" + bad + "\n");
    CHECK((log.observations.size() == 1 && log.num_broken == 1 && log.first_broken == 2));
  }
  CHECK(read_text(kDecode + "\nPrefill batches are slow\n").num_broken == 0);
}

TEST_CASE("a whole line of SGLang that lacks a field is named by it", "[engines][engine_log]") {
  const std::string decode =
      "[2026-01-02 12:00:00] Decode batch, #running-req: 1, #token: 408, token usage: 0.01, cuda "
      "graph: True, gen throughput (token/s): 72.31, #queue-req: 0\n";
  const std::string lacking = replaced(decode, ", gen throughput (token/s): 72.31", "");
  const EngineLog log = read_text(decode + lacking + lacking);
  CHECK((log.num_lacking == 2 && log.first_lacking == 2 && log.num_broken == 0));
  CHECK(log.lacking_field == "gen throughput (token/s)");
  const std::vector<std::string> notes = left_out_notes(log);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0] ==
        "2 lines without a field that SGLang logs were left out: line 2, the first, has no 'gen "
        "throughput (token/s)'.");
  // A cut line lacks all that follows.
  const EngineLog cut = read_text(decode + decode.substr(0, decode.find(", gen")) + "\n" + decode);
  CHECK((cut.num_lacking == 0 && cut.num_broken == 1));
  CHECK(
      contains(left_out_notes(cut).at(0), "1 line, cut or written into each other, was left out"));
  const std::string only = error_of<ConfigError>([&] { read_text(lacking); });
  CHECK(contains(only, "line 1 of SGLang has no 'gen throughput (token/s)'; allowed: "));
}

TEST_CASE("lines of vLLM V0", "[engines][engine_log]") {
  const EngineLog log = read_text(
      "INFO 01-20 10:00:00 llm_engine.py:234] Initializing an LLM engine (v0.6.6) with config: "
      "model='m', speculative_config=None\n"
      "INFO 01-20 10:00:05 metrics.py:467] Avg prompt throughput: 5.5 tokens/s, Avg generation "
      "throughput: 31.2 tokens/s, Running: 2 reqs, Swapped: 1 reqs, Pending: 3 reqs, GPU KV cache "
      "usage: 12.1%, CPU KV cache usage: 4.0%.\n"
      "WARNING 01-20 10:00:06 scheduler.py:1481] Sequence group 12 is preempted by "
      "PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. "
      "total_num_cumulative_preemption=1\n"
      "WARNING 01-20 10:00:09 scheduler.py:1481] Sequence group 14 is preempted. "
      "total_num_cumulative_preemption=51\n");
  CHECK(log.num_broken == 0);
  CHECK(log.settings.at("version") == "0.6.6");
  REQUIRE(log.observations.size() == 3);
  const LogObservation& report = log.observations[0];
  CHECK(report.num_running == 2);
  CHECK(report.num_waiting == 4);
  CHECK(report.cache_usage == 0.121);
  CHECK(log.observations[1].num_preempted == 1);
  CHECK(log.observations[2].num_preempted == 50);
}

TEST_CASE("requests that vLLM received, and drafts that it counts", "[engines][engine_log]") {
  const EngineLog log = read_text(
      "INFO 01-20 10:00:00 [logger.py:43] Received request chatcmpl-1: prompt: 'a: b, "
      "max_tokens=9', params: SamplingParams(n=2, max_tokens=40, min_tokens=0), prompt_token_ids: "
      "[1, 2, 3], lora_request: None.\n"
      "INFO 01-20 10:00:01 [request_logger.py:65] Received request cmpl-2: params: "
      "SamplingParams(n=1, max_tokens=None), lora_request: None.\n"
      "INFO 01-20 10:00:02 [model.py:1] Using max model len 8192\n"
      "INFO 01-20 10:00:02 [metrics.py:1] SpecDecoding metrics: Mean acceptance length: 2.45, "
      "Accepted throughput: 18.40 tokens/s, Drafted throughput: 25.30 tokens/s, Accepted: 184 "
      "tokens, Drafted: 253 tokens\n" +
      kReport + "\n");
  REQUIRE(log.arrivals.size() == 3);  // two answers are two requests
  CHECK(log.arrivals[0].id == "chatcmpl-1");
  CHECK(log.arrivals[0] == log.arrivals[1]);
  CHECK(log.arrivals[0].max_output_tokens == 40);
  CHECK(log.arrivals[0].num_prompt_tokens == 3);
  CHECK(log.arrivals[2].max_output_tokens == 0);
  CHECK(log.arrivals[2].time == "10:00:01");
  CHECK(log.settings.at("max_model_len") == "8192");
  CHECK(log.chosen.contains("max_model_len"));
  CHECK(log.num_accepted_drafts == 184);
  CHECK(log.num_drafts == 253);
}

TEST_CASE("TensorRT-LLM's iterations, in their forms", "[engines][engine_log]") {
  const std::string states =
      "states = {'num_ctx_requests': 1, 'num_ctx_tokens': 1024, 'num_generation_tokens': 7}\n";
  for (const std::string& line :
       {"[01/02/2026-12:00:03] [TRT-LLM] [I] iter = 41, global_rank = 2, rank = 0, "
        "currank_total_requests = 0/0, host_step_time = 12.5ms, prev_device_step_time = 11.2ms, "
        "timestamp = 2026-01-02 12:00:03, num_scheduled_requests: 8, " +
            states,
        "[TRT-LLM] [I] iter = 41, global_rank = 2, rank = 0, num_scheduled_requests = 8, "
        "kv_cache_util = 0.125, currank_total_requests = 0/1, host_step_time = 12.5ms, "
        "prev_device_step_time = N/A, timestamp = 2026-01-02 12:00:03, " +
            states,
        "[TRT-LLM] [I] iter = 41, global_rank = 2, rank = 0, currank_total_requests = 0/0, "
        "elapsed_time = 0.0125s, timestamp = 2026-01-02 12:00:03, num_scheduled_requests: 8, " +
            states}) {
    INFO(line);
    const EngineLog log = read_text(line);
    CHECK(log.engine_name() == "TensorRT-LLM");
    REQUIRE(log.observations.size() == 1);
    const LogObservation& seen = log.observations[0];
    CHECK(seen.time == "12:00:03");
    CHECK(seen.number == 41);
    CHECK(seen.rank == 2);
    CHECK(seen.elapsed_ns == 12'500'000);
    CHECK(seen.num_prefill_requests == 1);
    CHECK(seen.num_prefill_tokens == 1024);
    CHECK(seen.num_running == 7);
    CHECK(seen.num_decode_tokens == 7);
  }
}

TEST_CASE("SGLang's lines of a server that computes prompts for others", "[engines][engine_log]") {
  const EngineLog log = read_text(
      "[2025-05-27 21:19:46] Prefill batch. #new-seq: 1, #new-token: 64, #cached-token: 25, token "
      "usage: 0.00, #unbootstrapped-req: 0, #queue-req: 3, #transferring-req: 2, input throughput "
      "(token/s): 320.00 \n"
      "[2025-05-27 21:19:46] Decode batch. #running-req: 4, #token: 128, token usage: 0.02, "
      "pre-allocated usage: 0.10, #retracted-req: 0, cuda graph: True, gen throughput (token/s): "
      "141.50, #queue-req: 0, \n");
  CHECK(log.num_broken + log.num_lacking == 0);
  REQUIRE(log.observations.size() == 2);
  CHECK(log.observations[0].num_running == 0);
  CHECK(log.observations[0].num_waiting == 3);
  CHECK(log.observations[0].elapsed_ns == 200'000'000);
  CHECK(log.observations[1].decode_rate == 141.5);
}

TEST_CASE("of several starts the one with most lines is read", "[engines][engine_log]") {
  const auto start = [](int seqs) {
    return "INFO non-default args: {'model': 'm', 'max_num_seqs': " + std::to_string(seqs) + "}\n";
  };
  const std::string line = kReport + "\n";
  const EngineLog log =
      read_text(start(8) + line + start(16) + start(16) + line + line + start(32) + line);
  CHECK(log.settings.at("max_num_seqs") == "16");
  CHECK(log.observations.size() == 2);
  CHECK(log.other_starts.size() == 2);
  CHECK(log.start_line == 3);
  // One start behind lines is another start, too.
  const EngineLog late = read_text(line + line + start(8) + line);
  CHECK(late.settings.empty());
  CHECK(late.observations.size() == 2);
}

TEST_CASE("a log that another program has to unpack names it", "[engines][engine_log]") {
  CHECK(refusal(std::string("\x1f\x8b\x08\0\0", 5)) ==
        "x.log: is compressed by gzip; allowed: its text, which `gzip -dc FILE > server.log` "
        "writes");
  CHECK(refusal("\x28\xb5\x2f\xfd more").find("`zstd -dc FILE") != std::string::npos);
  CHECK(refusal(std::string("\xff\xfeI\0", 4)).find("is text in UTF-16") != std::string::npos);
}

TEST_CASE("a log of neither engine, or of both, is refused", "[engines][engine_log]") {
  CHECK(refusal("hello\n") ==
        "x.log: is not a vLLM, SGLang, TensorRT-LLM or llama-server log; allowed: a log with "
        "lines from vLLM: 'Iteration(N): ', which --enable-logging-iteration-details adds, or 'Avg "
        "prompt "
        "throughput: '; or from SGLang: 'Prefill batch', 'Decode batch' or 'Retract requests'; or "
        "from TensorRT-LLM: 'iter = N, ... host_step_time = ', which print_iter_log adds; or from "
        "llama-server: 'prompt eval time = ', which it prints for each request; or a folder that "
        "`metronome run` wrote");
  const std::string both = kReport + "\n" + kDecode + "\n";
  CHECK(refusal(both) ==
        "x.log: has lines of vLLM (line 1) and of SGLang (line 2); allowed: one of them with "
        "--engine: vllm, sglang, tensorrt_llm, llama_cpp");
  CHECK(read_text(both, &kSglangLog).observations[0].kind == Observed::Decode);
  CHECK(read_text(both, &kVllmLog).dialect == &kVllmLog);
  CHECK(refusal(kDecode + "\n", &kVllmLog)
            .starts_with("x.log: is not a vLLM log; allowed: a log with lines from vLLM: "));
  CHECK(refusal("server_args={'tp_size': 1}\n")
            .starts_with("x.log: has settings of SGLang, but none of its steps; allowed: "));
  CHECK(
      refusal("\nDecode batch, 9 requests\n")
          .starts_with("x.log: line 2 begins like a line of SGLang and goes on in another format; "
                       "allowed: "));
  CHECK(error_of([] { (void)read_engine_log("/nowhere"); }) ==
        "/nowhere: does not exist; allowed: a vLLM, SGLang, TensorRT-LLM or llama-server log");
}

TEST_CASE("a log without vLLM's iterations is refused by its name", "[engines][engine_log]") {
  const testing::ScratchFolder folder;
  const auto error = [&](const std::string& text) {
    const std::string path = folder.write("x.log", text);
    return error_of([&] { refuse_log_without_iterations(path, "; or a CSV"); })
        .substr(folder.path().size() + 1);
  };
  constexpr const char* kAllowed =
      "; allowed: a vLLM log with --enable-logging-iteration-details; or a CSV";
  CHECK(error(kDecode + "\n") ==
        std::string("x.log: is an SGLang log, which does not log the time of each step") +
            kAllowed);
  CHECK(error(kReport + "\n") ==
        std::string("x.log: is a vLLM log without its iterations") + kAllowed);
  refuse_log_without_iterations(folder.write("steps.csv", "tokens,seconds\n1,2\n"), "");
}

TEST_CASE("property: whole lines among any others are read", "[engines][engine_log]") {
  const std::uint64_t seed = 20261123;
  INFO("seed " << seed);
  Rng rng(seed, "engine_log");
  const std::string lines[] = {kPrefill, kDecode, kRetraction};
  for (int round = 0; round < 200; ++round) {
    INFO("round " << round);
    std::string text;
    std::size_t num_whole = 0;
    for (int i = 0; i < 20; ++i) {
      const std::string& line = lines[draw(rng, 0, 2)];
      if (i == 0 || chance(rng, 0.5)) {
        text += kAt + line + (chance(rng, 0.3) ? "\r\n" : "\n");
        ++num_whole;
        continue;
      }
      // A line with some bytes that are any others, but no line break.
      std::string bad = line;
      const int num_changes = draw(rng, 1, 30);
      for (int c = 0; c < num_changes; ++c) {
        const int position = draw(rng, 0, static_cast<int>(bad.size()) - 1);
        const int byte = draw(rng, 11, 255);
        bad[static_cast<std::size_t>(position)] = static_cast<char>(byte);
      }
      text += bad + "\n";
    }
    const EngineLog log = read_text(text, &kSglangLog);
    CHECK(log.observations.size() >= num_whole);
    CHECK(log.observations.size() + static_cast<std::size_t>(log.num_broken) <= 40);
  }
}

TEST_CASE("parts of log lines", "[engines][engine_log]") {
  CHECK(plain_line("\x1b[1;31ma\x1b[0mb\r\r") == "ab");
  CHECK(plain_line("a\x1b[") == "a");
  CHECK(plain_line("a\x1b") == "a\x1b");
  CHECK(time_in("x 01:02:03 y 11:22:33.4567 ") == "11:22:33.4567");
  CHECK(time_in("1:2:3 12:34:5").empty());
  CHECK(seconds_of("01:00:01.5") == 3601.5);
  CHECK_FALSE(seconds_of("01:00").has_value());
  CHECK_FALSE(python_arguments("None").has_value());
  CHECK_FALSE(python_arguments("{'a': '\\").has_value());
  CHECK_FALSE(python_arguments("{'a': [1, 2}").has_value());
  CHECK(python_arguments("{}")->empty());
  CHECK(python_arguments("f(a='x\\'y', b=[1, 2])")->at("b") == "[1, 2]");
}

}  // namespace TEST_FILE
