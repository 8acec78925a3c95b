// SPDX-License-Identifier: Apache-2.0
// The formats of clients' results, one row each (formats.cpp). A new format is a row, and a reader
// in a file of its own.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "reports/measured/measured_file.h"
#include "reports/measured/measured_run.h"

namespace metronome {

// The files of one format: one, or those of a folder.
using MeasuredFiles = std::vector<MeasuredFile>;

struct MeasuredFormat {
  std::string_view name;     // in sentences: "vLLM's benchmark"
  std::string_view made_by;  // what writes its files
  // Texts of which a file has at least one, also a file that is cut short.
  std::span<const std::string_view> marks;
  // Whether the first value of a file is of this format.
  bool (*has)(const Json& value);
  // The runs in the order of the files. Throws ConfigError that names the file and the key.
  std::vector<MeasuredRun> (*read)(const MeasuredFiles& files);
};

// In the order in which they are tried: the first that has a value reads it.
std::span<const MeasuredFormat> measured_formats();

bool is_sglang_bench(const Json& value);
bool is_vllm_bench(const Json& value);
bool is_aiperf(const Json& value);
bool is_genai_perf(const Json& value);
bool is_guidellm(const Json& value);
bool is_inference_perf(const Json& value);
bool is_llmperf(const Json& value);
bool is_engine_benchmark(const Json& value);

std::vector<MeasuredRun> read_sglang_bench(const MeasuredFiles& files);
std::vector<MeasuredRun> read_vllm_bench(const MeasuredFiles& files);
std::vector<MeasuredRun> read_aiperf(const MeasuredFiles& files);
std::vector<MeasuredRun> read_genai_perf(const MeasuredFiles& files);
std::vector<MeasuredRun> read_guidellm(const MeasuredFiles& files);
std::vector<MeasuredRun> read_inference_perf(const MeasuredFiles& files);
std::vector<MeasuredRun> read_llmperf(const MeasuredFiles& files);
std::vector<MeasuredRun> read_engine_benchmark(const MeasuredFiles& files);

}  // namespace metronome
