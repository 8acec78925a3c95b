// SPDX-License-Identifier: Apache-2.0
// Counts the answers, tokens and unsent bytes of each client, and holds them to limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

namespace metronome {

class ClientLoads {
 public:
  struct Limits {
    std::int64_t max_answers = 0;  // of a client
    std::int64_t max_tokens = 0;   // the same, of the prompts of its answers
    // Of tokens that are not sent yet. A client has half of it.
    std::size_t max_unsent_bytes = 0;
  };
  // A request adds its answers and tokens. The answers to a prompt share its tokens.
  struct Share {
    std::int64_t num_answers = 0;
    std::int64_t num_tokens = 0;
  };
  // A client whose largest answer must end, and the error that the answer ends with.
  struct Excess {
    std::string client;
    int status = 429;
    std::string message;
  };

  explicit ClientLoads(const Limits& limits) : limits_(limits) {}

  // Why the client must wait before it asks for so much; empty: it need not. A request that is
  // its only one may have more than the limits.
  std::string refusal(const std::string& client, const Share& share) const;
  void add(const std::string& client, const Share& share);
  // Takes back an add(). The unsent bytes of the share were set to 0 before.
  void remove(const std::string& client, const Share& share);
  // An answer of a client with a load has now `after` unsent bytes in the place of `before`.
  void count_unsent(const std::string& client, std::size_t before, std::size_t after);
  // nullopt: the limits of unsent bytes hold.
  std::optional<Excess> excess() const;

 private:
  struct Load {
    Share share;
    std::size_t num_unsent_bytes = 0;
  };

  Limits limits_;
  std::unordered_map<std::string, Load> loads_;  // of clients with running answers
  std::size_t num_unsent_bytes_ = 0;             // of all clients
};

}  // namespace metronome
