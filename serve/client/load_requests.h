// What a load generator sends for the requests of a workload, as bytes.
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
  Chat,         // POST /v1/chat/completions, prompts as text of as many words
};

// "/v1/completions".
std::string_view path_of(LoadEndpoint endpoint);

struct LoadRequestOptions {
  ServerUrl url;
  LoadEndpoint endpoint = LoadEndpoint::Completions;
  std::string model;                 // as the server calls it
  std::uint64_t seed = 0;            // of the ids that prompts are drawn from
  std::int64_t vocab_size = 0;       // of the scenario's model
  std::vector<std::string> headers;  // whole lines, sent with every request
};

// The whole request `i`, head and body. Ids that the workload draws are from the middle of the
// vocabulary: a 32nd at either end, where tokenizers have their special tokens, is left out. Equal
// segments of prompts give equal ids, and equal words. Greedy, to exactly as many tokens as the
// workload asks for (`ignore_eos`, of vLLM and SGLang), with usage at the end.
std::string load_request_text(const Workload& workload, std::size_t i,
                              const LoadRequestOptions& options);

// Texts made ahead of their time, in order, in a bounded amount of memory.
class LoadRequestQueue {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{512} << 20;

  // Makes texts until all are there or `max_bytes` are full; calls `poll` between.
  LoadRequestQueue(std::size_t num_requests, std::function<std::string(std::size_t)> make,
                   const std::function<void()>& poll, std::size_t max_bytes = kMaxBytes);

  // The text of request `i`, once. Made now where it is not there yet.
  std::string take(std::size_t i);
  // Makes the next text if there is room for it: for a moment with nothing else to do.
  void refill();

 private:
  std::function<std::string(std::size_t)> make_;
  std::size_t max_bytes_;
  std::size_t num_bytes_ = 0;
  std::size_t num_made_ = 0;
  std::vector<std::string> texts_;  // by request; empty where taken, or not made yet
  std::vector<bool> is_taken_;
};

}  // namespace metronome
