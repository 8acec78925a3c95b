// SPDX-License-Identifier: Apache-2.0
// The endpoints: which of them a request is for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "serve/server/reply.h"

namespace metronome {

enum class Endpoint : std::uint8_t {
  Completions,
  ChatCompletions,
  Generate,
  Responses,
  Messages,
  CountTokens,
  Tokenize,
  Detokenize,
  ResetPrefixCache,
  Index,
  Models,
  Health,
  Version,
  Metrics,
  ModelInfo,
  ServerInfo,
  FlushCache,
  AbortRequest,
  GetLoad,
  Loads,
  Embeddings
};

struct Route {
  std::optional<Endpoint> endpoint = {};  // nullopt: `reply` is the answer
  std::string_view model = {};            // Models: the part of the target that names one
  Reply reply = {};                       // 404, 405, or to a browser's question (OPTIONS)
};

// HEAD goes where GET does; the connection omits the body. The route keeps a part of `target`.
Route route_of(std::string_view method, std::string_view target);

// A page for browsers: the endpoints, and links to those that a browser can open.
Reply index_reply(const std::string& model_name);

}  // namespace metronome
