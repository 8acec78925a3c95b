// SPDX-License-Identifier: Apache-2.0
// A small decision case as text, and Metronome's own log of a file.
#pragma once

#include <sstream>
#include <string>

#include "study/decisions/decisions.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/places.h"
#include "tests/scratch_folder.h"

namespace metronome::testing {

inline std::string golden_path(const std::string& name) {
  return source_dir() + "/tests/goldens/" + name;
}

// Two requests, listed in the other order than they arrive; blocks of 4 tokens, 5 of them usable,
// steps of 4 tokens. a: 5 prompt and 2 output tokens; b: 1 and 1.
constexpr const char* kConfig =
    R"({"block_size":4,"max_num_seqs":2,"max_num_batched_tokens":4,"max_model_len":16,)"
    R"("num_blocks":6,"enable_prefix_caching":false,"long_prefill_token_threshold":0,)"
    R"("enable_chunked_prefill":true,"policy":"fcfs","scheduler_reserve_full_isl":true})";
constexpr const char* kRequests =
    R"([{"id":"b","arrival_step":1,"prompt":[7],"max_tokens":1},)"
    R"({"id":"a","arrival_step":0,"prompt":[1,2,3,4,5],"max_tokens":2}])";

inline std::string case_text(const std::string& config, const std::string& requests,
                             const std::string& steps = "") {
  return R"({"seed":7,"config":)" + config + R"(,"requests":)" + requests +
         (steps.empty() ? "" : R"(,"steps":)" + steps) + "}\n";
}

inline std::string own_log(const std::string& engine, const std::string& path) {
  std::ostringstream out;
  write_decisions(engine, path, out);
  return out.str();
}

inline std::string own_log_of(const std::string& text, const std::string& engine = "vllm") {
  const ScratchFolder folder;
  return own_log(engine, folder.write("case.jsonl", text));
}

// The complaint about a file with this text, without the path that it begins with.
inline std::string complaint(const std::string& text, const std::string& engine = "vllm") {
  const ScratchFolder folder;
  const std::string path = folder.write("case.jsonl", text);
  const std::string error = error_of([&] { own_log(engine, path); });
  INFO(error);
  REQUIRE(error.starts_with(path + ":"));
  return error.substr(path.size() + 1);
}

}  // namespace metronome::testing
