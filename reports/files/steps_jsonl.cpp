// SPDX-License-Identifier: Apache-2.0
#include "reports/files/steps_jsonl.h"

#include <vector>

#include "reports/files/json_lines.h"
#include "reports/files/result_files.h"

namespace metronome {

void append_step(std::size_t position, const StepEntry& step, std::span<const PrefillChunk> chunks,
                 const StepFields& fields, JsonText& json, std::int32_t replica) {
  json.begin_object();
  json.field("step", position);
  if (replica >= 0) json.field("replica", replica);
  json.field("planned_ns", step.planned_at);
  json.field("started_ns", step.started_at);
  json.field("finished_ns", step.finished_at);
  json.field("prefill_tokens", step.num_prefill_tokens);
  json.field("decode_tokens", step.num_decode_tokens);
  json.field("emitted", step.num_emitted);
  json.field("running", step.num_running);
  json.field("waiting", step.num_waiting);
  json.field("used_blocks", step.num_used_blocks);
  json.field("preempted", std::int64_t{step.num_preempted});
  json.field("failed", step.failed != 0);
  if (step.extrapolated != 0) json.field("extrapolated", true);
  if (step.decode_only_ns == kNoTime) {
    json.key("decode_only_ns").null();
  } else {
    json.field("decode_only_ns", step.decode_only_ns);
  }
  if (fields.has_drafts || step.num_draft_tokens > 0) {
    json.field("draft_ns", step.draft_ns);
    json.field("draft_tokens", step.num_draft_tokens);
    json.field("accepted_tokens", step.num_accepted_tokens);
  }
  if (fields.has_encodings) json.field("encode_ns", step.encode_ns);
  // Each [request, first position, tokens].
  json.key("prefills");
  json.begin_array();
  for (const PrefillChunk& prefill : chunks) {
    json.begin_array();
    json.value(index(prefill.request));
    json.value(prefill.first_position);
    json.value(prefill.num_tokens);
    json.end_array();
  }
  json.end_array();
  json.end_object();
  json.end_line();
}

void write_steps_jsonl(const RunRecord& record, FileWriter& file) {
  StepHistory::Iterator step = record.steps.begin();
  std::vector<PrefillChunk> chunks;
  std::int32_t replica = record.replicas.empty() ? -1 : 0;
  write_json_lines(record.steps.size(), file, [&](std::size_t s, JsonText& json) {
    chunks.clear();
    for (std::int32_t i = 0; i < (*step).num_prefill_chunks; ++i) {
      chunks.push_back(record.prefills[static_cast<std::size_t>((*step).first_prefill_chunk + i)]);
    }
    while (replica >= 0 && s >= record.replicas[static_cast<std::size_t>(replica)].end_step()) {
      ++replica;
    }
    append_step(s, *step, chunks, StepFields(record), json, replica);
    ++step;
  });
}

}  // namespace metronome
