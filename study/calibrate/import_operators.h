// SPDX-License-Identifier: Apache-2.0
// `metronome calibrate --import` of operator tables: composes the cost model file of one model.
#pragma once

#include <cstdint>
#include <string>

namespace metronome {

struct OperatorImportOptions {
  // A wheel of aiconfigurator-core or the folder it unpacks to, which tools/import_tables reads
  // first; or a folder that it wrote.
  std::string from;
  std::string system;  // empty: that of the folder
  std::string engine;  // one of kernel_table_names(); empty: that of the folder, else the first
  std::string model;
  std::string quantization;    // none or a format, in a scenario's words; empty: the model's
  std::string kv_dtype;        // bf16 or fp8; empty: the model's
  std::string router_dtype;    // bfloat16, tf32 or float32; empty: the engine's default
  std::string experts_kernel;  // a part of a kernel's name; empty: the fastest of each size
  std::int64_t tensor_parallel_size = 1;
  std::int64_t expert_parallel_size = 1;  // of these, those among which whole experts are divided
  std::string hardware;                   // empty: that of the system
  std::string source;                     // empty: the package and its system
  std::string out;                        // empty: no file is written
};

// Whether `from` holds operator tables, in either form.
bool holds_operators(const std::string& from);

// Prints what was read, and every rule that changed a time. Throws ConfigError; then no file is
// written.
void import_operators(const OperatorImportOptions& options);

}  // namespace metronome
