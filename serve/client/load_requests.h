// SPDX-License-Identifier: Apache-2.0
// The bytes that a load generator sends for the requests of a workload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/workload/workload.h"
#include "serve/client/server_url.h"

namespace metronome {

enum class LoadEndpoint : std::uint8_t {
  Completions,  // POST /v1/completions, prompts as token ids
  Chat,         // POST /v1/chat/completions, prompts as text with one word per token
};

// "/v1/completions".
std::string_view path_of(LoadEndpoint endpoint);

struct LoadRequestOptions {
  ServerUrl url;
  LoadEndpoint endpoint = LoadEndpoint::Completions;
  std::string model;                 // the server's name for it
  std::uint64_t seed = 0;            // of the random prompt ids
  std::int64_t vocab_size = 0;       // of the scenario's model
  std::vector<std::string> headers;  // whole lines, sent with every request
};

// The complete request `i`, head and body. Drawn token ids avoid the first and last 32nd of the
// vocabulary, where tokenizers have special tokens. Equal prompt segments give equal ids and equal
// words. Decoding is greedy, to exactly the workload's number of tokens (`ignore_eos` of vLLM and
// SGLang), with usage at the end.
std::string load_request_text(const Workload& workload, std::size_t i,
                              const LoadRequestOptions& options);

// Request texts made ahead of time, in order, in a bounded amount of memory.
class LoadRequestQueue {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{512} << 20;

  // Makes texts until all exist or they fill `max_bytes`; calls `poll` in between.
  LoadRequestQueue(std::size_t num_requests, std::function<std::string(std::size_t)> make,
                   const std::function<void()>& poll, std::size_t max_bytes = kMaxBytes);

  // Returns the text of request `i`, once. Makes it now if it does not exist yet.
  std::string take(std::size_t i);
  // Makes the next text if there is memory for it. Call it when there is nothing else to do.
  void refill();

 private:
  std::function<std::string(std::size_t)> make_;
  std::size_t max_bytes_;
  std::size_t num_bytes_ = 0;
  std::size_t num_made_ = 0;
  std::vector<std::string> texts_;  // by request; empty if taken or not made yet
  std::vector<bool> is_taken_;
};

}  // namespace metronome
