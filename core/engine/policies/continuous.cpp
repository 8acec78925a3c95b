// SPDX-License-Identifier: Apache-2.0
// Continuous batching: requests leave and join between steps. Decodes come first, then the whole
// prompts of all requests with room.
#include "core/engine/policies/policies.h"
#include "core/engine/policy.h"

namespace metronome {
namespace {

class ContinuousPolicy final : public Policy {
 public:
  void fill(Books& books) override {
    books.plan_decodes();
    while (Request* request = books.next_waiting()) {
      if (!books.admit(*request, books.num_uncomputed_tokens(*request))) break;
    }
  }
};

}  // namespace

std::unique_ptr<Policy> make_continuous(const PolicyContext&) {
  return std::make_unique<ContinuousPolicy>();
}

}  // namespace metronome
