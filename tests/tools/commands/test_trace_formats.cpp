// SPDX-License-Identifier: Apache-2.0
// Every command that reads a scenario reads a trace of every format.
#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/config/config_writer.h"
#include "core/scenario/scenario.h"
#include "core/workload/workload_config.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace TEST_FILE {

namespace fs = std::filesystem;
using namespace metronome;
using namespace metronome::testing;

namespace {

constexpr int kNumRequests = 24;

// A trace with a line for each request, and the keys of `workload` for it.
struct Format {
  std::string name;  // of TraceFormat
  std::string file;
  std::string head;
  std::string (*line)(int i);
  std::string keys = {};
  bool is_simulated_only = false;  // only `run` and `workload` are tried
};

std::string tokens(int i) { return std::to_string(30 + 7 * i % 90); }
std::string answer(int i) { return std::to_string(3 + i % 5); }
std::string seconds(int i) { return std::to_string(i / 4) + (i % 4 < 2 ? ".125" : ".625"); }

std::string azure_line(int i) {
  return "2023-11-16 18:00:0" + seconds(i) + "," + tokens(i) + "," + answer(i) + "\n";
}
std::string csv_line(int i) { return seconds(i) + "," + tokens(i) + "," + answer(i) + "\n"; }
std::string mooncake_line(int i) {
  return "{\"timestamp\": " + std::to_string(250 * i) + ", \"input_length\": " + tokens(i) +
         ", \"output_length\": " + answer(i) + ", \"hash_ids\": [" + std::to_string(i % 3) + "]}\n";
}
std::string served_line(int i) {
  std::string ids = "1";
  for (int k = 1; k < 30 + 7 * i % 90; ++k) ids += ", " + std::to_string(k % 11);
  return "{\"input_toks\": " + tokens(i) + ", \"output_toks\": " + answer(i) +
         ", \"arrival_time_ns\": " + std::to_string(250'000'000L * i) + ", \"input_tok_ids\": [" +
         ids + "]}\n";
}
std::string session_line(int i) {
  return "{\"session_id\": \"s" + std::to_string(i / 2) + "\", " +
         (i % 2 == 0 ? "\"timestamp\": " + std::to_string(250 * i) : "\"delay\": 100") +
         ", \"input_length\": " + tokens(i) + ", \"output_length\": " + answer(i) + "}\n";
}
std::string chat_line(int i) {
  std::string hashes;
  for (int k = 0; k < (30 + 7 * i % 90 + 15) / 16; ++k) {
    hashes += (k == 0 ? "" : ", ") + std::to_string(k);
  }
  return "{\"chat_id\": " + std::to_string(i) + ", \"timestamp\": " + seconds(i) +
         ", \"input_length\": " + tokens(i) + ", \"output_length\": " + answer(i) +
         ", \"hash_ids\": [" + hashes + "]}\n";
}
std::string data_line(int i) {
  return "{\"timestamp\": " + seconds(i) + ", \"data\": {\"input_tokens\": " + tokens(i) +
         ", \"output_tokens\": " + answer(i) + "}}\n";
}
std::string table_line(int i) {
  return "{\"timestamp\": " + seconds(i) + ", \"prompt_tokens\": " + tokens(i) +
         ", \"output_tokens\": " + answer(i) + "}\n";
}
std::string log_line(int i) {
  return "{\"time\": \"2026-01-01T00:00:0" + seconds(i) + "Z\", \"prompt_tokens\": " + tokens(i) +
         ", \"completion_tokens\": " + answer(i) + "}\n";
}
std::string agent_line(int i) {
  return "{\"id\": \"c" + std::to_string(i) +
         "\", \"block_size\": 64, \"requests\": [{\"t\": " + seconds(i) +
         ", \"type\": \"n\", \"in\": " + tokens(i) + ", \"out\": " + answer(i) + "}]}\n";
}
std::string span_line(int i) {
  return "{\"spans\": [{\"trace_id\": \"t" + std::to_string(i) +
         "\", \"start_time\": \"2026-01-01T00:00:0" + seconds(i) +
         "Z\", \"attributes\": {\"gen_ai.usage.input_tokens\": " + tokens(i) +
         ", \"gen_ai.usage.output_tokens\": " + answer(i) + "}}]}\n";
}
std::string router_line(int i) {
  return "{\"event_type\": \"request_end\", \"request\": {\"request_received_ms\": " +
         std::to_string(250 * i) + ", \"input_tokens\": " + tokens(i) +
         ", \"output_tokens\": " + answer(i) + "}}\n";
}
std::string prompt_line(int i) {
  return "{\"prompt\": \"Count to " + tokens(i) +
         " and say why.\", \"output_tokens\": " + answer(i) + "}\n";
}
std::string plain_line(int i) {
  return "{\"arrival_ns\": " + std::to_string(250'000'000L * i) +
         ", \"prompt_tokens\": " + tokens(i) + ", \"output_tokens\": " + answer(i) + "}\n";
}
std::string conversation(int i) {
  return std::string(i == 0 ? "" : ",\n") +
         R"({"id": "a", "conversations": [{"from": "human", "value": "Count to )" + tokens(i) +
         R"( and say why."}, {"from": "gpt", "value": "One, two, three, four, )" + answer(i) +
         R"(, and so on."}]})" + (i + 1 == kNumRequests ? "]\n" : "");
}

const std::vector<Format>& formats() {
  static const std::vector<Format> all = {
      {"azure", "t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n", azure_line},
      {"mooncake", "t.jsonl", "", mooncake_line},
      {"vidur", "t.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n", csv_line},
      {"vidur", "t.csv", "arrival_s,prompt_tokens,output_tokens\n", csv_line},
      {"burstgpt", "t.csv", "Timestamp,Request tokens,Response tokens\n", csv_line},
      {"sharegpt", "t.jsonl", "", served_line},
      {"sharegpt", "t.json", "[", conversation,
       ", tokenizer: llama3.json}, arrivals: {process: poisson, rate: 4}"},
      {"aiperf", "t.jsonl", "", session_line, {}, true},
      {"bailian", "t.jsonl", "", chat_line, {}, true},
      {"servegen", "t.jsonl", "", data_line, {}, true},
      {"splitwise", "t.csv", "arrival_timestamp,prompt_size,token_size\n", csv_line, {}, true},
      {"guidellm", "t.jsonl", "", table_line, {}, true},
      {"weka", "t.jsonl", "", agent_line, {}, true},
      {"opentelemetry", "t.jsonl", "", span_line, {}, true},
      {"dynamo", "t.jsonl", "", router_line, {}, true},
      {"gateway", "t.jsonl", "", log_line, {}, true},
      {"custom", "t.jsonl", "", prompt_line,
       ", tokenizer: llama3.json}, arrivals: {process: poisson, rate: 4}", true},
      {"plain", "t.jsonl", "", plain_line, {}, true}};
  return all;
}

// A folder with a scenario and its trace, which the scenario names as one beside it.
struct TracePlace {
  ScratchFolder scratch;
  std::string folder = scratch.path() + "/in";
  std::string scenario = folder + "/s.yaml";

  explicit TracePlace(const Format& format) {
    fs::create_directory(folder);
    std::string trace = format.head;
    for (int i = 0; i < kNumRequests; ++i) trace += format.line(i);
    scratch.write("in/" + format.file, trace);
    if (!format.keys.empty()) {
      fs::copy(source_dir() + std::string("/tests/fixtures/tokenizers/llama3.json"), folder);
    }
    scratch.write("in/s.yaml",
                  "model: llama-3.2-1b\nhardware: h100-sxm\nscheduler: {policy: vllm}\n"
                  "slo: {ttft_ms: 500, itl_ms: 50}\nworkload: {trace: {file: " +
                      format.file + ", format: " + format.name +
                      (format.keys.empty() ? "}" : format.keys) + "}\n");
  }
  void check(const std::string& command, const std::string& wrapper = {}) const {
    const CommandResult result = run_metronome(command, wrapper);
    INFO(command << '\n' << result.err);
    CHECK(result.exit_code == 0);
  }
};

}  // namespace

TEST_CASE("every command takes a trace of every format", "[cli][trace][tune][sweep]") {
  std::set<std::string> seen;
  for (const Format& format : formats()) {
    CAPTURE(format.name, format.head);
    seen.insert(format.name);
    const TracePlace place(format);
    const std::string& out = place.scratch.path();
    const std::string over = " --over scheduler.max_num_batched_tokens=64,2048 --jobs 1 -q";
    place.check("run '" + place.scenario + "' --out '" + out + "/run' -q");
    if (format.is_simulated_only) {
      place.check("workload '" + place.scenario + "'");
      continue;
    }
    place.check("sweep '" + place.scenario + "' --out '" + out + "/sweep'" + over);
    place.check("tune '" + place.scenario + "' --out '" + out + "/tune'" + over);
    place.check("tune '" + place.scenario + "' --load 3 --out '" + out + "/load'" + over);
    place.check("diagnose '" + out + "/run'");
    place.check("validate '" + out + "/run' '" + out + "/run'");
    place.check("workload '" + place.scenario + "'");
    for (const std::string folder : {"run", "sweep", "tune", "load"}) {
      place.check("report '" + out + "/" + folder + "' --out '" + out + "/" + folder + ".html'");
    }
    // The winner is a scenario in any folder.
    for (const std::string folder : {"tune", "load"}) {
      place.check("run '" + out + "/" + folder + "/best.yaml' --out '" + out + "/again' -q");
    }
  }
  for (const DocumentedKey& key : documented_scenario_keys()) {
    if (key.key != "workload.trace.format") continue;
    const auto num_others = std::count(key.allowed.begin(), key.allowed.end(), ',');  // than auto
    CHECK(static_cast<std::ptrdiff_t>(seen.size()) == num_others);
  }
}

TEST_CASE("the winner of tune names its files by whole paths, of any key", "[cli][tune]") {
  const ScratchFolder scratch;
  fs::create_directory(scratch.path() + "/in");
  const std::string model = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64,
    "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "vocab_size": 512, "torch_dtype": "bfloat16",
    "max_position_embeddings": 4096})";
  scratch.write("in/config.json", model);
  scratch.write("in/gpu.yaml",
                "own: {peak_flops: 1e14, peak_bandwidth: 1e12, memory_bytes: 80000000000}\n");
  scratch.write("in/s.yaml",
                "model: ./config.json\nhardware: gpu.yaml\nworkload: {num_requests: 30, "
                "arrivals: {rate: 5}, prompt_tokens: {value: 20}, output_tokens: {value: 5}}\n"
                "slo: {ttft_ms: 500}\n");
  const std::string out = scratch.path() + "/out";
  const CommandResult tuned =
      run_metronome("tune '" + scratch.path() + "/in/s.yaml' --seeds 1 -q --out '" + out + "'");
  INFO(tuned.err);
  REQUIRE(tuned.exit_code == 0);
  const Json best = Json::parse(read_text_file(out + "/best.yaml"));
  CHECK(best["model"] == scratch.path() + "/in/config.json");
  CHECK(best["hardware"] == scratch.path() + "/in/gpu.yaml");
}

TEST_CASE("every path of a scenario is made absolute, and no name", "[scenario]") {
  Scenario scenario;
  const std::vector<PathField> fields = path_fields(scenario);
  REQUIRE(fields.size() > 8);
  for (const PathField& field : fields) *field.value = "some/../file.json";
  Scenario whole = with_absolute_paths(scenario);
  for (const PathField& field : path_fields(whole)) {
    INFO(field.key);
    CHECK(*field.value == (fs::current_path() / "file.json").string());
  }
  for (const PathField& field : path_fields(scenario)) {
    *field.value = field.may_be_name ? "h100-sxm" : "";
  }
  whole = with_absolute_paths(scenario);
  for (const PathField& field : path_fields(whole)) {
    INFO(field.key);
    CHECK(*field.value == (field.may_be_name ? "h100-sxm" : ""));
  }
  // A key that names a file says so to the visitor: its documentation speaks of one.
  for (const DocumentedKey& key : documented_scenario_keys()) {
    const bool speaks =
        key.type == "string" && (contains(key.doc, "file") || contains(key.doc, "path"));
    const auto is_key = [&key](const PathField& field) { return field.key == key.key; };
    INFO(key.key << ": " << key.doc);
    CHECK(speaks <= std::any_of(fields.begin(), fields.end(), is_key));
  }
}

}  // namespace TEST_FILE
