// Passes that verify drafts. Their tokens are known only when they are computed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/step_plan.h"
#include "core/run/forward_batch.h"
#include "core/run/request_texts.h"

namespace metronome {

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
// tokens have logits. Requires that the steps before have been computed.
void place_drafts(const ForwardBatch& planned, std::span<const DraftChunk> chunks,
                  RequestTexts& texts, ForwardBatch& batch);

}  // namespace metronome
