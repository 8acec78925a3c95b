// SPDX-License-Identifier: Apache-2.0
// The causes of late first tokens. Splits each TTFT into causes, and names the request whose prompt
// delayed it most.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.h"
#include "core/metrics/run_record.h"

namespace metronome {

// The parts of a TTFT. They add up exactly to it.
enum class FirstTokenPart : std::uint8_t {
  FrontEnd,  // the server's front end, until it handed the request over
  // In the queue:
  Slots,    // as many requests ran as may
  Blocks,   // the request at the head of the queue had no KV blocks, or a reserve of them
  Encoder,  // images were encoded
  Prompts,  // steps computed the prompts of others, up to their limit of tokens
  Held,     // a step without prompts ran: the policy held the queue, or the step was running
  // From its admission on:
  OwnPrefill,     // its own chunks
  OtherPrompts,   // chunks of others, in its steps and between them
  Encoding,       // of images
  Decodes,        // decodes of others, in its steps and between them
  Host,           // the device was idle
  Recomputation,  // after it was preempted before its first token: the time from its admission
};
constexpr std::size_t kNumFirstTokenParts = 12;
// In the order of FirstTokenPart: keys of JSON, and words.
std::string_view key_of(FirstTokenPart part);
std::string_view part_words(FirstTokenPart part);

struct FirstTokenParts {
  TimeNs ns[kNumFirstTokenParts] = {};

  TimeNs& operator[](FirstTokenPart part) { return ns[static_cast<std::size_t>(part)]; }
  TimeNs operator[](FirstTokenPart part) const { return ns[static_cast<std::size_t>(part)]; }
  TimeNs total_ns() const;
  TimeNs queue_ns() const;
  void operator+=(const FirstTokenParts& other);
  FirstTokenPart largest() const;  // the first of equals
};

// Whose prompt delayed a first token most, while it waited and was computed.
struct FirstTokenCulprit {
  RequestId request = kNoRequest;  // kNoRequest: nobody's
  TimeNs prefill_ns = 0;           // of its chunks in that time
  std::int64_t num_tokens = 0;     // of these chunks
};

// Limits of an engine, for the causes of waits.
struct EngineLimits {
  std::int64_t max_num_seqs = 0;  // 0: unknown
  std::int64_t num_blocks = 0;    // of the KV cache; 0: unknown
  std::int64_t block_tokens = 0;  // of a block
};

// The reason for which each plan left the queue alone: Slots, Blocks, Prompts or Held.
class QueueReasons {
 public:
  // Keeps a reference to the record.
  QueueReasons(const RunRecord& record, const EngineLimits& limits);

  // Of the next step of the record; its steps are asked for in their order.
  FirstTokenPart of_next(const StepEntry& step);

 private:
  const RunRecord& record_;
  EngineLimits limits_;
  std::vector<std::size_t> admitted_;  // requests in the order of their admission
  std::size_t next_ = 0;               // of admitted_: the first one behind the last step
};

class FirstTokens {
 public:
  // Keeps a reference to the record, which has steps.
  FirstTokens(const RunRecord& record, const EngineLimits& limits);

  // By request; zero where it got no first token.
  const std::vector<FirstTokenParts>& parts() const { return parts_; }
  bool has_first_token(std::size_t i) const { return record_.requests[i].first_token != kNoTime; }
  // The sum over the requests whose TTFT is above the limit; -1: over all. Their number.
  std::int64_t beyond(TimeNs limit_ns, FirstTokenParts& sum) const;
  // The latest first tokens, the latest first; ties by request.
  std::vector<std::size_t> latest(std::size_t max_requests) const;
  FirstTokenCulprit culprit(std::size_t i) const;

 private:
  void split_queue(std::size_t i, FirstTokenParts& parts) const;
  void split_service(std::size_t i, FirstTokenParts& parts) const;
  void find_reasons(const EngineLimits& limits);
  void sum_steps();
  std::size_t step_at_plan(TimeNs time) const;
  std::size_t step_at_end(TimeNs time) const;

  const RunRecord& record_;
  std::vector<FirstTokenParts> parts_;
  std::vector<TimeNs> planned_;   // by step
  std::vector<TimeNs> finished_;  // by step
  // The reasons of waits when a step is planned, and sums of time by reason before each step.
  std::vector<FirstTokenPart> reasons_;
  std::vector<TimeNs> waited_[5];  // of Slots .. Held
  // Sums over the steps before each one: of decodes, prefills, encodings, and time without either.
  std::vector<TimeNs> decode_, prefill_, encode_;
  std::vector<TimeNs> own_ns_;           // by request: its chunks before its first token
  std::vector<std::int32_t> own_first_;  // by request: the step of its first chunk; -1: it has none
};

// All first tokens, or those above a limit.
struct FirstTokenRow {
  std::string name;  // "all", "over p99", "over the limit"
  std::optional<double> limit_ms;
  std::int64_t num_requests = 0;
  FirstTokenParts parts;  // their sum
};
// Rows for all, above the p99 and, with a limit, above it; empty: no request got a first token, or
// the run had several engines.
std::vector<FirstTokenRow> first_token_rows(const RunRecord& record, const FirstTokens& tokens,
                                            std::optional<double> ttft_limit_ms);

}  // namespace metronome
