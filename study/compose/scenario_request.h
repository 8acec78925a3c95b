// SPDX-License-Identifier: Apache-2.0
// A scenario without a file: a server's command as somebody pasted it, or a model and a GPU; the
// requests as lengths with a rate, a preset, or a trace; and limits. Composes the YAML that says
// the same.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace metronome {

struct ScenarioRequest {
  // The text of --command, in every form that engines/command/pasted_command.h reads; empty: none.
  std::string command;
  std::string model;  // in place of the command's
  // A name of the hardware catalogue or a file, "NAME=PRICE" with the price of an hour; several
  // with commas between them become variants.
  std::string gpu;
  std::string engine;  // of engine_names(); empty: the command's, else the first
  std::string
      engine_version;        // "0.11.0"; empty: that of the command's image or log, else the newest
  std::string quantization;  // a word of the key; empty: the command's, or as the model's name says
  std::optional<std::int64_t> tensor_parallel_size;

  std::string workload;                 // a preset's name; empty: the lengths, or the first preset
  std::string sharegpt;                 // a file with conversations
  std::string tokenizer;                // tokenizer.json that measures them
  std::string trace;                    // any other file with requests
  std::optional<double> rate;           // requests/s
  std::optional<std::int64_t> clients;  // in a closed loop
  // Tokens: "1500", "500-2000" (evenly between them) or "1020:4142" (lognormal, median and p99).
  std::string prompt;
  std::string output;
  std::optional<std::int64_t> num_requests;

  // Who asks looks at one engine: of data-parallel ranks, one with its share of the requests.
  bool has_one_engine = false;

  std::optional<double> ttft_ms;
  std::optional<double> itl_ms;
  std::optional<double> tpot_ms;

  // Whether it says how a server starts or which requests come, beyond a model and a GPU.
  bool describes_requests() const;
  // Whether anything is asked for.
  bool is_given() const;
};

// The first line of a composed scenario, as a comment.
constexpr std::string_view kComposedHead = "Composed by `metronome scenario`.";

struct ComposedScenario {
  std::string name;  // "qwen3-32b_h100-sxm_vllm": of a file
  std::string yaml;  // with the reason of each value that the user did not give
  // The answer must say them: flags that are passed over, settings that are not simulated, values
  // that were chosen. One sentence each.
  std::vector<std::string> notes;
  std::string engine_version;  // that the request or its command names; empty: none
};

// Messages name the options of the command line. Throws UsageError for a request that contradicts
// itself or lacks a part, and ConfigError for a scenario that is not valid.
ComposedScenario compose_scenario(const ScenarioRequest& request);

// "vllm, sglang, ...": the engines that have a command line.
std::vector<std::string_view> engine_names();

// Requests of a kind, where a user gives no lengths of his own.
struct WorkloadPreset {
  std::string_view name;
  std::string_view summary;
  std::string_view prompt;  // as ScenarioRequest::prompt
  std::string_view output;
  std::int64_t shared_tokens;  // at the start of every prompt
  double ttft_ms;              // limits that are usual for it
  double itl_ms;
  std::string_view source;  // of the lengths and of the limits
};
std::span<const WorkloadPreset> workload_presets();

}  // namespace metronome
