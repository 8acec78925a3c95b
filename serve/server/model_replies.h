// SPDX-License-Identifier: Apache-2.0
// The replies that need the served model alone: what it is, and its tokens.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "serve/server/api_request.h"
#include "serve/server/reply.h"

namespace metronome {

struct KvCacheLayout;

// `name` as in a path; empty: all models.
Reply models_reply(const ServedModel& model, std::string_view name);

// Replies to what SGLang's clients ask: facts of the model, and of the server with its cache.
Reply model_info_reply(const ServedModel& model);
Reply server_info_reply(const ServedModel& model, const KvCacheLayout& cache,
                        const std::string& version);

// Requests in the engine, and the tokens of its cache.
struct ServerLoad {
  std::int64_t num_running = 0;
  std::int64_t num_waiting = 0;
  std::int64_t num_used_tokens = 0;
  std::int64_t num_total_tokens = 0;
};

// Replies of SGLang's routers' polls: before 0.5.7, and since then.
Reply get_load_reply(const ServerLoad& load);
Reply loads_reply(const ServerLoad& load, const std::string& version);

// Replies to these bodies. All throw ApiError. They are thread-safe, as they read constant data.
// EncodingCancelled is thrown soon after `has_left` has become true.
Reply tokenize_reply(const ServedModel& model, std::string_view body,
                     const std::atomic<bool>& has_left);
Reply count_tokens_reply(const ServedModel& model, std::string_view body,
                         const std::atomic<bool>& has_left);
Reply detokenize_reply(const ServedModel& model, std::string_view body,
                       const std::atomic<bool>& has_left);

}  // namespace metronome
