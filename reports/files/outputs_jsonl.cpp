// SPDX-License-Identifier: Apache-2.0
#include "reports/files/json_lines.h"
#include "reports/files/result_files.h"

namespace metronome {
namespace {

void append_output(std::size_t request, const OutputLog::Output& output, JsonText& json) {
  json.begin_object();
  json.field("request", request);
  json.key("token_ids");
  json.begin_array();
  for (const TokenId token : output.token_ids) json.value(value(token));
  json.end_array();
  if (!output.logprobs.empty()) {
    json.key("logprobs");
    json.begin_array();
    for (const std::vector<TokenLogprob>& at_token : output.logprobs) {
      json.begin_array();
      for (const TokenLogprob& entry : at_token) {
        json.begin_array();
        json.value(value(entry.token));
        json.value(static_cast<double>(entry.logprob));
        json.end_array();
      }
      json.end_array();
    }
    json.end_array();
  }
  json.end_object();
  json.end_line();
}

}  // namespace

void write_outputs_jsonl(const OutputLog& outputs, FileWriter& file) {
  const std::vector<OutputLog::Output>& all = outputs.outputs();
  write_json_lines(all.size(), file, [&all](std::size_t i, JsonText& json) {
    if (!all[i].token_ids.empty()) append_output(i, all[i], json);
  });
}

}  // namespace metronome
