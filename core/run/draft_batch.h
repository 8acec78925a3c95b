// SPDX-License-Identifier: Apache-2.0
// Passes that verify drafts. Their tokens are known only when they are computed.
//
// Each position takes the token that it would take without drafts: the same logits and the same
// random number. The first one that is not the draft ends the chunk. For drafts that are not drawn
// themselves this is rejection sampling as it is defined (Leviathan, Kalman, Matias 2023, section
// 2.3): a draft is accepted with its probability p, and otherwise the token is distributed as the
// others are, in proportion to theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/engine/step_plan.h"
#include "core/run/drafter.h"
#include "core/run/forward_batch.h"
#include "core/run/request_texts.h"

namespace metronome {

// The source of an executor's drafts.
struct DraftSource {
  Drafter* drafter = nullptr;  // nullptr: there are none
  std::int32_t max_model_len = 0;
};

// A chunk of a plan whose policy plans drafts.
struct DraftChunk {
  bool is_decode = false;
  bool samples_token = false;
  std::int32_t num_drafts = 0;  // that it may verify
  std::int32_t num_next = 0;    // wanted for the request's next decode
};

// Fills `chunks` with those of a pass, in order. A request that the plan admits as a decode has no
// drafts yet: those of its chunk are padding.
void note_drafts(const StepPlan& plan, const ForwardPass& pass, const RequestTable& requests,
                 std::vector<DraftChunk>& chunks);

// Makes `batch` of the pass as it was planned. A decode begins at the request's last known token,
// as the plan counts drafts in flight as accepted, and computes the drafts that there are. All its
// tokens have logits. Requires that the steps before have been computed. With a `block_size` a
// sequence has no blocks behind its context; 0: those that were planned.
void place_drafts(const ForwardBatch& planned, std::span<const DraftChunk> chunks,
                  RequestTexts& texts, ForwardBatch& batch, std::int32_t block_size = 0);

// Accepts the tokens of a pass. Calls `accept` with a sequence and its first row of logits, and
// with its next row as long as the token taken is the draft there. `accept` adds to
// StepResult::sampled_tokens. A request that has ended takes one token, which nobody reads. Ends
// where `accept` fails the step. With drafts adds to num_accepted and num_verified.
using AcceptRow = std::function<TokenId(std::size_t sequence, std::size_t row)>;
void accept_tokens(const ForwardBatch& batch, const RequestTable& requests, bool has_drafts,
                   const AcceptRow& accept, StepResult& result);

// After the tokens of a pass are taken: replaces the drafts of its requests by those for their
// next decodes. Adds to StepResult::num_proposed where the drafter may find fewer. `batch` is as of
// place_drafts(), and `requests` are the engine's.
void propose_drafts(const DraftSource& source, const ForwardBatch& batch,
                    std::span<const DraftChunk> chunks, const RequestTable& requests,
                    RequestTexts& texts, StepResult& result, const Drafter::PollFn& poll = {});

}  // namespace metronome
