// SPDX-License-Identifier: Apache-2.0
// The last plan of policy `llama_cpp`, for logs of its decisions.
#pragma once

#include <cstdint>
#include <vector>

#include "core/engine/request.h"

namespace metronome {

struct LlamaCppState {
  struct Slotted {
    RequestId request = kNoRequest;
    std::int32_t value = 0;
  };
  std::vector<Slotted> launched;      // requests and the slots that they took, in order
  std::vector<Slotted> kept;          // whose prompts began, and their tokens that the slot had
  std::vector<std::int32_t> purged;   // idle slots
  std::int32_t num_tries = 0;         // calls of the decoder, one of which had room
  RequestId unfit = kNoRequest;       // all slots failed: the one whose token had no room
  std::int32_t unfit_position = 0;    // of that token
  bool unfit_decodes = false;
  std::vector<Slotted> released;      // requests that ended since the plan began, and their slots
};

class LlamaCppDecisions {
 public:
  virtual ~LlamaCppDecisions() = default;
  virtual const LlamaCppState& state() const = 0;
  // Whether the next plan computes the rest of this one's batch.
  virtual bool has_rest() const = 0;
};

}  // namespace metronome
