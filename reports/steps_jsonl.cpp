#include "reports/json_lines.h"
#include "reports/result_files.h"

namespace metronome {
namespace {

void append_step(std::size_t position, const StepEntry& step, JsonText& json) {
  json.begin_object();
  json.field("step", position);
  json.field("planned_ns", step.planned_at);
  json.field("started_ns", step.started_at);
  json.field("finished_ns", step.finished_at);
  json.field("prefill_tokens", step.num_prefill_tokens);
  json.field("decode_tokens", step.num_decode_tokens);
  json.field("prefill_chunks", step.num_prefill_chunks);
  json.field("emitted", step.num_emitted);
  json.field("running", step.num_running);
  json.field("waiting", step.num_waiting);
  json.field("used_blocks", step.num_used_blocks);
  json.field("preempted", std::int64_t{step.num_preempted});
  json.field("failed", step.failed != 0);
  // [request, first position, tokens]
  json.key("largest_prefill");
  if (step.largest_prefill == kNoRequest) {
    json.null();
  } else {
    json.begin_array();
    json.value(index(step.largest_prefill));
    json.value(step.largest_prefill_position);
    json.value(step.largest_prefill_tokens);
    json.end_array();
  }
  json.end_object();
  json.end_line();
}

}  // namespace

void write_steps_jsonl(const RunRecord& record, FileWriter& file) {
  write_json_lines(record.steps.size(), file, [&record](std::size_t s, JsonText& json) {
    append_step(s, record.steps[s], json);
  });
}

}  // namespace metronome
